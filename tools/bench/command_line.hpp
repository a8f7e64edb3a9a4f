#pragma once

#include <string>

namespace CLI {
class App;
}

namespace terrace::tools {

/// `terrace bench`, as typed.
struct BenchArguments {
  std::string block_bytes = "64KiB";
  std::string area_bytes = "512MiB";
  unsigned rounds = 9;
};

/// Adds `bench copy` and its flags. `arguments` outlives the parsing.
void add_bench_options(CLI::App& bench, BenchArguments& arguments);
/// Runs what was asked for. Throws UsageError for sizes that make no sense.
void run_bench(const BenchArguments& arguments);

}  // namespace terrace::tools
