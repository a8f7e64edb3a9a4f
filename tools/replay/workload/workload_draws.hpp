#pragma once

#include "base/random.hpp"

#include <boost/random/exponential_distribution.hpp>
#include <boost/random/lognormal_distribution.hpp>
#include <boost/random/uniform_real_distribution.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace terrace::tools {

/// The distributions of the built-in workloads. They are Boost's, which give the same values on every platform.

/// Draws a length in tokens from 1 to `max`. It is log-normal: mostly short, sometimes very long. `sigma` is that of the
/// logarithm.
[[nodiscard]] inline std::uint32_t draw_length(Random& random, double median, double sigma, std::uint32_t max) {
  const double drawn = boost::random::lognormal_distribution<double>{std::log(median), sigma}(random.engine());
  // exp(log(median)) may be slightly less than the median on some platforms. Without this correction a whole number could lose a
  // token.
  constexpr double rounding = 1e-9;
  return static_cast<std::uint32_t>(std::clamp(drawn + rounding, 1.0, static_cast<double>(max)));
}

/// Draws a time in milliseconds. It is exponentially distributed, like the gaps of a Poisson process.
[[nodiscard]] inline double draw_time(Random& random, double mean) {
  return boost::random::exponential_distribution<double>{1.0 / mean}(random.engine());
}

/// Draws by Zipf's law: the k-th of `n` in proportion to 1/k. A few are drawn most of the time, and some hardly ever.
class ZipfDraw {
 public:
  explicit ZipfDraw(std::uint32_t n) {
    double sum = 0;
    for (std::uint32_t k = 1; k <= n; ++k) cumulative_.push_back(sum += 1.0 / k);
  }
  /// Returns a number from 0 to n - 1.
  [[nodiscard]] std::uint32_t operator()(Random& random) const {
    const double drawn = boost::random::uniform_real_distribution<double>{0.0, cumulative_.back()}(random.engine());
    return static_cast<std::uint32_t>(std::ranges::upper_bound(cumulative_, drawn) - cumulative_.begin());
  }

 private:
  std::vector<double> cumulative_;  ///< sums of the weights, so that a draw is a binary search
};

/// The context that a request sends: the number of its tokens, and the ids of its full blocks. A block gets its id when it
/// becomes full. So two contexts that differ within a block have different ids from this block on.
struct WorkloadContext {
  std::uint32_t tokens = 0;
  std::vector<std::uint64_t> ids;

  /// Adds tokens that no other context has. Each block that becomes full gets the next id.
  void grow(std::uint32_t more, std::uint32_t block_tokens, std::uint64_t& next_id) {
    tokens += more;
    while (ids.size() < tokens / block_tokens) ids.push_back(next_id++);
  }
  /// The ids of the full blocks but the first `blocks`.
  [[nodiscard]] std::vector<std::uint64_t> ids_after(std::size_t blocks) const {
    return {ids.begin() + static_cast<std::ptrdiff_t>(blocks), ids.end()};
  }
};

/// The first id of a workload. Ids of different seeds are far apart.
[[nodiscard]] constexpr std::uint64_t first_id(std::uint64_t seed) { return seed * 0x9E37'79B9'7F4A'7C15; }

}  // namespace terrace::tools
