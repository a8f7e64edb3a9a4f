#include "tools/bench/command_line.hpp"

#include "base/bytes.hpp"
#include "tools/bench/copy.hpp"
#include "tools/replay/usage_error.hpp"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <stdexcept>

namespace terrace::tools {
namespace {

Bytes size_of(const char* flag, const std::string& text) {
  const Result<Bytes> size = parse_bytes(text);
  if (!size) throw UsageError{fmt::format("{} {}: not a size; write it as 64KiB, 512MiB or 4096", flag, text)};
  return *size;
}

}  // namespace

void add_bench_options(CLI::App& bench, BenchArguments& arguments) {
  bench.require_subcommand(1);
  CLI::App* const copy = bench.add_subcommand("copy", "One core's copy speed, scattered blocks: the yardstick of replay's moves");
  copy->add_option("--block-bytes", arguments.block_bytes, "Of one block")->capture_default_str();
  copy->add_option("--area", arguments.area_bytes, "Of each of the two areas")->capture_default_str();
  copy->add_option("--rounds", arguments.rounds, "To take the median of")->capture_default_str();
  copy->footer("\nExample:\n  terrace bench copy --block-bytes 2MiB");
}

void run_bench(const BenchArguments& arguments) {
  CopyBenchOptions options;
  options.block_bytes = size_of("--block-bytes", arguments.block_bytes);
  options.area_bytes = size_of("--area", arguments.area_bytes);
  options.rounds = arguments.rounds;
  try {
    bench_copy(options);
  } catch (const std::invalid_argument& error) {
    throw UsageError{error.what()};
  }
}

}  // namespace terrace::tools
