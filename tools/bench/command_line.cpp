#include "tools/bench/command_line.hpp"

#include "base/bytes.hpp"
#include "tools/bench/copy.hpp"
#include "tools/bench/keys.hpp"
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

void run_copy(const BenchArguments& arguments) {
  CopyBenchOptions options;
  options.block_bytes = size_of("--block-bytes", arguments.block_bytes);
  options.area_bytes = size_of("--area", arguments.area_bytes);
  options.rounds = arguments.rounds;
  bench_copy(options);
}

void run_keys(const BenchArguments& arguments) {
  KeysBenchOptions options;
  options.block_tokens = arguments.block_tokens;
  options.prompt_tokens = arguments.prompt_tokens;
  options.prompts = arguments.prompts;
  options.rounds = arguments.keys_rounds;
  options.report = arguments.report;
  bench_keys(options);
}

}  // namespace

void add_bench_options(CLI::App& bench, BenchArguments& arguments) {
  bench.require_subcommand(1);
  CLI::App* const copy = bench.add_subcommand("copy", "One core's copy speed, scattered blocks: the yardstick of replay's moves");
  copy->add_option("--block-bytes", arguments.block_bytes, "Of one block")->capture_default_str();
  copy->add_option("--area", arguments.area_bytes, "Of each of the two areas")->capture_default_str();
  copy->add_option("--rounds", arguments.rounds, "To take the median of")->capture_default_str();
  copy->footer("\nExample:\n  terrace bench copy --block-bytes 2MiB");
  copy->callback([&] { arguments.part = BenchArguments::Part::copy; });

  CLI::App* const keys = bench.add_subcommand("keys", "From tokens to keys, beside OpenSSL's digests of the same messages");
  keys->add_option("--block-tokens", arguments.block_tokens, "Sizes of block")->delimiter(',')->capture_default_str();
  keys->add_option("--prompt-tokens", arguments.prompt_tokens, "Of each prompt")->capture_default_str();
  keys->add_option("--prompts", arguments.prompts, "One after another, and all at once")->capture_default_str();
  keys->add_option("--rounds", arguments.keys_rounds, "To take the medians of")->capture_default_str();
  keys->add_option("--report", arguments.report, "Write the medians to this file, as JSON");
  keys->footer("\nExample:\n  terrace bench keys --block-tokens 16,64 --report keys.json");
  keys->callback([&] { arguments.part = BenchArguments::Part::keys; });
}

void run_bench(const BenchArguments& arguments) {
  try {
    arguments.part == BenchArguments::Part::keys ? run_keys(arguments) : run_copy(arguments);
  } catch (const std::invalid_argument& error) {
    throw UsageError{error.what()};
  }
}

}  // namespace terrace::tools
