#include "tools/plan/lru_curve.hpp"

#include <algorithm>
#include <numeric>
#include <ranges>

namespace terrace::tools {

LruCurve::LruCurve(const RequestLog& log, const std::function<bool()>& go_on) {
  LruStack stack;
  std::vector<BlockNumber> prefix;
  hits_.resize(log.different_blocks() + std::size_t{1});
  for (const RequestLog::Request& request : log.requests()) {
    if (!go_on()) return;
    log.read(request, prefix);
    for (const BlockNumber block : prefix) {
      const std::uint32_t distance = stack.position(block);
      if (distance == LruStack::unknown) break;  // so are the blocks after it
      ++hits_[distance];
    }
    for (const BlockNumber block : std::views::reverse(prefix)) stack.use(block);
  }
  std::partial_sum(hits_.begin(), hits_.end(), hits_.begin());
}

std::uint64_t LruCurve::hits(std::uint64_t capacity) const { return hits_[std::min<std::uint64_t>(capacity, hits_.size() - 1)]; }

}  // namespace terrace::tools
