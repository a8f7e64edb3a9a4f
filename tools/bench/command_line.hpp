#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace terrace::tools {

/// `terrace bench`, as typed.
struct BenchArguments {
  struct Copy {
    std::string block_bytes = "64KiB";
    std::string area_bytes = "512MiB";
    unsigned rounds = 9;
  } copy;
  struct Index {
    std::string trace;
    std::vector<std::uint32_t> blocks = {10'000, 100'000, 1'000'000};
    std::uint32_t trace_block_tokens = 512;
    std::uint32_t block_tokens = 64;
    unsigned rounds = 5;
    std::string report;
  } index;
  const CLI::App* index_command = nullptr;  ///< set by add_bench_options
};

/// Adds `bench copy`, `bench index` and their flags. `arguments` outlives the parsing.
void add_bench_options(CLI::App& bench, BenchArguments& arguments);
/// Runs what was asked for. Throws UsageError for sizes that make no sense.
void run_bench(const BenchArguments& arguments);

}  // namespace terrace::tools
