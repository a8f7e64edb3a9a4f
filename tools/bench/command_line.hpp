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
  enum class Part : unsigned char { copy, keys };

  Part part = Part::copy;
  // copy
  std::string block_bytes = "64KiB";
  std::string area_bytes = "512MiB";
  unsigned rounds = 9;
  // keys
  std::vector<std::uint32_t> block_tokens{16, 32, 64, 128, 256};
  std::uint32_t prompt_tokens = 4096;
  std::uint32_t prompts = 16;
  unsigned keys_rounds = 51;
  std::string report;
};

/// Adds `bench copy`, `bench keys` and their flags. `arguments` outlives the parsing.
void add_bench_options(CLI::App& bench, BenchArguments& arguments);
/// Runs what was asked for. Throws UsageError for sizes that make no sense, std::runtime_error where the
/// report cannot be written.
void run_bench(const BenchArguments& arguments);

}  // namespace terrace::tools
