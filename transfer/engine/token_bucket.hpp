#pragma once

#include "base/bytes.hpp"
#include "base/clock.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>

namespace terrace {

/// A rate limit that lets `depth` bytes go at once and the rest at `per_second`. Time enters as an argument.
///
/// Kept as the moment the bucket is full again, so that there is nothing to refill: a bucket of depth 4 at 1 a second from
/// which 3 are taken at t=10 is full at t=13; 2 more may go when at least 2 are in it, at 13 - (4 - 2) = t=11. Threads: one.
class TokenBucket {
 public:
  /// `per_second` 0: no limit.
  TokenBucket(Bytes per_second, Bytes depth) : per_second_{per_second}, depth_{depth} {}

  /// What was taken at the former rate counts as it did then.
  void set_rate(Bytes per_second) {
    if (!limited()) full_at_ = {};
    per_second_ = per_second;
  }

  [[nodiscard]] bool limited() const { return count(per_second_) > 0; }
  /// From when on `cost` bytes, at most the depth, may go. Long past where there is no limit.
  [[nodiscard]] TimePoint allowed_at(Bytes cost) const {
    if (!limited()) return TimePoint::min();
    return full_at_ - (time_for(depth_) - time_for(cost));
  }
  void take(Bytes cost, TimePoint now) {
    if (limited()) full_at_ = std::max(full_at_, now) + time_for(cost);
  }

 private:
  [[nodiscard]] Duration time_for(Bytes bytes) const {
    const double nanoseconds = 1e9 * static_cast<double>(count(bytes)) / static_cast<double>(count(per_second_));
    return std::chrono::nanoseconds{static_cast<std::chrono::nanoseconds::rep>(std::ceil(nanoseconds))};
  }

  Bytes per_second_;
  Bytes depth_;
  TimePoint full_at_{};
};

}  // namespace terrace
