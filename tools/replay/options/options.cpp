#include "tools/replay/options/options.hpp"

#include "tools/device_name.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

namespace terrace::tools {
namespace {

constexpr std::uint32_t default_trace_block_tokens = 512;
constexpr std::uint32_t default_workload_block_tokens = 64;
constexpr std::uint64_t default_workload_requests = 2000;
constexpr std::uint32_t default_concurrency = 16;
constexpr std::uint32_t speed_concurrency = 4096;  ///< only a safety limit; the trace's clock decides
constexpr Bytes file_block_unit = KiB * 4;

void check_reference(const ReplayOptions& options, const ReplayArguments& arguments) {
  if (!options.reference) return;
  for (const std::string_view option : {"--concurrency", "--speed", "--prefill-speed", "--step-tokens", "--output-tokens-max",
                                        "--cache-output", "--abort-rate", "--release"}) {
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
    options.block_tokens = is_trace ? default_trace_block_tokens : default_workload_block_tokens;
  }
}

void choose_devices(ReplayOptions& options, const ReplayArguments& arguments) {
  options.devices = parse_devices("--device", arguments.device, arguments.ranks);
  if (options.ranks() > RankedTransfers::ranks_max) {
    throw UsageError{fmt::format("--device: {} devices are more than {}", options.ranks(), RankedTransfers::ranks_max)};
  }
}

/// Must be called after choose_devices().
void check_payload(const ReplayOptions& options, const ReplayArguments& arguments) {
  if (arguments.has("--rank-payload") && !arguments.ranks && options.ranks() == 1) {
    throw UsageError{"--rank-payload needs --ranks, or a --device for each"};
  }
  constexpr std::uint64_t word = 8;
  if (options.ranks() == 1 || options.rank_payload == RankPayload::replicated) return;
  if (count(options.block_bytes) % (word * options.ranks()) == 0) return;
  throw UsageError{fmt::format("--block-bytes: {} cannot be divided among {} ranks: use a multiple of {} bytes",
                               to_string(options.block_bytes), options.ranks(), word * options.ranks())};
}

/// Replaces the number of blocks of the pool `name`, "device" or "host", if its capacity is given instead.
void choose_blocks(std::uint32_t& blocks, std::string_view name, std::optional<Bytes> capacity, Bytes block_bytes,
                   const ReplayArguments& arguments) {
  if (!capacity) return;
  if (arguments.has(fmt::format("--{}-blocks", name))) {
    throw UsageError{fmt::format("give --{0}-blocks or --{0}-capacity, not both", name)};
  }
  const std::uint64_t fitting = *capacity / block_bytes;
  if (fitting == 0 && *capacity != Bytes{}) {
    throw UsageError{
        fmt::format("--{}-capacity: {} is less than one block of {}", name, to_string(*capacity), to_string(block_bytes))};
  }
  if (fitting > ReplayOptions::pool_blocks_max) {
    throw UsageError{fmt::format("--{}-capacity: {} are {} blocks, more than {}", name, to_string(*capacity), fitting,
                                 ReplayOptions::pool_blocks_max)};
  }
  blocks = static_cast<std::uint32_t>(fitting);
}

void choose_storage(ReplayOptions& options, const ReplayArguments& arguments) {
  const std::optional<Bytes> capacity = arguments.storage_capacity;
  std::string_view of_files = arguments.file.accept_lost_directories ? "--storage-accept-lost" : "";
  for (const std::string& option : arguments.given) {
    if (option.starts_with("--storage-") && option != "--storage-capacity") of_files = option;
  }
  if (!options.has_storage()) {
    if (capacity) throw UsageError{"--storage-capacity is given, but no --storage"};
    if (!of_files.empty()) throw UsageError{fmt::format("{} is given, but no --storage", of_files)};
    return;
  }
  const auto* const in_files = std::get_if<FileStorage>(&options.storage);
  const bool is_file = in_files != nullptr;
  if (!capacity) throw UsageError{fmt::format("--storage {} needs --storage-capacity", is_file ? "file:DIR" : "memory:")};
  if (*capacity / options.block_bytes == 0) {
    throw UsageError{
        fmt::format("--storage-capacity: {} is less than one block of {}", to_string(*capacity), to_string(options.block_bytes))};
  }
  if (!is_file) {
    if (!of_files.empty()) throw UsageError{fmt::format("{} is for --storage file:DIR", of_files)};
    options.storage = MemoryStorage{*capacity};
    return;
  }
  if (count(options.block_bytes) % count(file_block_unit) != 0) {
    throw UsageError{fmt::format("--block-bytes: with file storage a multiple of {}, not {}", to_string(file_block_unit),
                                 to_string(options.block_bytes))};
  }
  FileStorage file = arguments.file;
  file.directories.insert(file.directories.begin(), in_files->directories.front());
  file.capacity = *capacity;
  const bool sized = arguments.has("--storage-stripe-size");
  if (file.directories.size() == 1 && (sized || file.accept_lost_directories)) {
    throw UsageError{
        fmt::format("{} is for storage with --storage-stripe", sized ? "--storage-stripe-size" : "--storage-accept-lost")};
  }
  if (file.io == IoChoice::uring && file.bandwidth != Bytes{}) {
    throw UsageError{"--storage-bandwidth needs --storage-io threads, or auto"};
  }
  options.storage = std::move(file);
}

void choose_pace(ReplayOptions& options, const ReplayArguments& arguments) {
  check_reference(options, arguments);
  if (arguments.has("--concurrency") && options.speed) throw UsageError{"give --concurrency or --speed, not both"};
  if (!arguments.has("--concurrency")) {
    options.concurrency = options.reference ? 1 : options.speed ? speed_concurrency : default_concurrency;
  }
  // If the computation takes no time, loading is never faster. So hits are loaded unless the options say how long something
  // takes.
  const bool paced = !options.reference && (options.prefill_speed > 0 || arguments.has("--storage-bandwidth"));
  if (paced && !arguments.has("--loads")) options.loads = Loads::measured;
  if (arguments.has("--threads") && options.mode != Mode::loop) throw UsageError{"--threads is for --mode loop"};
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

std::uint32_t ReplayOptions::emulated_ranks() const {
  return static_cast<std::uint32_t>(std::ranges::count(devices, std::optional<int>{}));
}

ReplayOptions resolve(const ReplayArguments& arguments) {
  ReplayOptions options = arguments.options;
  choose_source(options, arguments);
  choose_devices(options, arguments);
  check_payload(options, arguments);
  choose_blocks(options.device_blocks, "device", arguments.device_capacity, options.block_bytes, arguments);
  choose_blocks(options.host_blocks, "host", arguments.host_capacity, options.block_bytes, arguments);
  choose_storage(options, arguments);
  ResilienceOptions& guard = options.storage_guard;
  guard.write_retries = guard.read_retries;
  guard.breaker.probe_max = std::max(guard.breaker.probe_max, guard.breaker.probe_first);
  if (!arguments.has("--write-policy") && options.has_storage()) options.write_policy = WritePolicy::write_through;
  if (!arguments.has("--policy") && !options.reference) options.policy = PolicyKind::adaptive;
  if (!options.has_storage() && options.write_policy != WritePolicy::none) {
    throw UsageError{fmt::format("--write-policy {} needs --storage", to_string(options.write_policy))};
  }
  if (!options.has_storage() && options.checkpoint) throw UsageError{"--checkpoint needs --storage"};
  choose_pace(options, arguments);
  if (!arguments.has("--release") && options.inject == Fault::no_fence) options.release = Release::launch;
  check_inject(options, arguments);
  return options;
}

}  // namespace terrace::tools
