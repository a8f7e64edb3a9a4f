#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace terrace::tools {

struct Percentiles {
  double p50 = 0;
  double p99 = 0;
  double max = 0;
};

/// Keeps every measured duration, four bytes each, so that percentiles are exact. Threads: one.
class Latencies {
 public:
  /// Durations are kept in multiples of `unit`: up to 4.3 s in nanoseconds, or 71 minutes in microseconds. Longer ones are cut to
  /// that.
  explicit Latencies(std::chrono::nanoseconds unit = std::chrono::nanoseconds{1}) : unit_{unit} {}

  void add(std::chrono::steady_clock::duration took) {
    const std::int64_t units = took / unit_;
    took_.push_back(static_cast<std::uint32_t>(std::clamp<std::int64_t>(units, 0, std::numeric_limits<std::uint32_t>::max())));
  }
  /// The percentiles in microseconds, by nearest rank; zeros if nothing was measured.
  [[nodiscard]] Percentiles microseconds() const {
    if (took_.empty()) return {};
    std::vector<std::uint32_t> sorted = took_;
    std::ranges::sort(sorted);
    const double us = std::chrono::duration<double, std::micro>(unit_).count();
    const auto at = [&](double share) {
      const double rank = std::ceil(share * static_cast<double>(sorted.size()));
      return sorted[static_cast<std::size_t>(std::max(rank, 1.0)) - 1] * us;
    };
    return {at(0.5), at(0.99), at(1)};
  }

 private:
  std::chrono::nanoseconds unit_;
  std::vector<std::uint32_t> took_;  ///< in multiples of unit_
};

/// Calls `f`, records how long it took, and returns its result.
template <class F>
auto timed(Latencies& latencies, F&& f) {
  struct Timing {
    ~Timing() { latencies.add(std::chrono::steady_clock::now() - begin); }
    Latencies& latencies;
    std::chrono::steady_clock::time_point begin = std::chrono::steady_clock::now();
  } const timing{latencies};
  return f();
}

}  // namespace terrace::tools
