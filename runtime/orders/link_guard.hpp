#pragma once

#include "storage/resilience/circuit_breaker.hpp"
#include "terrace/clock.hpp"
#include "terrace/statistics.hpp"
#include "transfer/device/transfer.hpp"

#include <chrono>
#include <optional>

namespace terrace {

/// Decides whether copies between device and host may be begun, and counts them. After copies that failed in a row it says no,
/// except now and then, so that one of the next transfers tries whether the link works again. There is one for all pools and
/// ranks: a block is on the device, or on the host, only if every rank has copied its part.
///
/// It is a state machine without I/O. Threads: the manager's. Allocates nothing, except in health().
class LinkGuard {
 public:
  LinkGuard() : breaker_{{.failures_max = 5, .window = std::chrono::minutes{10}}} {}

  /// The time never goes back.
  void on_time(TimePoint now) { now_ = now; }
  [[nodiscard]] bool allows() const {
    return breaker_.state() == BreakerState::closed || (!probe_ && now_ >= breaker_.next_probe());
  }
  /// A transfer is on its way to the device.
  void on_ordered(const Transfer& transfer, ManagerStats& stats);
  /// A transfer has ended. (Later, unconfirmed blocks are confirmed; that says nothing more.)
  void on_ended(const TransferEvent& event, ManagerStats& stats);
  [[nodiscard]] LinkHealth health() const;

 private:
  CircuitBreaker breaker_;
  TimePoint now_{};
  std::optional<TransferId> probe_;  ///< the transfer that tries whether the link works again
};

}  // namespace terrace
