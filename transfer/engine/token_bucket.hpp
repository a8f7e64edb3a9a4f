#pragma once

#include "terrace/clock.hpp"
#include "terrace/types.hpp"
#include "transfer/device/transfer.hpp"

#include <algorithm>

namespace terrace {

/// A rate limit: up to `depth` bytes may go at once, and further bytes at `per_second`. The caller passes the time.
///
/// The bucket stores the time at which it is full again, so there is nothing to refill. Example: a bucket of depth 4 with a rate
/// of 1 per second, from which 3 are taken at t=10, is full at t=13. Two more may go when at least 2 are in it, at t = 13 - (4 -
/// 2) = 11. Threads: one.
class TokenBucket {
 public:
  /// A `per_second` of 0 means no limit.
  TokenBucket(BytesPerSecond per_second, Bytes depth) : per_second_{per_second}, depth_{depth} {}

  /// Changes the rate. Bytes that were taken before count at the former rate.
  void set_rate(BytesPerSecond per_second) {
    if (!limited()) full_at_ = {};
    per_second_ = per_second;
  }

  [[nodiscard]] bool limited() const { return count(per_second_) > 0; }
  /// Returns the time from which on `cost` bytes may go; `cost` is at most the depth. TimePoint{} if there is no limit.
  [[nodiscard]] TimePoint allowed_at(Bytes cost) const {
    if (!limited()) return TimePoint{};
    return full_at_ - (time_for(depth_, per_second_) - time_for(cost, per_second_));
  }
  void take(Bytes cost, TimePoint now) {
    if (limited()) full_at_ = std::max(full_at_, now) + time_for(cost, per_second_);
  }

 private:
  BytesPerSecond per_second_;
  Bytes depth_;
  TimePoint full_at_{};
};

}  // namespace terrace
