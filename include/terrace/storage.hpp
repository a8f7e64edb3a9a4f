#pragma once

#include "terrace/clock.hpp"
#include "terrace/export.hpp"
#include "terrace/result.hpp"

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace terrace {

/// The vocabulary of storage: how file I/O is done, how failures are treated, and how well storage works. Plain data. Threads:
/// the functions from any.

/// Selects the engine that does file I/O.
enum class IoChoice : unsigned char {
  automatic,  ///< io_uring if it is available, else threads
  uring,
  threads,
};
[[nodiscard]] TERRACE_API std::string_view to_string(IoChoice choice);

/// The name of the store's own directory if the configuration does not give one.
inline constexpr const char* default_store_name = "store";

/// Classifies errors by what a caller can do about them.
enum class ErrorClass : unsigned char {
  none,       ///< no error
  missing,    ///< the data is not there: a miss
  corrupt,    ///< the data is there, and its checksum does not match; a retry gives the same result
  transient,  ///< a failure of the device or of the way to it; the same call may succeed later
  refused,    ///< the call was not accepted, now or in this form; it says nothing about the device
  full,       ///< no space until something is removed
};
inline constexpr std::size_t error_class_count = 6;

struct BreakerOptions {
  std::uint32_t failures_max = 5;                         ///< this many failures in a row open the breaker; at least 1
  Duration window = std::chrono::seconds{10};             ///< only if they all happened within this time
  Duration probe_first = std::chrono::milliseconds{500};  ///< time from opening to the first probe; each failed probe doubles it
  Duration probe_max = std::chrono::seconds{30};
};

/// The state of a circuit breaker: `closed` lets all operations through, `open` none, and `half_open` one probe.
enum class BreakerState : unsigned char { closed, open, half_open };
[[nodiscard]] TERRACE_API const char* to_string(BreakerState state) noexcept;

/// How a ResilientStore treats the failures of a device: it retries, and after failures in a row it stops using the device and
/// probes it now and then.
struct ResilienceOptions {
  /// How often an operation is retried after a transient error. More than one retry seldom helps: a FileStore gives a block up at
  /// the second failed read in a row, and stops using a slot after each failed write.
  std::uint32_t read_retries = 1;
  std::uint32_t write_retries = 1;
  /// The time from a failure to the next try of the same key. Each failure of that key doubles it.
  Duration back_off_first = std::chrono::milliseconds{20};
  Duration back_off_max = std::chrono::seconds{2};
  /// How many operations may wait for a retry. If more fail, they are not retried.
  std::uint32_t waiting_max = 64;
  BreakerOptions breaker;
};

enum class StoreState : unsigned char {
  well,  ///< in use
  /// not used after failures, and being probed; or a part of it is lost, or a restart would not find its files (for these two see
  /// CacheSystem::storage_health)
  degraded,
  down,  ///< as `degraded`, and at least two probes in a row have failed
};
[[nodiscard]] TERRACE_API const char* to_string(StoreState state) noexcept;

/// How well storage works.
struct StoreHealth {
  StoreState state = StoreState::well;
  std::string reason;  ///< one sentence for people
  /// state of the breaker that is in the worse state, of reads or of writes
  BreakerState breaker = BreakerState::closed;
  TimePoint next_probe = never;  ///< the earlier of the two; `never` if both breakers are closed
  /// how often either breaker opened since construction; the counts down to `failed` are since construction too
  std::uint64_t opened = 0;
  std::uint64_t retried = 0;    ///< operations given to the store again after a failure
  std::uint64_t recovered = 0;  ///< operations that succeeded after a failure
  std::uint64_t declined = 0;   ///< reads and writes not given to the store because their breaker was open
  std::uint64_t held_back = 0;  ///< the same because their key was within its back-off
  std::array<std::uint64_t, error_class_count> failed{};  ///< by ErrorClass: tries of reads and writes that failed
  std::uint32_t waiting = 0;                              ///< operations that wait for a retry now
  /// filled in for striped stores by CacheSystem; ResilientStore leaves it empty
  std::vector<std::filesystem::path> lost_directories{};
};

}  // namespace terrace
