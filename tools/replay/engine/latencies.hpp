#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

namespace terrace::tools {

struct Percentiles {
  double p50 = 0;
  double p99 = 0;
  double max = 0;
};

/// Every measured duration, so that percentiles are exact: four bytes a call. Threads: one.
class Latencies {
 public:
  /// Counts in units of this: up to 4.3 s in nanoseconds, 71 minutes in microseconds. Longer ones count as that.
  explicit Latencies(std::chrono::nanoseconds unit = std::chrono::nanoseconds{1}) : unit_{unit} {}

  void add(std::chrono::steady_clock::duration took);
  /// In microseconds; zeros where nothing was measured. By nearest rank.
  [[nodiscard]] Percentiles microseconds() const;

 private:
  std::chrono::nanoseconds unit_;
  std::vector<std::uint32_t> took_;  ///< in units
};

/// Calls `f`, adds how long it took, and returns what it returned.
template <class F>
auto timed(Latencies& latencies, F&& f) {
  const auto begin = std::chrono::steady_clock::now();
  auto result = f();
  latencies.add(std::chrono::steady_clock::now() - begin);
  return result;
}

}  // namespace terrace::tools
