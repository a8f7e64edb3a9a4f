#pragma once

#include "runtime/cache/orders/flush_scheduler.hpp"
#include "terrace/clock.hpp"

#include <cstdint>

namespace terrace {

/// Follows blocks that a clear has removed from storage, until a flush that began after the removal has made it durable. While
/// transfers are paused, the store gets the order later than it was made.
///
/// Ownership: the scheduler must outlive it. Threads: the manager's.
class Erasure {
 public:
  explicit Erasure(FlushScheduler& flushes) : flushes_{flushes} {}

  /// The removal has been ordered. An erasure that is under way starts again.
  void begin() { state_ = State::removing; }
  /// `removed`: the store has got the orders of all removals, and was polled since.
  void on_time(TimePoint now, bool removed);

  /// The removal is not durable yet.
  [[nodiscard]] bool pending() const { return state_ != State::none; }
  /// A flush begins in the next on_time() in which `removed` is true.
  [[nodiscard]] bool is_due() const { return state_ == State::removing; }
  /// The time of the next try after a flush that has failed.
  [[nodiscard]] TimePoint next_deadline() const { return state_ == State::failed ? retry_at_ : never; }

 private:
  enum class State : std::uint8_t { none, removing, flushing, failed };

  FlushScheduler& flushes_;
  State state_ = State::none;
  std::uint64_t round_ = 0;
  TimePoint retry_at_ = never;
};

}  // namespace terrace
