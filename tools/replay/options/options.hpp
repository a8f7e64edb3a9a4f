#pragma once

#include "base/bytes.hpp"
#include "runtime/system/cache_system.hpp"
#include "runtime/types/config.hpp"
#include "tools/policies/policies.hpp"
#include "tools/replay/options/faults.hpp"
#include "tools/usage_error.hpp"

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <vector>

namespace terrace::tools {

/// The words of the command line, as they were given; nothing where an option was not.
struct ReplayArguments {
  std::optional<std::string> trace;
  std::optional<std::string> workload;
  std::optional<std::string> device;
  std::optional<std::string> ranks;
  std::optional<std::string> rank_payload;
  std::optional<std::string> device_blocks;
  std::optional<std::string> device_capacity;
  std::optional<std::string> host_blocks;
  std::optional<std::string> host_capacity;
  std::optional<std::string> storage;
  std::optional<std::string> storage_capacity;
  std::optional<std::string> storage_floor;
  std::optional<std::string> storage_name;
  std::vector<std::string> storage_stripes;
  std::optional<std::string> storage_stripe_size;
  bool storage_accept_lost = false;
  std::optional<std::string> storage_bandwidth;
  std::optional<std::string> storage_io;
  std::optional<std::string> storage_retries;
  std::optional<std::string> storage_breaker_failures;
  std::optional<std::string> storage_breaker_window;
  std::optional<std::string> storage_breaker_probe;
  std::optional<std::string> inclusion;
  std::optional<std::string> write_policy;
  std::optional<std::string> checkpoint;
  std::optional<std::string> policy;
  std::optional<std::string> block_tokens;
  std::optional<std::string> block_bytes;
  bool reference = false;
  std::optional<std::string> concurrency;
  std::optional<std::string> step_tokens;
  std::optional<std::string> output_tokens_max;
  std::optional<std::string> cache_output;
  std::optional<std::string> abort_rate;
  std::optional<std::string> speed;
  std::optional<std::string> prefill_speed;
  std::optional<std::string> loads;
  std::optional<std::string> mode;
  std::optional<std::string> threads;
  std::optional<std::string> skip;
  std::optional<std::string> requests;
  std::optional<std::string> verify;
  std::optional<std::string> seed;
  std::optional<std::string> report;
  std::optional<std::string> inject;
  std::optional<std::string> release;
};

/// Which hits below the device are taken.
enum class Loads : unsigned char {
  measured,  ///< as far as that is sooner than computing them
  always,
  host,  ///< none from storage
  none,
};
[[nodiscard]] std::string_view to_string(Loads loads);

enum class Mode : unsigned char {
  confined,  ///< one thread owns the cache and polls it, as an engine's scheduler does
  loop,      ///< an event loop, and a coroutine for each request
};
enum class Verify : unsigned char {
  all,     ///< every hit block
  sample,  ///< every sixteenth
  none,
};
enum class Release : unsigned char {
  done,    ///< when compute has reached the request's work
  launch,  ///< when the work is launched, with its fence, as an asynchronous scheduler does
};

[[nodiscard]] std::string_view to_string(Mode mode);
[[nodiscard]] std::string_view to_string(Verify verify);
[[nodiscard]] std::string_view to_string(Release release);

/// What a replay is to do: complete and consistent in itself.
struct ReplayOptions {
  static constexpr std::uint64_t all_requests = std::numeric_limits<std::uint64_t>::max();

  std::filesystem::path trace;  ///< empty: the workload
  std::string workload = "chat";
  std::uint64_t seed = 1;
  std::uint64_t skip = 0;                     ///< of the first requests
  std::uint64_t requests_max = all_requests;  ///< of those that follow
  std::uint32_t block_tokens = 0;

  /// By rank, at least one: which CUDA device; none: the emulated one.
  std::vector<std::optional<int>> devices{std::nullopt};
  RankPayload rank_payload = RankPayload::sharded;
  Bytes block_bytes{};
  std::uint32_t device_blocks = 0;
  std::uint32_t host_blocks = 0;
  StorageOptions storage;
  ResilienceOptions storage_guard;  ///< of file storage
  InclusionPolicy inclusion = InclusionPolicy::non_inclusive;
  WritePolicy write_policy = WritePolicy::none;
  /// At the end, also an early one: what is cached goes to storage within so much time. None: only what the policy stored is.
  std::optional<std::chrono::duration<double>> checkpoint;
  PolicyKind policy = PolicyKind::lru;  ///< as a reference run has it; read from a command line, adaptive in the others

  bool reference = false;
  std::uint32_t concurrency = 0;          ///< requests in flight at most
  std::uint64_t step_tokens = 8192;       ///< computed in a step at most; loop mode has no steps: of a request at a time
  std::uint64_t output_tokens_max = 128;  ///< of a request, whatever the trace says
  bool cache_output = true;
  double abort_rate = 0;        ///< share of the requests
  std::optional<double> speed;  ///< the trace's clock runs so many times faster; else as fast as it goes
  double prefill_speed = 0;     ///< tokens a second that compute takes at most; 0: as fast as it goes
  Loads loads = Loads::always;
  Mode mode = Mode::confined;
  std::uint32_t threads = 1;  ///< of the event loop
  Verify verify = Verify::all;
  Release release = Release::done;
  Fault inject = Fault::none;
  std::filesystem::path report;  ///< empty: none

  [[nodiscard]] std::uint32_t ranks() const { return static_cast<std::uint32_t>(devices.size()); }
  [[nodiscard]] std::uint32_t emulated_ranks() const;
  [[nodiscard]] bool has_storage() const { return !std::holds_alternative<NoStorage>(storage); }
};

/// Fills in what was not given, and refuses what cannot be. Touches nothing. Throws UsageError.
[[nodiscard]] ReplayOptions resolve(const ReplayArguments& arguments);

}  // namespace terrace::tools
