#pragma once

#include <algorithm>
#include <cstdint>

namespace terrace {

/// Learns how many free slots requests need, so that only one in 200 finds too few: more when requests come in bursts of long
/// prompts, fewer when they do not, because a slot that is kept free caches nothing.
///
/// It follows the 99.5th percentile of the slots that a request and those just before it took together, before evictions made up
/// for them. Each request above the estimate raises it by a step, each other one lowers it by a 199th of that (H. Robbins and
/// S. Monro, A Stochastic Approximation Method, 1951). The step is the mean of what a request takes.
class BurstReserve {
 public:
  /// A request takes `slots` slots. Before, `free` slots were free, and `promised` of them, or of those that will be, were
  /// promised to others that wait. `kept`: the free slots that were aimed at.
  void on_request(std::uint64_t slots, std::uint64_t free, std::uint64_t promised, std::uint64_t kept) {
    const auto taken = static_cast<double>(slots);
    const auto missing = static_cast<double>(kept) - static_cast<double>(free) + static_cast<double>(promised);
    mean_ += (taken - mean_) * (mean_ == 0 ? 1 : mean_weight);
    const double burst = taken + std::max(missing, 0.0);
    slots_ = std::max(slots_ + mean_ * (burst > slots_ ? percentile : percentile - 1), 0.0);
  }
  [[nodiscard]] std::uint64_t slots() const { return static_cast<std::uint64_t>(slots_); }

 private:
  static constexpr double percentile = 0.995;
  static constexpr double mean_weight = 1.0 / 64;

  double slots_ = 0;
  double mean_ = 0;
};

}  // namespace terrace
