#pragma once

#include "storage/resilience/circuit_breaker.hpp"
#include "terrace/clock.hpp"
#include "terrace/statistics.hpp"
#include "transfer/device/transfer.hpp"

#include <chrono>
#include <cstdint>
#include <optional>

namespace terrace {

/// Decides whether copies between device and host may be begun, and counts them. After copies that failed in a row it says no,
/// except now and then, so that one of the next transfers tries whether the link works again. While a copy is under way that does
/// not end, the link is *silent*: it says no until that copy ends. There is one guard for all pools and ranks: a block is on the
/// device, or on the host, only if every rank has copied its part.
///
/// It does not note when each copy began. While copies are under way, its owner asks the transfers how old the oldest is when
/// wants_look() says so: once in silent_after, and every second while the link is silent.
///
/// It is a state machine without I/O. Threads: the manager's. Allocates nothing, except in health().
class LinkGuard {
 public:
  /// A copy that is under way for so long counts as one that does not end. The device also waits for compute meanwhile, so it is
  /// longer than the steps of engines.
  static constexpr Duration silent_after = std::chrono::seconds{30};

  LinkGuard() : breaker_{{.failures_max = 5, .window = std::chrono::minutes{10}}} {}

  /// The time never goes back.
  void on_time(TimePoint now) { now_ = now; }
  [[nodiscard]] bool allows() const { return in_use_ || (!silent_since_ && !probe_ && now_ >= breaker_.next_probe()); }
  /// When allows() becomes true by itself; `never` if it is, or waits for a copy.
  [[nodiscard]] TimePoint next_try() const {
    return in_use_ || silent_since_ || probe_ || allows() ? never : breaker_.next_probe();
  }
  /// It is time for on_look().
  [[nodiscard]] bool wants_look() const { return now_ >= look_at_; }
  /// When wants_look() will be true; `never` if no copy is under way.
  [[nodiscard]] TimePoint next_deadline() const { return look_at_; }
  /// `oldest`: TransferPort::oldest_copy().
  void on_look(TimePoint oldest);
  /// A transfer is on its way to the device.
  void on_ordered(const Transfer& transfer, ManagerStats& stats);
  /// A transfer has ended, or its unconfirmed blocks are confirmed.
  void on_ended(const TransferEvent& event, ManagerStats& stats);
  [[nodiscard]] LinkHealth health() const;

 private:
  static constexpr Duration look_again_after = std::chrono::seconds{1};
  void ended_one();
  void note_use();

  CircuitBreaker breaker_;
  TimePoint now_{};
  bool in_use_ = true;
  std::uint64_t under_way_ = 0;            ///< transfers whose copies have not all ended
  TimePoint look_at_ = never;              ///< the next on_look()
  std::optional<TimePoint> silent_since_;  ///< when the copy began that does not end
  std::uint64_t stopped_ = 0;              ///< LinkHealth::stopped
  std::uint64_t silent_ = 0;               ///< LinkHealth::silent
  std::optional<TransferId> probe_;        ///< the transfer that tries whether the link works again
};

}  // namespace terrace
