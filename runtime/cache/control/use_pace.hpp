#pragma once

#include "terrace/clock.hpp"
#include "terrace/policies.hpp"
#include "terrace/request.hpp"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>

namespace terrace {

/// How many uses there are in a second, lately. Policies count time in uses; callers tell times. It reads no clock: its owner
/// gives it the time. Threads: one.
class UsePace {
 public:
  /// `stamp` is that of the latest use. Neither argument may be less than in the call before. TimePoint{}: the time is not known.
  void note(TimePoint now, std::uint64_t stamp) {
    if (now == TimePoint{}) return;
    if (!from_) from_ = {now, stamp};
    const std::uint64_t uses = stamp - from_->stamp;
    if (uses < measured) return;
    const double each = std::chrono::duration<double>(now - from_->at).count() / static_cast<double>(uses);
    seconds_ = seconds_ == 0 ? each : seconds_ + weight * (each - seconds_);
    from_ = {now, stamp};
  }
  /// The use that is expected after this time, told at the use `now`. It is late after two and a half times that time. Nothing
  /// while the pace is not known.
  [[nodiscard]] std::optional<ExpectedUse> expected(std::uint64_t now, Duration in) const {
    if (in == no_use) return ExpectedUse{};
    if (seconds_ <= 0) return std::nullopt;
    const double uses = std::clamp(std::chrono::duration<double>(in).count() / seconds_, 0.0, uses_max);
    const auto ahead = static_cast<std::uint64_t>(uses) + 1;
    return ExpectedUse{now + ahead, now + ahead * 5 / 2};
  }

  /// The time in which so many uses come; nothing while the pace is not known.
  [[nodiscard]] std::optional<Duration> time_of(double uses) const {
    if (seconds_ <= 0) return std::nullopt;
    return std::chrono::duration_cast<Duration>(std::chrono::duration<double>{std::min(uses * seconds_, 1e9)});
  }

 private:
  static constexpr std::uint64_t measured = 16;  ///< uses that are measured together
  static constexpr double weight = 0.25;         ///< of the latest measurement
  static constexpr double uses_max = 1e12;       ///< far more than a policy distinguishes

  struct Measured {
    TimePoint at;
    std::uint64_t stamp = 0;
  };
  double seconds_ = 0;  ///< between two uses; 0: not known
  std::optional<Measured> from_;
};

}  // namespace terrace
