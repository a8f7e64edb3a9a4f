#pragma once

#include <algorithm>
#include <cstdint>

namespace terrace {

/// Learns the number of free slots with which only one request in 200 finds too few. The number is larger if requests come in
/// bursts of long prompts. It should not be larger than needed, because a free slot caches nothing.
///
/// It estimates the 99.5th percentile of the slots that a request and the requests just before it took together, until evictions
/// had replaced them. Each request above the estimate raises it by a step, each other one lowers it by a 199th of that (H.
/// Robbins and S. Monro, A Stochastic Approximation Method, 1951). The step is the mean of what a request takes.
class BurstReserve {
 public:
  /// A request takes `slots` slots. Before that, `free` slots were free, and `promised` slots, free ones or future ones, were
  /// promised to waiting requests. `kept`: the number of slots that should have been free.
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
