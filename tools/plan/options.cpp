#include "tools/plan/options.hpp"

#include "tools/arguments.hpp"
#include "tools/replay/workload/trace_reader.hpp"
#include "tools/replay/workload/workloads.hpp"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace terrace::tools {
namespace {

constexpr const char* explanation = R"(
Counts which blocks of the prompts a cache of each size would hit. Requests come
one at a time, as in terrace replay --reference; outputs are not cached.
  lru      exact for all sizes, by stack distances
  default  the cache's default policy, simulated for each size
  opt      a cache that knows the future: no policy hits more
The planned tier is the one below those that are given: the device; below a
given device the host; below a given host storage.

SIZE takes B, KiB, MiB, GiB or TiB. A number in --sizes without a unit is a
number of blocks.

With --socket it shows what a process that serves has measured itself, for LRU
(docs/admin.md); of the other options only --json counts then.

Exit status: 0 done; 2 bad arguments or input; 3 failed while running; 130
interrupted. Each status but 0 comes with one line on standard error.

Examples:
  terrace plan trace.jsonl.gz
      hit rate by the size of the device, up to everything
  terrace plan trace.jsonl.gz --device-capacity 60GiB --plot plots \
      --sizes 128GiB,512GiB,2TiB
      what host memory would bring, as a table and as SVG files
  terrace plan trace.jsonl.gz --device-capacity 60GiB \
      --host-capacity 512GiB --sizes 2TiB,8TiB --disk-bandwidth 6GiB
      what a disk would bring, and how long it would last
  terrace plan trace.jsonl.gz --target 30%,35% --policies lru,default
      the smallest sizes with these hit rates
  terrace plan --workload agent --requests 5000 --json
      a built-in workload, as JSON)";

/// The KV of a token in 16 bits, of a model with 32 layers and 8 heads of 128 for keys and for values.
constexpr Bytes default_token_bytes = KiB * 128;
/// Limits that keep sums and products of sizes below 2^64.
constexpr std::uint64_t blocks_max = std::uint64_t{1} << 34U;
constexpr Bytes block_bytes_max = MiB * 512;

PlanSize to_blocks(const std::string& option, const std::string& word) {
  return {to_whole_number(option, word, 0, blocks_max), false};
}

PlanSize to_capacity(const std::string& option, const std::string& word) { return {count(to_size(option, word)), true}; }

/// Reads "3000" or "64GiB".
PlanSize to_plan_size(const std::string& option, const std::string& word) {
  const bool is_number = !word.empty() && word.find_first_not_of("0123456789") == std::string::npos;
  return is_number ? to_blocks(option, word) : to_capacity(option, word);
}

std::uint64_t in_blocks(const std::string& option, PlanSize size, Bytes block_bytes) {
  const std::uint64_t blocks = size.is_bytes ? size.number / count(block_bytes) : size.number;
  if (size.number > 0 && blocks == 0) {
    throw UsageError{
        fmt::format("{}: {} is less than a block of {}", option, to_string(Bytes{size.number}), to_string(block_bytes))};
  }
  if (blocks > blocks_max) throw UsageError{fmt::format("{}: more than {} blocks", option, blocks_max)};
  return blocks;
}

/// The size of a tier that is given in blocks, in bytes, or not at all.
std::optional<std::uint64_t> tier_size(const char* tier, const std::optional<PlanSize>& blocks,
                                       const std::optional<PlanSize>& capacity, Bytes block_bytes) {
  if (blocks && capacity) throw UsageError{fmt::format("give --{0}-blocks or --{0}-capacity, not both", tier)};
  if (blocks) return in_blocks(fmt::format("--{}-blocks", tier), *blocks, block_bytes);
  if (capacity) return in_blocks(fmt::format("--{}-capacity", tier), *capacity, block_bytes);
  return std::nullopt;
}

void choose_tiers(PlanOptions& options, const PlanArguments& arguments) {
  const Bytes block_bytes = options.machine.block_bytes;
  const auto device = tier_size("device", arguments.device_blocks, arguments.device_capacity, block_bytes);
  const auto host = tier_size("host", arguments.host_blocks, arguments.host_capacity, block_bytes);
  if (host && !device) throw UsageError{"the size of the host needs that of the device: give --device-blocks, too"};
  if (device == 0) throw UsageError{"the device needs at least one block"};
  if (arguments.inclusion && !device) throw UsageError{"--inclusion is for the host: give --device-blocks"};
  if (arguments.write_policy && !host) throw UsageError{"--write-policy is for storage: give --device-blocks and --host-blocks"};
  options.planned = host ? PlannedTier::storage : device ? PlannedTier::host : PlannedTier::device;
  options.fixed.device = device.value_or(0);
  options.fixed.host = host.value_or(0);
  options.fixed.inclusion = arguments.inclusion.value_or(options.fixed.inclusion);
  options.fixed.write_policy = arguments.write_policy.value_or(options.fixed.write_policy);
  for (const PlanSize& size : arguments.sizes) options.sizes.push_back(in_blocks("--sizes", size, block_bytes));
  std::ranges::sort(options.sizes);
  const auto repeated = std::ranges::unique(options.sizes);
  options.sizes.erase(repeated.begin(), repeated.end());
  const bool has_zero = !options.sizes.empty() && options.sizes.front() == 0;
  if (has_zero && !device) throw UsageError{"--sizes: the device needs at least one block"};
}

}  // namespace

std::string_view to_string(PlannedTier tier) {
  constexpr std::array names{"device", "host", "storage"};
  return names.at(static_cast<std::size_t>(tier));
}

std::string PlanOptions::source() const {
  if (trace.empty()) return fmt::format("{} workload, seed {}", workload, seed);
  return trace == "-" ? "standard input" : trace.filename().string();
}

TierSizes PlanOptions::with(std::uint64_t size) const {
  TierSizes tiers = fixed;
  switch (planned) {
    case PlannedTier::device: tiers.device = size; break;
    case PlannedTier::host: tiers.host = size; break;
    case PlannedTier::storage: tiers.storage = size; break;
  }
  return tiers;
}

void add_plan_options(CLI::App& command, PlanArguments& into) {
  const auto option = [&]<class T, class Convert>(const char* name, T& value, Convert convert, const char* type,
                                                  const char* text) {
    CLI::Option* const added = add_value(command, name, value, convert, type, text);
    if (added->get_expected_max() > 1) added->delimiter(',');
    return added;
  };
  command
      .add_option("trace", into.options.trace, "Trace in Mooncake's format, text or gzip; - is standard input; none: --workload")
      ->type_name("FILE");
  option("--workload", into.workload, OneOf{workload_names}, "NAME", "Built-in workload: chat (default), agent, rag");
  option("--seed", into.options.seed, WholeNumber<std::uint64_t>{}, "NUMBER", "Seed of the built-in workload")->default_str("1");
  option("--requests", into.requests_max, WholeNumber<std::uint64_t>{1}, "COUNT",
         "Only the first requests (default: the whole trace; a workload: 2000)");
  option("--block-tokens", into.block_tokens, WholeNumber<std::uint32_t>{1}, "COUNT",
         "Tokens of a block, and of each hash id of the trace (default: what a recording names, or 512; a workload: 64)");
  option("--block-bytes", into.block_bytes, to_size, "SIZE", "Size of a block (default 128KiB for each token)");
  option("--sizes", into.sizes, to_plan_size, "SIZE", "Sizes of the planned tier (default: 20, up to all different blocks)");
  option("--device-blocks", into.device_blocks, to_blocks, "COUNT", "Size of the device; then the host is planned");
  option("--device-capacity", into.device_capacity, to_capacity, "SIZE", "The same in bytes");
  option("--host-blocks", into.host_blocks, to_blocks, "COUNT", "Size of the host, 0: none; then storage is planned");
  option("--host-capacity", into.host_capacity, to_capacity, "SIZE", "The same in bytes");
  option("--inclusion", into.inclusion,
         one_of(InclusionPolicy::non_inclusive, InclusionPolicy::exclusive, InclusionPolicy::inclusive,
                InclusionPolicy::lazy_exclusive),
         "NAME", "How device and host copies of a block relate: lazy-exclusive (default), exclusive, non-inclusive, inclusive");
  option("--write-policy", into.write_policy, one_of(WritePolicy::write_through, WritePolicy::write_back), "NAME",
         "Which blocks are written to storage: write-through (computed blocks; default), write-back (evicted blocks)");
  option("--policies", into.policies, one_of(PlanPolicy::lru, PlanPolicy::default_policy, PlanPolicy::opt), "NAME",
         "Eviction policies")
      ->default_str("lru,default,opt");
  option("--target", into.options.targets, to_fraction, "SHARE", "Hit rates whose smallest sizes are wanted: 0.3, 30%");
  PlanMachine& machine = into.options.machine;
  option("--link-bandwidth", machine.link, to_positive_bandwidth, "SIZE/s", "Speed from host to device")
      ->default_str(to_string(machine.link));
  option("--disk-bandwidth", machine.disk, to_positive_bandwidth, "SIZE/s", "Speed of reads from storage")
      ->default_str(to_string(machine.disk));
  option("--prefill-speed", machine.prefill_speed, to_positive_number, "COUNT", "Tokens that the GPU computes in a second")
      ->default_str(fmt::format("{}", machine.prefill_speed));
  option("--drive-writes-per-day", machine.drive_writes_per_day, to_positive_number, "NUMBER",
         "Endurance of the disk: how often all of it can be written each day for five years")
      ->default_str(fmt::format("{}", machine.drive_writes_per_day));
  command.add_flag("--json", into.options.json, "One JSON object on standard output, with all figures of all policies");
  option("--plot", into.options.plot, to_directory, "DIR", "Write hit-rate.svg and first-token.svg to this directory");
  option("--socket", into.live.socket, to_word, "ADDRESS",
         "A process that serves, in place of a workload: what other sizes would have brought it");
  option("--token-file", into.live.token_file, to_file, "FILE", "File with the token, for a socket over TCP");
  command.footer(explanation);
}

PlanOptions resolve(const PlanArguments& arguments) {
  PlanOptions options = arguments.options;
  const bool is_trace = !options.trace.empty();
  if (is_trace && arguments.workload) throw UsageError{"give a trace or --workload, not both"};
  constexpr std::uint64_t all_requests = std::numeric_limits<std::uint64_t>::max();
  options.workload = arguments.workload.value_or(std::string{workload_names.front()});
  options.requests_max = arguments.requests_max.value_or(is_trace ? all_requests : default_workload_requests);
  PlanMachine& machine = options.machine;
  machine.block_tokens = arguments.block_tokens ? *arguments.block_tokens
                         : is_trace             ? usual_block_tokens(options.trace)
                                                : default_workload_block_tokens;
  // The product cannot overflow: the number of tokens has 32 bits.
  machine.block_bytes = arguments.block_bytes.value_or(default_token_bytes * machine.block_tokens);
  if (count(machine.block_bytes) == 0 || machine.block_bytes > block_bytes_max) {
    throw UsageError{
        fmt::format("--block-bytes: {} is not from 1B to {}", to_string(machine.block_bytes), to_string(block_bytes_max))};
  }
  choose_tiers(options, arguments);
  for (const PlanPolicy policy : all_plan_policies) {
    if (std::ranges::find(arguments.policies, policy) != arguments.policies.end()) options.policies.push_back(policy);
  }
  return options;
}

std::vector<std::uint64_t> automatic_sizes(const PlanOptions& options, const RequestLog& log) {
  constexpr unsigned steps = 20;
  constexpr double span = 1000;
  const bool is_device = options.planned == PlannedTier::device;
  const double largest = log.different_blocks();
  const double smallest = is_device ? log.longest() : largest / span;
  std::vector<std::uint64_t> sizes;
  if (!is_device) sizes.push_back(0);
  for (unsigned step = 0; step < steps; ++step) {
    const auto size = static_cast<std::uint64_t>(
        std::llround(smallest * std::pow(largest / smallest, static_cast<double>(step) / (steps - 1))));
    if (size > 0 && (sizes.empty() || size > sizes.back())) sizes.push_back(size);
  }
  return sizes;
}

}  // namespace terrace::tools
