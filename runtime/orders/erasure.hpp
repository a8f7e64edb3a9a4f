#pragma once

#include "runtime/orders/flush_scheduler.hpp"
#include "terrace/clock.hpp"

#include <cstdint>

namespace terrace {

/// Follows blocks that a clear has removed from storage, until a flush has made the removal durable. A store promises that for
/// the removals that it has reported before the flush begins, so the flush waits for the reports.
///
/// Ownership: the scheduler must outlive it. Threads: the manager's.
class Erasure {
 public:
  explicit Erasure(FlushScheduler& flushes) : flushes_{flushes} {}

  /// The removal has been ordered. An erasure that is under way begins anew.
  void begin() { state_ = State::removing; }
  /// Call it after each poll of the store. `reported`: the store has reported everything that was ordered before the poll.
  void on_polled(TimePoint now, bool reported);

  /// The removal is not durable yet.
  [[nodiscard]] bool pending() const { return state_ != State::none; }
  /// on_polled() has something to do in the next poll, if `reported` is true then.
  [[nodiscard]] bool is_due() const { return state_ == State::removing; }
  /// When to try again after a flush that has failed.
  [[nodiscard]] TimePoint next_deadline() const { return state_ == State::failed ? retry_at_ : never; }

 private:
  enum class State : std::uint8_t { none, removing, flushing, failed };

  FlushScheduler& flushes_;
  State state_ = State::none;
  std::uint64_t round_ = 0;
  TimePoint retry_at_ = never;
};

}  // namespace terrace
