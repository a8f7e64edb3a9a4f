#pragma once

#include <chrono>

namespace terrace {

using TimePoint = std::chrono::steady_clock::time_point;
using Duration = std::chrono::steady_clock::duration;

/// The deadline of something that has no deadline.
inline constexpr TimePoint never = TimePoint::max();

/// Reads the time. All code that has a deadline or a rate takes a Clock, so that tests can control the time. Threads: now() from
/// any.
class Clock {
 public:
  virtual ~Clock() = default;
  [[nodiscard]] virtual TimePoint now() const noexcept = 0;
};

class SteadyClock final : public Clock {
 public:
  [[nodiscard]] TimePoint now() const noexcept override { return std::chrono::steady_clock::now(); }
};

/// A clock whose time changes only by advance(), for tests and simulations. Threads: one.
class ManualClock final : public Clock {
 public:
  [[nodiscard]] TimePoint now() const noexcept override { return now_; }
  void advance(Duration by) noexcept { now_ += by; }

 private:
  TimePoint now_{std::chrono::hours{1}};
};

}  // namespace terrace
