#pragma once

#include "terrace/clock.hpp"

#include <chrono>
#include <cstdint>

namespace terrace {

/// Options of a CircuitBreaker.
struct BreakerOptions {
  std::uint32_t failures_max = 5;                         ///< this many failures in a row open the breaker; at least 1
  Duration window = std::chrono::seconds{10};             ///< only if they all happened within this time
  Duration probe_first = std::chrono::milliseconds{500};  ///< time from opening to the first probe; each failed probe doubles it
  Duration probe_max = std::chrono::seconds{30};
};

/// Options of a ResilientStore.
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

}  // namespace terrace
