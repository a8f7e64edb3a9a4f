#include "tools/replay/workload/workload_draws.hpp"

#include <boost/random/exponential_distribution.hpp>
#include <boost/random/lognormal_distribution.hpp>
#include <boost/random/uniform_real_distribution.hpp>

#include <algorithm>
#include <cmath>

namespace terrace::tools {

std::uint32_t draw_length(Random& random, double median, double sigma, std::uint32_t max) {
  const double drawn = boost::random::lognormal_distribution<double>{std::log(median), sigma}(random.engine());
  // exp(log(median)) may be slightly less than the median on some platforms. Without this correction a whole number could lose a
  // token.
  constexpr double rounding = 1e-9;
  return static_cast<std::uint32_t>(std::clamp(drawn + rounding, 1.0, static_cast<double>(max)));
}

double draw_time(Random& random, double mean) {
  return boost::random::exponential_distribution<double>{1.0 / mean}(random.engine());
}

ZipfDraw::ZipfDraw(std::uint32_t n) {
  double sum = 0;
  for (std::uint32_t k = 1; k <= n; ++k) cumulative_.push_back(sum += 1.0 / k);
}

std::uint32_t ZipfDraw::operator()(Random& random) const {
  const double drawn = boost::random::uniform_real_distribution<double>{0.0, cumulative_.back()}(random.engine());
  return static_cast<std::uint32_t>(std::ranges::upper_bound(cumulative_, drawn) - cumulative_.begin());
}

void WorkloadContext::grow(std::uint32_t more, std::uint32_t block_tokens, std::uint64_t& next_id) {
  tokens += more;
  while (ids.size() < tokens / block_tokens) ids.push_back(next_id++);
}

}  // namespace terrace::tools
