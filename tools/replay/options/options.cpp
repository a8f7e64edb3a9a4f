#include "tools/replay/options/options.hpp"

#include "radix/tree/copy.hpp"
#include "tools/device_name.hpp"
#include "tools/replay/workload/workloads.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cmath>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

namespace terrace::tools {
namespace {

constexpr std::uint32_t default_device_blocks = 3000;
constexpr std::uint32_t default_host_blocks = 8000;
constexpr Bytes default_block_bytes = KiB * 64;
constexpr std::uint32_t default_trace_block_tokens = 512;
constexpr std::uint32_t default_workload_block_tokens = 64;
constexpr std::uint64_t default_workload_requests = 2000;
constexpr std::uint32_t default_concurrency = 16;
constexpr std::uint32_t concurrency_max = 65'536;
constexpr std::uint32_t speed_concurrency = 4096;  ///< only a safety limit; the trace's clock decides
constexpr std::uint32_t threads_max = 64;
constexpr std::uint64_t tokens_max = std::uint64_t{1} << 32;
constexpr std::uint64_t skip_max = std::uint64_t{1} << 48;
constexpr double checkpoint_seconds_max = 86'400;
constexpr Bytes block_bytes_max = MiB * 512;
constexpr Bytes file_block_unit = KiB * 4;
constexpr std::uint32_t storage_retries_max = 100;
constexpr std::uint32_t breaker_failures_max = 100'000;
constexpr double breaker_seconds_max = 86'400;

using Word = std::optional<std::string>;

std::uint64_t whole_number(std::string_view option, const std::string& text, std::uint64_t min, std::uint64_t max) {
  std::uint64_t number = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number);
  if (error == std::errc::invalid_argument || rest != end)
    throw UsageError{fmt::format("{}: \"{}\" is not a whole number", option, text)};
  if (error != std::errc{} || number < min || number > max) {
    throw UsageError{fmt::format("{}: {} is not from {} to {}", option, text, min, max)};
  }
  return number;
}

std::uint32_t small_number(std::string_view option, const Word& word, std::uint32_t fallback, std::uint32_t min,
                           std::uint32_t max) {
  return word ? static_cast<std::uint32_t>(whole_number(option, *word, min, max)) : fallback;
}

Bytes size(std::string_view option, const std::string& text) {
  const Result<Bytes> parsed = parse_bytes(text);
  if (!parsed) throw UsageError{fmt::format("{}: \"{}\" is not a size (a number and B, KiB, MiB, GiB or TiB)", option, text)};
  return *parsed;
}

Bytes positive_size(std::string_view option, const std::string& text) {
  const Bytes parsed = size(option, text);
  if (parsed == Bytes{}) throw UsageError{fmt::format("{}: must be more than 0", option)};
  return parsed;
}

/// Lets choice() treat plain words like enumerators.
std::string_view to_string(std::string_view word) { return word; }

template <class T, std::size_t n>
T choice(std::string_view option, const Word& word, T fallback, const std::array<T, n>& choices) {
  if (!word) return fallback;
  std::string names;
  for (const T each : choices) {
    if (to_string(each) == *word) return each;
    names += fmt::format("{}{}", names.empty() ? "" : ", ", to_string(each));
  }
  throw UsageError{fmt::format("{}: there is no \"{}\"; there is: {}", option, *word, names)};
}

struct PoolWords {
  std::string_view name;  ///< "device" or "host"
  const Word& blocks;
  const Word& capacity;
  std::uint32_t fallback;
  std::uint32_t min;
};

std::uint32_t pool_blocks(const PoolWords& pool, Bytes block_bytes) {
  constexpr std::uint32_t max = Copy::slots_max - 1;
  if (pool.blocks && pool.capacity) throw UsageError{fmt::format("give --{0}-blocks or --{0}-capacity, not both", pool.name)};
  if (!pool.capacity) return small_number(fmt::format("--{}-blocks", pool.name), pool.blocks, pool.fallback, pool.min, max);
  const std::string option = fmt::format("--{}-capacity", pool.name);
  const Bytes capacity = pool.min > 0 ? positive_size(option, *pool.capacity) : size(option, *pool.capacity);
  const std::uint64_t blocks = capacity / block_bytes;
  if (blocks == 0 && capacity != Bytes{}) {
    throw UsageError{fmt::format("{}: {} is less than one block of {}", option, to_string(capacity), to_string(block_bytes))};
  }
  if (blocks > max) throw UsageError{fmt::format("{}: {} are {} blocks, more than {}", option, to_string(capacity), blocks, max)};
  return static_cast<std::uint32_t>(blocks);
}

/// Returns the first given option that only file storage has.
std::optional<std::string_view> file_option(const ReplayArguments& arguments) {
  if (!arguments.storage_stripes.empty()) return "--storage-stripe";
  if (arguments.storage_accept_lost) return "--storage-accept-lost";
  const std::array<std::pair<std::string_view, const Word*>, 9> options{
      {{"--storage-bandwidth", &arguments.storage_bandwidth},
       {"--storage-name", &arguments.storage_name},
       {"--storage-stripe-size", &arguments.storage_stripe_size},
       {"--storage-floor", &arguments.storage_floor},
       {"--storage-io", &arguments.storage_io},
       {"--storage-retries", &arguments.storage_retries},
       {"--storage-breaker-failures", &arguments.storage_breaker_failures},
       {"--storage-breaker-window", &arguments.storage_breaker_window},
       {"--storage-breaker-probe", &arguments.storage_breaker_probe}}};
  for (const auto& [option, word] : options) {
    if (*word) return option;
  }
  return std::nullopt;
}

StorageOptions storage(const ReplayArguments& arguments, Bytes block_bytes) {
  const std::string word = arguments.storage.value_or("none");
  const Word& capacity_word = arguments.storage_capacity;
  const Word& bandwidth_word = arguments.storage_bandwidth;
  const auto of_files = file_option(arguments);
  if (word == "none") {
    if (capacity_word) throw UsageError{"--storage-capacity is given, but no --storage"};
    if (of_files) throw UsageError{fmt::format("{} is given, but no --storage", *of_files)};
    return NoStorage{};
  }
  const bool is_file = word.starts_with("file:");
  if (!is_file && word != "memory:")
    throw UsageError{fmt::format("--storage: there is no \"{}\"; there is: none, memory:, file:DIR", word)};
  const std::string directory = is_file ? word.substr(5) : "";
  if (is_file && directory.empty()) throw UsageError{"--storage file: needs a directory, as in file:/var/cache/terrace"};
  if (!capacity_word) throw UsageError{fmt::format("--storage {} needs --storage-capacity", word)};
  const Bytes capacity = positive_size("--storage-capacity", *capacity_word);
  if (capacity / block_bytes == 0) {
    throw UsageError{
        fmt::format("--storage-capacity: {} is less than one block of {}", to_string(capacity), to_string(block_bytes))};
  }
  if (!is_file && of_files) throw UsageError{fmt::format("{} is for --storage file:DIR", *of_files)};
  if (!is_file) return MemoryStorage{capacity};
  if (count(block_bytes) % count(file_block_unit) != 0) {
    throw UsageError{fmt::format("--block-bytes: with file storage a multiple of {}, not {}", to_string(file_block_unit),
                                 to_string(block_bytes))};
  }
  FileStorage file;
  file.directory = directory;
  file.capacity = capacity;
  if (arguments.storage_name) file.name = *arguments.storage_name;
  for (const std::string& stripe : arguments.storage_stripes) {
    if (stripe.empty()) throw UsageError{"--storage-stripe needs a directory, as in --storage-stripe /mnt/b/terrace"};
    file.more_directories.emplace_back(stripe);
  }
  if (arguments.storage_stripe_size) file.stripe_bytes = positive_size("--storage-stripe-size", *arguments.storage_stripe_size);
  file.accept_lost_directories = arguments.storage_accept_lost;
  if (file.more_directories.empty() && (arguments.storage_stripe_size || file.accept_lost_directories)) {
    throw UsageError{fmt::format("{} is for storage with --storage-stripe",
                                 arguments.storage_stripe_size ? "--storage-stripe-size" : "--storage-accept-lost")};
  }
  if (arguments.storage_floor) file.floor = size("--storage-floor", *arguments.storage_floor);
  if (bandwidth_word) file.bandwidth = positive_size("--storage-bandwidth", *bandwidth_word);
  if (arguments.storage_io) {
    const std::optional<IoChoice> io = parse_io_choice(*arguments.storage_io);
    if (!io)
      throw UsageError{fmt::format("--storage-io: there is no \"{}\"; there is: auto, uring, threads", *arguments.storage_io)};
    file.io = *io;
  }
  if (file.io == IoChoice::uring && bandwidth_word) throw UsageError{"--storage-bandwidth needs --storage-io threads, or auto"};
  return file;
}

/// Returns nothing if the text is no number, or no finite one.
std::optional<double> real_number(const std::string& text) {
  double number = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc{} || rest != end || !std::isfinite(number)) return std::nullopt;
  return number;
}

std::optional<double> positive_number(std::string_view option, const Word& word) {
  if (!word) return std::nullopt;
  const std::optional<double> number = real_number(*word);
  if (!number || *number <= 0) throw UsageError{fmt::format("{}: \"{}\" is not a number greater than 0", option, *word)};
  return number;
}

Duration seconds(std::string_view option, const Word& word, Duration fallback, double max) {
  const std::optional<double> number = positive_number(option, word);
  if (!number) return fallback;
  if (*number > max) throw UsageError{fmt::format("{}: {} is more than {} seconds", option, *word, max)};
  return std::max(Duration{1}, std::chrono::duration_cast<Duration>(std::chrono::duration<double>{*number}));
}

/// Sets the handling of failures of the storage device.
void choose_storage_guard(ReplayOptions& options, const ReplayArguments& arguments) {
  ResilienceOptions& guard = options.storage_guard;
  guard.read_retries = small_number("--storage-retries", arguments.storage_retries, guard.read_retries, 0, storage_retries_max);
  guard.write_retries = guard.read_retries;
  BreakerOptions& breaker = guard.breaker;
  breaker.failures_max = small_number("--storage-breaker-failures", arguments.storage_breaker_failures, breaker.failures_max, 1,
                                      breaker_failures_max);
  breaker.window = seconds("--storage-breaker-window", arguments.storage_breaker_window, breaker.window, breaker_seconds_max);
  breaker.probe_first =
      seconds("--storage-breaker-probe", arguments.storage_breaker_probe, breaker.probe_first, breaker_seconds_max);
  breaker.probe_max = std::max(breaker.probe_max, breaker.probe_first);
}

double share(std::string_view option, const Word& word, double fallback) {
  if (!word) return fallback;
  const std::optional<double> number = real_number(*word);
  if (!number || *number < 0 || *number > 1) {
    throw UsageError{fmt::format("{}: \"{}\" is not a number from 0 to 1", option, *word)};
  }
  return *number;
}

void check_reference(const ReplayArguments& arguments) {
  if (!arguments.reference) return;
  const std::array<std::pair<std::string_view, bool>, 8> contrary{
      {{"--concurrency", arguments.concurrency && *arguments.concurrency != "1"},
       {"--speed", arguments.speed.has_value()},
       {"--prefill-speed", arguments.prefill_speed.has_value()},
       {"--step-tokens", arguments.step_tokens.has_value()},
       {"--output-tokens-max", arguments.output_tokens_max.has_value()},
       {"--cache-output", arguments.cache_output.has_value()},
       {"--abort-rate", arguments.abort_rate.has_value()},
       {"--release", arguments.release.has_value()}}};
  for (const auto& [option, given] : contrary) {
    if (given) throw UsageError{fmt::format("--reference serves one request at a time: {} makes no sense with it", option)};
  }
  if (arguments.mode == "loop") throw UsageError{"--reference runs in --mode confined"};
  if (arguments.inject == "no-fence")
    throw UsageError{"--reference runs nothing in parallel: --inject no-fence makes no sense with it"};
  if (arguments.loads == "measured") throw UsageError{"--reference copies in no time: --loads measured makes no sense with it"};
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
  if (options.inject == Fault::no_fence && arguments.release == "done") {
    throw UsageError{fmt::format("{} needs --release launch", name)};
  }
}

void choose_source(ReplayOptions& options, const ReplayArguments& arguments) {
  if (arguments.trace && arguments.workload) throw UsageError{"give a trace or --workload, not both"};
  if (arguments.trace) {
    if (arguments.trace->empty()) throw UsageError{"the trace's name is empty"};
    options.trace = *arguments.trace;
  }
  options.workload = choice("--workload", arguments.workload, workload_names.front(), workload_names);
  if (arguments.seed) options.seed = whole_number("--seed", *arguments.seed, 0, std::numeric_limits<std::uint64_t>::max());
  options.requests_max = arguments.trace ? ReplayOptions::all_requests : default_workload_requests;
  if (arguments.skip) options.skip = whole_number("--skip", *arguments.skip, 0, skip_max);
  if (arguments.requests) options.requests_max = whole_number("--requests", *arguments.requests, 1, ReplayOptions::all_requests);
  const std::uint32_t block_tokens = arguments.trace ? default_trace_block_tokens : default_workload_block_tokens;
  options.block_tokens = small_number("--block-tokens", arguments.block_tokens, block_tokens, 1, 1 << 20);
}

void choose_devices(ReplayOptions& options, const ReplayArguments& arguments) {
  std::optional<std::uint32_t> ranks;
  if (arguments.ranks) ranks = small_number("--ranks", arguments.ranks, 1, 1, RankedTransfers::ranks_max);
  options.devices = parse_devices("--device", arguments.device.value_or("emulated"), ranks);
  if (options.ranks() > RankedTransfers::ranks_max) {
    throw UsageError{fmt::format("--device: {} devices are more than {}", options.ranks(), RankedTransfers::ranks_max)};
  }
}

/// Must be called after the block size is set.
void choose_payload(ReplayOptions& options, const ReplayArguments& arguments) {
  if (arguments.rank_payload && !arguments.ranks && options.ranks() == 1) {
    throw UsageError{"--rank-payload needs --ranks, or a --device for each"};
  }
  options.rank_payload = choice("--rank-payload", arguments.rank_payload, RankPayload::sharded,
                                std::array{RankPayload::sharded, RankPayload::replicated});
  constexpr std::uint64_t word = 8;
  if (options.ranks() == 1 || options.rank_payload == RankPayload::replicated) return;
  if (count(options.block_bytes) % (word * options.ranks()) == 0) return;
  throw UsageError{fmt::format("--block-bytes: {} cannot be divided among {} ranks: use a multiple of {} bytes",
                               to_string(options.block_bytes), options.ranks(), word * options.ranks())};
}

void choose_checkpoint(ReplayOptions& options, const ReplayArguments& arguments) {
  const std::optional<double> seconds = positive_number("--checkpoint", arguments.checkpoint);
  if (!seconds) return;
  if (!options.has_storage()) throw UsageError{"--checkpoint needs --storage"};
  if (*seconds > checkpoint_seconds_max) {
    throw UsageError{
        fmt::format("--checkpoint: {} s are more than a day ({:.0f} s)", *arguments.checkpoint, checkpoint_seconds_max)};
  }
  options.checkpoint.emplace(*seconds);
}

void choose_life(ReplayOptions& options, const ReplayArguments& arguments) {
  if (arguments.step_tokens) options.step_tokens = whole_number("--step-tokens", *arguments.step_tokens, 1, tokens_max);
  if (arguments.output_tokens_max) {
    options.output_tokens_max = whole_number("--output-tokens-max", *arguments.output_tokens_max, 0, tokens_max);
  }
  using namespace std::string_view_literals;
  options.cache_output = choice("--cache-output", arguments.cache_output, "on"sv, std::array{"on"sv, "off"sv}) == "on";
  options.abort_rate = share("--abort-rate", arguments.abort_rate, options.abort_rate);
}

void choose_pace(ReplayOptions& options, const ReplayArguments& arguments) {
  check_reference(arguments);
  if (arguments.concurrency && arguments.speed) throw UsageError{"give --concurrency or --speed, not both"};
  options.reference = arguments.reference;
  options.speed = positive_number("--speed", arguments.speed);
  const std::uint32_t fallback = options.reference ? 1 : options.speed ? speed_concurrency : default_concurrency;
  options.concurrency = small_number("--concurrency", arguments.concurrency, fallback, 1, concurrency_max);
  options.prefill_speed = positive_number("--prefill-speed", arguments.prefill_speed).value_or(0);
  // If the computation takes no time, loading is never faster. So hits are loaded unless the options say how long something
  // takes.
  const bool paced = !options.reference && (options.prefill_speed > 0 || arguments.storage_bandwidth);
  options.loads = choice("--loads", arguments.loads, paced ? Loads::measured : Loads::always,
                         std::array{Loads::measured, Loads::always, Loads::host, Loads::none});
  options.mode = choice("--mode", arguments.mode, Mode::confined, std::array{Mode::confined, Mode::loop});
  if (arguments.threads && options.mode != Mode::loop) throw UsageError{"--threads is for --mode loop"};
  options.threads = small_number("--threads", arguments.threads, 1, 1, threads_max);
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
  ReplayOptions options;
  choose_source(options, arguments);
  choose_devices(options, arguments);

  options.block_bytes = arguments.block_bytes ? positive_size("--block-bytes", *arguments.block_bytes) : default_block_bytes;
  if (options.block_bytes > block_bytes_max) {
    throw UsageError{
        fmt::format("--block-bytes: {} is more than {}", to_string(options.block_bytes), to_string(block_bytes_max))};
  }
  choose_payload(options, arguments);
  options.device_blocks =
      pool_blocks({"device", arguments.device_blocks, arguments.device_capacity, default_device_blocks, 1}, options.block_bytes);
  options.host_blocks =
      pool_blocks({"host", arguments.host_blocks, arguments.host_capacity, default_host_blocks, 0}, options.block_bytes);
  options.storage = storage(arguments, options.block_bytes);
  choose_storage_guard(options, arguments);
  options.inclusion = choice("--inclusion", arguments.inclusion == "keep" ? Word{"non-inclusive"} : arguments.inclusion,
                             InclusionPolicy::non_inclusive,
                             std::array{InclusionPolicy::non_inclusive, InclusionPolicy::exclusive, InclusionPolicy::inclusive});
  options.write_policy =
      choice("--write-policy", arguments.write_policy, options.has_storage() ? WritePolicy::write_through : WritePolicy::none,
             std::array{WritePolicy::none, WritePolicy::write_through, WritePolicy::selective, WritePolicy::write_back});
  const PolicyKind usual_policy = arguments.reference ? PolicyKind::lru : PolicyKind::adaptive;
  options.policy = choice("--policy", arguments.policy, usual_policy, all_policies);
  if (!options.has_storage() && options.write_policy != WritePolicy::none) {
    throw UsageError{fmt::format("--write-policy {} needs --storage", to_string(options.write_policy))};
  }

  choose_checkpoint(options, arguments);
  choose_pace(options, arguments);
  choose_life(options, arguments);
  options.verify = choice("--verify", arguments.verify, Verify::all, std::array{Verify::all, Verify::sample, Verify::none});
  options.inject = choice("--inject", arguments.inject, Fault::none, std::array{Fault::flip, Fault::late, Fault::no_fence});
  const Release usual = options.inject == Fault::no_fence ? Release::launch : Release::done;
  options.release = choice("--release", arguments.release, usual, std::array{Release::done, Release::launch});
  check_inject(options, arguments);
  if (arguments.report) {
    if (arguments.report->empty()) throw UsageError{"--report: the file's name is empty"};
    options.report = *arguments.report;
  }
  return options;
}

}  // namespace terrace::tools
