#include "tools/replay/engine/latencies.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

namespace terrace::tools {

void Latencies::add(std::chrono::steady_clock::duration took) {
  const std::int64_t units = took / unit_;
  took_.push_back(static_cast<std::uint32_t>(std::clamp<std::int64_t>(units, 0, std::numeric_limits<std::uint32_t>::max())));
}

Percentiles Latencies::microseconds() const {
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

}  // namespace terrace::tools
