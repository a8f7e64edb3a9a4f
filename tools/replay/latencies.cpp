#include "tools/replay/latencies.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

namespace terrace::tools {

void Latencies::add(std::chrono::steady_clock::duration took) {
  const auto ns = std::chrono::duration_cast<std::chrono::nanoseconds>(took).count();
  ns_.push_back(static_cast<std::uint32_t>(std::clamp<std::int64_t>(ns, 0, std::numeric_limits<std::uint32_t>::max())));
}

Percentiles Latencies::microseconds() const {
  if (ns_.empty()) return {};
  std::vector<std::uint32_t> sorted = ns_;
  std::ranges::sort(sorted);
  const auto at = [&](double share) {
    const double rank = std::ceil(share * static_cast<double>(sorted.size()));
    return sorted[static_cast<std::size_t>(std::max(rank, 1.0)) - 1] * 1e-3;
  };
  return {at(0.5), at(0.99), at(1)};
}

}  // namespace terrace::tools
