#include "tools/plan/lru_curve.hpp"

#include "base/check.hpp"

#include <algorithm>
#include <numeric>
#include <ranges>

namespace terrace::tools {

std::uint32_t LruStack::position(BlockNumber block) const {
  if (block >= place_of_.size() || place_of_[block] == no_place) return unknown;
  std::uint32_t before = 0;  // blocks at earlier places
  for (std::uint32_t i = place_of_[block]; i > 0; i &= i - 1) before += counts_[i];
  return size_ - before;
}

void LruStack::use(BlockNumber block) {
  if (block >= place_of_.size()) place_of_.resize(block + std::size_t{1}, no_place);
  if (next_place_ == block_at_.size()) make_places();
  std::uint32_t& place = place_of_[block];
  if (place == no_place) ++size_;
  else add(place, -1);
  place = next_place_++;
  block_at_[place] = block;
  add(place, +1);
}

void LruStack::add(std::uint32_t place, std::int32_t difference) {
  // Entries are numbered from 1, places from 0.
  for (std::size_t i = place + std::size_t{1}; i < counts_.size(); i += i & (~i + 1)) {
    counts_[i] += static_cast<std::uint32_t>(difference);
  }
}

void LruStack::make_places() {
  constexpr std::uint32_t places_min = 1024;
  std::uint32_t kept = 0;
  for (std::uint32_t place = 0; place < next_place_; ++place) {
    const BlockNumber block = block_at_[place];
    if (place_of_[block] != place) continue;  // it has been used again
    block_at_[kept] = block;
    place_of_[block] = kept++;
  }
  TERRACE_CHECK(kept == size_);
  next_place_ = kept;
  block_at_.resize(std::max<std::size_t>(places_min, std::size_t{2} * kept));
  counts_.assign(block_at_.size() + 1, 0);
  for (std::uint32_t place = 0; place < kept; ++place) add(place, +1);
}

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
