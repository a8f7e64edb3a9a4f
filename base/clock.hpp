#pragma once

#include <chrono>

namespace terrace {

using TimePoint = std::chrono::steady_clock::time_point;
using Duration = std::chrono::steady_clock::duration;

/// "No deadline."
inline constexpr TimePoint never = TimePoint::max();

/// The seam for time: everything that has a deadline or a rate asks a Clock. Threads: now() from any.
class Clock {
 public:
  virtual ~Clock() = default;
  [[nodiscard]] virtual TimePoint now() const noexcept = 0;
};

class SteadyClock final : public Clock {
 public:
  [[nodiscard]] TimePoint now() const noexcept override { return std::chrono::steady_clock::now(); }
};

/// Time that moves only when told to. Threads: one.
class ManualClock final : public Clock {
 public:
  [[nodiscard]] TimePoint now() const noexcept override { return now_; }
  void advance(Duration by) noexcept { now_ += by; }

 private:
  TimePoint now_{std::chrono::hours{1}};
};

}  // namespace terrace
