#include "tools/replay/options/options.hpp"

#include "radix/groups/groups.hpp"
#include "runtime/config/givens.hpp"
#include "runtime/config/table/table.hpp"
#include "tools/config/flags.hpp"
#include "tools/device_name.hpp"
#include "tools/replay/workload/trace_reader.hpp"
#include "tools/replay/workload/workloads.hpp"
#include "transfer/cuda/cuda_device.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <optional>
#include <stdexcept>
#include <string_view>

namespace terrace::tools {
namespace {

constexpr std::uint32_t default_concurrency = 16;
constexpr std::uint32_t speed_concurrency = 4096;  ///< only a safety limit; the trace's clock decides

void check_reference(const ReplayOptions& options, const ReplayArguments& arguments) {
  if (options.bound && !options.reference)
    throw UsageError{"--bound needs --reference: the bound is for requests that come one at a time"};
  if (options.bound && options.has_storage()) throw UsageError{"--bound is for device and host: it makes no sense with storage"};
  if (!options.reference) return;
  for (const std::string_view option :
       {"--concurrency", "--speed", "--prefill-speed", "--step-tokens", "--output-tokens-max", "--cache-output", "--abort-rate",
        "--release", "--device-reserve-max", "--device-low-watermark", "--device-high-watermark", "--host-low-watermark",
        "--host-high-watermark"}) {
    if (!arguments.has(option) || (option == "--concurrency" && options.concurrency == 1)) continue;
    throw UsageError{fmt::format("--reference serves one request at a time: {} makes no sense with it", option)};
  }
  if (options.mode == Mode::loop) throw UsageError{"--reference runs in --mode confined"};
  if (options.inject == Fault::no_fence)
    throw UsageError{"--reference runs nothing in parallel: --inject no-fence makes no sense with it"};
  if (options.loads == Loads::measured)
    throw UsageError{"--reference copies in no time: --loads measured makes no sense with it"};
}

void check_inject(const ReplayOptions& options, const ReplayArguments& arguments) {
  if (options.inject == Fault::none) return;
  const std::string name = fmt::format("--inject {}", to_string(options.inject));
  if (options.emulated_ranks() < options.ranks()) {
    throw UsageError{fmt::format("{} is for --device emulated: a real device has its own faults", name)};
  }
  if (options.verify != Verify::all) throw UsageError{fmt::format("{} needs --verify all", name)};
  if (options.host_blocks == 0 && !options.has_storage()) {
    throw UsageError{fmt::format("{} needs a host tier or storage: without one nothing is copied that could be hit", name)};
  }
  if (options.inject == Fault::no_fence && arguments.has("--release") && options.release == Release::done) {
    throw UsageError{fmt::format("{} needs --release launch", name)};
  }
}

void choose_source(ReplayOptions& options, const ReplayArguments& arguments) {
  const bool is_trace = !options.trace.empty();
  if (is_trace && arguments.has("--workload")) throw UsageError{"give a trace or --workload, not both"};
  if (!is_trace && !arguments.has("--requests")) options.requests_max = default_workload_requests;
  if (!arguments.has("--block-tokens")) {
    options.block_tokens = is_trace ? usual_block_tokens(options.trace) : default_workload_block_tokens;
  }
}

/// Refuses devices that this machine does not have.
void check_devices(const ReplayOptions& options, const Config& config) {
  const std::string name = config.spelling("rank.device");
  const std::vector<std::optional<int>> devices = options.devices();
  for (std::uint32_t rank = 0; rank < options.ranks(); ++rank) {
    const std::optional<int> cuda = devices[rank];
    const std::optional<std::string> why = cuda ? CudaDevice::unavailable(*cuda) : std::nullopt;
    if (!why) continue;
    if (rank == 0 || !config.has("ranks")) throw UsageError{unusable_device(name, *cuda, *why)};
    const std::string first = device_name(devices.front());
    throw UsageError{fmt::format("{} {} for {} ranks: {}; several may be on one GPU: {} {},{}", name, first, options.ranks(),
                                 *why, name, first, first)};
  }
}

/// Takes the options of the cache.
void choose_system(ReplayOptions& options, const Config& config) {
  options.system = options_of(config);
  if (auto* const file = std::get_if<FileStorage>(&options.system.storage); file != nullptr && file->label.empty()) {
    file->label = "terrace replay";
  }
  const CacheSystemOptions& system = options.system;
  if (system.engine_owns_slots) {
    throw UsageError{fmt::format("{}: a replay has no engine with slots of its own", config.spelling("engine-owns-slots"))};
  }
  options.system.idle_service = false;  // a replay is never idle
  check_devices(options, config);
  options.block_bytes = system.pools.front().block_bytes;
  options.layers = system.pools.front().layers;
  options.device_blocks = system.pools.front().device_blocks.value();
  options.host_blocks = system.pools.front().host_blocks.value();
  options.write_policy = system.write_policy.value();
  if (config.has("policy") || !options.reference) options.policy = {config.value("policy"), system.policy};
}

void choose_pace(ReplayOptions& options, const ReplayArguments& arguments) {
  check_reference(options, arguments);
  if (arguments.has("--concurrency") && options.speed) throw UsageError{"give --concurrency or --speed, not both"};
  if (!arguments.has("--concurrency")) {
    options.concurrency = options.reference ? 1 : options.speed ? speed_concurrency : default_concurrency;
  }
  // If the computation takes no time, loading is never faster. So hits are loaded unless the options say how long something
  // takes.
  const auto* const file = std::get_if<FileStorage>(&options.system.storage);
  const bool slow_disk = file != nullptr && file->bandwidth != BytesPerSecond{};
  const bool configured = arguments.config.has("loads");
  const bool measured = configured ? options.system.loads == LoadPolicy::measured : options.prefill_speed > 0 || slow_disk;
  if (measured && !options.reference && !arguments.has("--loads")) options.loads = Loads::measured;
  if (arguments.has("--threads") && options.mode != Mode::loop) throw UsageError{"--threads is for --mode loop"};
  if (!options.prefetch_ahead) return;
  if (!options.speed || options.mode == Mode::loop) throw UsageError{"--prefetch-ahead needs --speed, and --mode confined"};
  if (options.host_blocks == 0) throw UsageError{"--prefetch-ahead brings blocks to the host tier, and there is none"};
  if (options.loads == Loads::host || options.loads == Loads::none) {
    throw UsageError{
        fmt::format("--prefetch-ahead brings blocks from storage, which --loads {} forbids", to_string(options.loads))};
  }
}

// ---- groups

constexpr std::string_view form = "KIND:BLOCK_TOKENS[:SPAN][:optional], with KIND full, window, chunked or recurrent";

std::vector<std::string_view> split(std::string_view text, char at) {
  std::vector<std::string_view> parts;
  for (;;) {
    const std::size_t end = text.find(at);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

std::optional<std::uint32_t> to_tokens(std::string_view word) {
  constexpr std::uint32_t most = 1U << 24;
  std::uint32_t tokens = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), tokens);
  if (error != std::errc{} || end != word.data() + word.size() || tokens == 0 || tokens > most) return std::nullopt;
  return tokens;
}

std::optional<GroupKind> to_kind(std::string_view word) {
  if (word == "full") return GroupKind::full;
  if (word == "window") return GroupKind::sliding_window;
  if (word == "chunked") return GroupKind::chunked_local;
  if (word == "recurrent") return GroupKind::recurrent;
  return std::nullopt;
}

GroupConfig to_group(const std::string& option, std::string_view word) {
  const auto refuse = [&] { throw UsageError{fmt::format("{}: \"{}\" is not {}", option, word, form)}; };
  std::vector<std::string_view> parts = split(word, ':');
  GroupConfig group;
  if (parts.size() > 2 && parts.back() == "optional") {
    group.optional = true;
    parts.pop_back();
  }
  if (parts.size() < 2) refuse();
  const std::optional<GroupKind> kind = to_kind(parts[0]);
  const std::optional<std::uint32_t> tokens = to_tokens(parts[1]);
  if (!kind || !tokens) refuse();
  group.kind = *kind;
  group.block_tokens = *tokens;
  const bool spans = group.kind == GroupKind::sliding_window || group.kind == GroupKind::chunked_local;
  if (parts.size() != (spans ? 3U : 2U)) refuse();
  if (spans) {
    const std::optional<std::uint32_t> span = to_tokens(parts[2]);
    if (!span) refuse();
    group.span_tokens = *span;
  }
  return group;
}

bool may_have_gaps(const GroupConfig& group) { return group.kind != GroupKind::full || group.optional; }

/// The name of an option of a pool as its user wrote it; if it is not set, as one who has set the number of layers would write
/// it.
std::string name_of(const Config& config, std::string_view key, std::size_t pool) {
  const config::Option& option = config::option_named(fmt::format("pool.{}", key));
  ConfigOrigin own;
  ConfigOrigin layers;
  for (const ConfigValue& value : config.values()) {
    if (value.name == fmt::format("pool[{}].{}", pool, key)) own = value.origin;
    if (value.name == fmt::format("pool[{}].layers", pool)) layers = value.origin;
  }
  return own.level == ConfigLevel::by_default ? config::mention(option, layers.level) : config::spelled(option, own);
}

/// True if the groups, or the one group, are those of the configuration.
bool is_configured(const ReplayOptions& options) {
  return !options.system.groups.empty() && (options.groups.empty() || !options.pools.empty());
}

/// "--groups", or "[[group]] (terrace.toml:12)".
std::string name_of_groups(const ReplayOptions& options, const Config& config) {
  if (!is_configured(options)) return "--groups";
  for (const config::Option& option : config::options()) {
    if (option.scope() != config::Scope::group || !config.has(option.name())) continue;
    return fmt::format("[[group]] ({})", config.origin(option.name()).where);
  }
  return "[[group]]";
}

/// A key stands for --block-tokens tokens, and that must be the hash unit.
void check_unit(const ReplayOptions& options, const Config& config) {
  const bool configured = is_configured(options);
  const std::uint32_t unit =
      configured ? hash_unit(options.system.groups, options.system.hash_unit_tokens) : hash_unit(options.groups);
  if (unit != options.block_tokens && !configured) {
    throw UsageError{fmt::format("--groups: blocks of {} tokens and their multiples are possible (--block-tokens), and one group "
                                 "must have such blocks",
                                 options.block_tokens)};
  }
  if (unit != options.block_tokens) {
    throw UsageError{fmt::format("{}: the hash unit is {} tokens, so --block-tokens must be {}, not {}",
                                 name_of_groups(options, config), unit, unit, options.block_tokens)};
  }
  if (unit <= ReplayOptions::block_tokens_max) return;
  throw UsageError{fmt::format("{}: the greatest common divisor of all blocks is {} tokens: a replay can have at most {}",
                               name_of_groups(options, config), unit, ReplayOptions::block_tokens_max)};
}

void check_layers(const ReplayOptions& options, const Config& config) {
  if (options.layers == 1) return;
  const std::vector<PoolOptions> pools = pools_of(options);
  // Pools that are made for --groups are all like the first one of the configuration.
  const auto number = [&](std::size_t pool) { return options.pools.empty() ? 0 : pool; };
  for (std::size_t pool = 0; pool < pools.size(); ++pool) {
    const std::uint32_t layers = pools[pool].layers;
    if (layers == 1) continue;
    const std::string name = name_of(config, "layers", number(pool));
    if (options.reference) throw UsageError{fmt::format("--reference copies whole blocks: {} makes no sense with it", name)};
    if (options.mode == Mode::loop) throw UsageError{fmt::format("{} runs in --mode confined", name)};
    constexpr std::uint64_t word = 8;
    const std::uint64_t ranks = options.system.rank_payload == RankPayload::replicated ? 1 : options.ranks();
    const std::uint64_t unit = word * ranks * layers;
    if (count(pools[pool].block_bytes) % unit == 0) continue;
    throw UsageError{fmt::format("{}: {} cannot be divided into {} layers: use a multiple of {} bytes",
                                 name_of(config, "block-bytes", number(pool)), to_string(pools[pool].block_bytes), layers, unit)};
  }
}

/// Gives each group of --groups its pool.
void share_pools(std::vector<GroupConfig>& groups) {
  std::vector<std::uint32_t> sizes;
  for (GroupConfig& group : groups) {
    const auto at = std::ranges::find(sizes, group.block_tokens);
    group.pool = PoolId{static_cast<std::uint16_t>(at - sizes.begin())};
    if (at == sizes.end()) sizes.push_back(group.block_tokens);
  }
}

}  // namespace

std::string_view to_string(Loads loads) {
  constexpr std::array names{"measured", "always", "host", "none"};
  return names.at(static_cast<std::size_t>(loads));
}
std::string_view to_string(Mode mode) { return mode == Mode::confined ? "confined" : "loop"; }
std::string_view to_string(Verify verify) { return verify == Verify::all ? "all" : verify == Verify::sample ? "sample" : "none"; }
std::string_view to_string(Release release) { return release == Release::done ? "done" : "launch"; }

std::string_view to_string(Fault fault) {
  constexpr std::array names{"none", "flip", "late", "no-fence"};
  return names.at(static_cast<std::size_t>(fault));
}

EmulatedFaults emulated(Fault fault) {
  EmulatedFaults faults;
  switch (fault) {
    case Fault::none: break;
    case Fault::flip: faults.flip_every = 7; break;
    case Fault::late: faults.late_every = 5; break;
    case Fault::no_fence: faults.ignore_fences = true; break;
  }
  return faults;
}

std::string_view planted_unit(Fault fault) { return fault == Fault::flip ? "blocks" : "copies"; }

std::vector<std::optional<int>> ReplayOptions::devices() const {
  std::vector<std::optional<int>> all;
  for (const RankOptions& rank : system.ranks) {
    const auto* const gpu = std::get_if<CudaGpu>(&rank.device);
    all.push_back(gpu == nullptr ? std::nullopt : std::optional{gpu->ordinal});
  }
  return all;
}

std::uint32_t ReplayOptions::emulated_ranks() const {
  return static_cast<std::uint32_t>(std::ranges::count(devices(), std::optional<int>{}));
}

ReplayOptions resolve(const ReplayArguments& arguments) {
  ReplayOptions options = arguments.options;
  choose_source(options, arguments);
  choose_system(options, arguments.config);
  if (!options.has_storage() && options.checkpoint) throw UsageError{"--checkpoint needs --storage"};
  choose_pace(options, arguments);
  if (!arguments.has("--release") && options.inject == Fault::no_fence) options.release = Release::launch;
  check_inject(options, arguments);
  if (!arguments.groups.empty()) {
    options.groups = to_groups("--groups", arguments.groups);
  } else {
    take_groups(options, arguments.has("--block-tokens") || !options.trace.empty());
  }
  choose_groups(options, arguments.config);
  return options;
}

std::vector<GroupConfig> to_groups(const std::string& option, const std::string& word) {
  std::vector<GroupConfig> groups;
  for (const std::string_view part : split(word, ',')) groups.push_back(to_group(option, part));
  return groups;
}

std::vector<GroupConfig> groups_of(const ReplayOptions& options) {
  if (!options.groups.empty()) return options.groups;
  return {GroupConfig{.block_tokens = options.block_tokens}};
}

std::size_t counted_group(std::span<const GroupConfig> groups) {
  const auto counts = [](const GroupConfig& group) { return group.kind == GroupKind::full && !group.optional; };
  return static_cast<std::size_t>(std::ranges::find_if(groups, counts) - groups.begin());
}

void take_groups(ReplayOptions& options, bool has_block_tokens) {
  const CacheSystemOptions& system = options.system;
  if (system.groups.empty()) return;
  const std::uint32_t unit = hash_unit(system.groups, system.hash_unit_tokens);
  if (!has_block_tokens) options.block_tokens = unit;
  if (system.groups.size() == 1 && counted_group(system.groups) == 0 && unit == system.groups.front().block_tokens) return;
  options.groups = system.groups;
  options.pools = system.pools;
  for (const PoolOptions& pool : options.pools) options.layers = std::max(options.layers, pool.layers);
}

void choose_groups(ReplayOptions& options, const Config& config) {
  const bool configured = is_configured(options);
  const std::vector<GroupConfig>& groups = configured ? options.system.groups : options.groups;
  if (!configured) share_pools(options.groups);
  if (!groups.empty()) check_unit(options, config);
  check_layers(options, config);
  if (options.groups.empty()) return;
  const std::string name = name_of_groups(options, config);
  if (options.reference) throw UsageError{fmt::format("--reference is for one group: {} makes no sense with it", name)};
  if (options.mode == Mode::loop) throw UsageError{fmt::format("{} runs in --mode confined", name)};
  const auto refuse = [&](const std::string& what) { throw UsageError{fmt::format("{}: {}", name, what)}; };
  std::vector<GroupRule> rules;
  std::uint32_t alignment = 1;
  try {
    for (const GroupConfig& group : groups) rules.emplace_back(group, options.block_tokens);
    alignment = hit_alignment(rules);
  } catch (const std::invalid_argument& error) {
    refuse(error.what());
  }
  if (counted_group(groups) == groups.size()) refuse("one group must be full, and not optional");
  for (const GroupRule& rule : rules) {
    if (!rule.cached()) refuse("a replay has no encoder, so it cannot have a group with cross attention");
    if (rule.config().optional && alignment % rule.units_per_block() != 0) {
      refuse(
          fmt::format("blocks of {} tokens in an optional group: a hit may end within them, because no required group has such "
                      "blocks",
                      rule.config().block_tokens));
    }
  }
}

std::vector<PoolOptions> pools_of(const ReplayOptions& options) {
  if (!options.pools.empty()) return options.pools;
  PoolOptions usual = options.system.pools.front();
  usual.block_bytes = options.block_bytes;
  usual.layers = options.layers;
  if (options.groups.empty()) {
    usual.device_blocks = Blocks{options.device_blocks};
    usual.host_blocks = Blocks{options.host_blocks};
    return {usual};
  }
  usual.device_blocks = 0;
  usual.device_blocks_max = 0;
  usual.host_blocks = 0;
  usual.null_block = false;
  std::vector<PoolOptions> pools;
  for (const GroupConfig& group : options.groups) {
    if (group.pool.value() == pools.size()) pools.push_back(usual);
    PoolOptions& pool = pools[group.pool.value()];
    const std::uint32_t units = group.block_tokens / options.block_tokens;
    const auto blocks_for = [&](std::uint32_t unit_count) {
      return Blocks{unit_count / units + (unit_count % units == 0 ? 0 : 1)};
    };
    pool.block_bytes = options.block_bytes * units;
    if (may_have_gaps(group) && !pool.null_block) {
      pool.null_block = true;
      pool.device_blocks += 1;
    }
    pool.device_blocks += blocks_for(options.device_blocks);
    pool.host_blocks += blocks_for(options.host_blocks);
  }
  return pools;
}

std::uint32_t device_units(const ReplayOptions& options) {
  const std::vector<GroupConfig> groups = groups_of(options);
  const std::vector<PoolOptions> pools = pools_of(options);
  std::uint64_t units = std::numeric_limits<std::uint32_t>::max();
  for (std::size_t pool = 0; pool < pools.size(); ++pool) {
    std::uint32_t sharing = 0;
    std::uint32_t units_per_block = std::numeric_limits<std::uint32_t>::max();
    for (const GroupConfig& group : groups) {
      if (group.pool.value() != pool || group.kind == GroupKind::recurrent) continue;
      ++sharing;
      units_per_block = std::min(units_per_block, group.block_tokens / options.block_tokens);
    }
    if (sharing == 0) continue;
    const std::uint32_t blocks = pools[pool].device_blocks.value() - (pools[pool].null_block ? 1 : 0);
    units = std::min(units, std::uint64_t{blocks / sharing} * units_per_block);
  }
  return static_cast<std::uint32_t>(units);
}

}  // namespace terrace::tools
