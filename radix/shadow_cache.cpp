#include "radix/shadow_cache.hpp"

#include <optional>

namespace terrace {

ShadowCache::ShadowCache(std::size_t capacity, Favour favour)
    : capacity_{capacity}, favour_{favour}, records_{(ghosts_per_block + 1) * capacity + 2} {
  TERRACE_CHECK(capacity > 0);
}

bool ShadowCache::use(const BlockKey& key, std::uint64_t stamp, double turnover) {
  const Records::Index index = records_.find_or_add(key);
  Block& block = records_[index];
  const bool was_there = block.is_there;
  if (was_there) {
    block.standing = Standing::near;
  } else {
    if (block.last != 0) block.standing = standing_on_return(departures_ - block.departure, capacity_);
    block.is_there = true;
  }
  block.last = stamp;
  records_.make_newest(index, static_cast<std::size_t>(block.standing));
  if (blocks() > capacity_) give_up_one(turnover);
  return was_there;
}

void ShadowCache::give_up_one(double turnover) {
  Records::Index oldest = Records::none;
  double oldest_age = 0;
  for (std::size_t line = 0; line < standing_count; ++line) {
    const Records::Index index = records_.oldest(line);
    if (index == Records::none) continue;
    const Block& block = records_[index];
    const double age = favour_.age(block.standing, block.last, turnover);
    if (oldest != Records::none && age >= oldest_age) continue;
    oldest = index;
    oldest_age = age;
  }
  records_[oldest].is_there = false;
  records_[oldest].departure = ++departures_;
  records_.make_newest(oldest, ghost_line);
  if (ghosts() > ghosts_per_block * capacity_) records_.forget_oldest(ghost_line);
}

void ShadowCache::check_invariants() const {
  records_.check_invariants();
  TERRACE_CHECK(blocks() <= capacity_);
  TERRACE_CHECK(ghosts() <= ghosts_per_block * capacity_);
}

}  // namespace terrace
