#pragma once

#include "base/random.hpp"

#include <cstdint>
#include <vector>

namespace terrace::tools {

/// The distributions that the built-in workloads draw from. Boost's, which repeat on every platform.

/// A length in tokens, log-normal: mostly short, at times very long; from 1 to `max`. `sigma` is that of the logarithm.
[[nodiscard]] std::uint32_t draw_length(Random& random, double median, double sigma, std::uint32_t max);

/// A time in milliseconds, exponential: the gaps of a Poisson process.
[[nodiscard]] double draw_time(Random& random, double mean);

/// Zipf's law: the k-th of `n` is drawn in proportion to 1/k. A few are drawn most of the time, and some hardly ever.
class ZipfDraw {
 public:
  explicit ZipfDraw(std::uint32_t n);
  /// From 0.
  [[nodiscard]] std::uint32_t operator()(Random& random) const;

 private:
  std::vector<double> cumulative_;  ///< of the weights, so that a draw is a search
};

/// What a request sends: how many tokens, and the ids of the full blocks among them. Ids are told apart by who grew the context,
/// so that two that part within a block share none from there on.
struct WorkloadContext {
  std::uint32_t tokens = 0;
  std::vector<std::uint64_t> ids;

  /// Adds tokens that no other context has; a block that they fill gets the next id.
  void grow(std::uint32_t more, std::uint32_t block_tokens, std::uint64_t& next_id);
};

/// Where a workload's ids begin: those of different seeds are far apart.
[[nodiscard]] constexpr std::uint64_t first_id(std::uint64_t seed) { return seed * 0x9E37'79B9'7F4A'7C15; }

}  // namespace terrace::tools
