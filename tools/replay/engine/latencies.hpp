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

/// Keeps every measured duration, four bytes each, so that percentiles are exact. Threads: one.
class Latencies {
 public:
  /// Durations are kept in multiples of `unit`: up to 4.3 s in nanoseconds, or 71 minutes in microseconds. Longer ones are cut to
  /// that.
  explicit Latencies(std::chrono::nanoseconds unit = std::chrono::nanoseconds{1}) : unit_{unit} {}

  void add(std::chrono::steady_clock::duration took);
  /// The percentiles in microseconds, by nearest rank; zeros if nothing was measured.
  [[nodiscard]] Percentiles microseconds() const;

 private:
  std::chrono::nanoseconds unit_;
  std::vector<std::uint32_t> took_;  ///< in multiples of unit_
};

/// Calls `f`, records how long it took, and returns its result.
template <class F>
auto timed(Latencies& latencies, F&& f) {
  const auto begin = std::chrono::steady_clock::now();
  auto result = f();
  latencies.add(std::chrono::steady_clock::now() - begin);
  return result;
}

}  // namespace terrace::tools
