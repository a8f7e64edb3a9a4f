#pragma once

#include "base/random.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace terrace::tools {

/// The distributions of the built-in workloads. They are Boost's, which give the same values on every platform.

/// Draws a length in tokens from 1 to `max`. It is log-normal: mostly short, sometimes very long. `sigma` is that of the
/// logarithm.
[[nodiscard]] std::uint32_t draw_length(Random& random, double median, double sigma, std::uint32_t max);

/// Draws a time in milliseconds. It is exponentially distributed, like the gaps of a Poisson process.
[[nodiscard]] double draw_time(Random& random, double mean);

/// Draws by Zipf's law: the k-th of `n` in proportion to 1/k. A few are drawn most of the time, and some hardly ever.
class ZipfDraw {
 public:
  explicit ZipfDraw(std::uint32_t n);
  /// Returns a number from 0 to n - 1.
  [[nodiscard]] std::uint32_t operator()(Random& random) const;

 private:
  std::vector<double> cumulative_;  ///< sums of the weights, so that a draw is a binary search
};

/// The context that a request sends: the number of its tokens, and the ids of its full blocks. A block gets its id when it
/// becomes full. So two contexts that differ within a block have different ids from this block on.
struct WorkloadContext {
  std::uint32_t tokens = 0;
  std::vector<std::uint64_t> ids;

  /// Adds tokens that no other context has. Each block that becomes full gets the next id.
  void grow(std::uint32_t more, std::uint32_t block_tokens, std::uint64_t& next_id);
  /// The ids of the full blocks but the first `blocks`.
  [[nodiscard]] std::vector<std::uint64_t> ids_after(std::size_t blocks) const {
    return {ids.begin() + static_cast<std::ptrdiff_t>(blocks), ids.end()};
  }
};

/// The first id of a workload. Ids of different seeds are far apart.
[[nodiscard]] constexpr std::uint64_t first_id(std::uint64_t seed) { return seed * 0x9E37'79B9'7F4A'7C15; }

}  // namespace terrace::tools
