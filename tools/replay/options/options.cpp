#include "tools/replay/options/options.hpp"

#include "tools/config/flags.hpp"
#include "tools/device_name.hpp"
#include "tools/replay/workload/trace_reader.hpp"
#include "tools/replay/workload/workloads.hpp"
#include "transfer/cuda/cuda_device.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

namespace terrace::tools {
namespace {

constexpr std::uint32_t default_concurrency = 16;
constexpr std::uint32_t speed_concurrency = 4096;  ///< only a safety limit; the trace's clock decides

void check_reference(const ReplayOptions& options, const ReplayArguments& arguments) {
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
  for (std::uint32_t rank = 0; rank < options.ranks(); ++rank) {
    const std::optional<int> cuda = options.devices[rank];
    const std::optional<std::string> why = cuda ? CudaDevice::unavailable(*cuda) : std::nullopt;
    if (!why) continue;
    if (rank == 0 || !config.has("ranks")) throw UsageError{unusable_device(name, *cuda, *why)};
    const std::string first = device_name(options.devices.front());
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
  options.devices.clear();
  for (const RankOptions& rank : system.ranks) {
    const auto* const gpu = std::get_if<CudaGpu>(&rank.device);
    options.devices.push_back(gpu == nullptr ? std::nullopt : std::optional{gpu->ordinal});
  }
  check_devices(options, config);
  options.rank_payload = system.rank_payload;
  options.block_bytes = system.pools.front().block_bytes;
  options.layers = system.pools.front().layers;
  options.device_blocks = system.pools.front().device_blocks.value();
  options.host_blocks = system.pools.front().host_blocks.value();
  options.storage = system.storage;
  options.storage_guard = system.storage_guard.value_or(ResilienceOptions{});
  options.inclusion = system.inclusion;
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
  const auto* const file = std::get_if<FileStorage>(&options.storage);
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

}  // namespace

std::string_view to_string(Loads loads) {
  switch (loads) {
    case Loads::measured: return "measured";
    case Loads::always: return "always";
    case Loads::host: return "host";
    case Loads::none: return "none";
  }
  return "?";
}
std::string_view to_string(Mode mode) { return mode == Mode::confined ? "confined" : "loop"; }
std::string_view to_string(Verify verify) { return verify == Verify::all ? "all" : verify == Verify::sample ? "sample" : "none"; }
std::string_view to_string(Release release) { return release == Release::done ? "done" : "launch"; }

std::string_view to_string(Fault fault) {
  switch (fault) {
    case Fault::none: return "none";
    case Fault::flip: return "flip";
    case Fault::late: return "late";
    case Fault::no_fence: return "no-fence";
  }
  return "?";
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

std::uint32_t ReplayOptions::emulated_ranks() const {
  return static_cast<std::uint32_t>(std::ranges::count(devices, std::optional<int>{}));
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

}  // namespace terrace::tools
