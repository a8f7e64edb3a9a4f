#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace terrace::tools {

/// The command line of `terrace bench`.
struct BenchArguments {
  enum class Part : unsigned char { copy, index, keys, restart, storage, touch, transfer };

  Part part = Part::copy;
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
  struct Keys {
    std::vector<std::uint32_t> block_tokens = {16, 32, 64, 128, 256};
    std::uint32_t prompt_tokens = 4096;
    std::uint32_t prompts = 16;
    unsigned rounds = 51;
    std::string report;
  } keys;
  struct Restart {
    std::string directory;
    std::uint32_t blocks = 1'000'000;
    std::uint32_t prefix_blocks = 16;
    unsigned rounds = 5;
    std::string io = "auto";
    std::string report;
  } restart;
  struct Storage {
    std::string directory;
    std::vector<std::string> stripes;
    std::string size = "1GiB";
    std::vector<std::string> sizes = {"64KiB", "256KiB", "1MiB", "4MiB"};
    std::vector<unsigned> depths = {1, 4, 16, 64};
    std::string moved = "256MiB";
    unsigned rounds = 5;
    std::string io = "auto";
    std::string report;
  } storage;
  struct Touch {
    std::string size = "1GiB";
    std::vector<unsigned> threads = {1, 2};
    unsigned rounds = 5;
  } touch;
  struct Transfer {
    std::string device = "emulated";
    std::vector<std::string> block_bytes = {"4KiB", "16KiB", "64KiB", "256KiB", "1MiB", "4MiB"};
    std::string area_bytes = "256MiB";
    std::optional<std::uint32_t> blocks;
    unsigned rounds = 9;
    std::string piece_bytes = "1MiB";
    std::uint32_t pieces_in_flight = 2;
    std::uint32_t layers = 32;
    std::string link = "0B";
    std::string report;
  } transfer;
};

/// Adds `bench copy`, `bench index`, `bench keys`, `bench restart`, `bench storage`, `bench touch`, `bench transfer` and their
/// flags. `arguments` must outlive the parsing.
void add_bench_options(CLI::App& bench, BenchArguments& arguments);
/// Runs the chosen bench. Throws UsageError for invalid sizes, Interrupted after a signal, std::runtime_error if the report
/// cannot be written.
void run_bench(const BenchArguments& arguments);

}  // namespace terrace::tools
