#include "radix/eviction/shadow_caches.hpp"

#include "base/check.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

namespace terrace {
namespace {

/// The newest block of a class that the present request has not used is looked for among this many.
constexpr int newest_max = 16;

}  // namespace

ShadowCaches::ShadowCaches(std::size_t capacity, double half_life) : capacity_{capacity}, fading_{std::exp2(-1 / half_life)} {
  TERRACE_CHECK(capacity > 0 && capacity <= capacity_max);
  // No block is in both caches, and each has one block more during a use().
  const std::size_t most = 2 * (capacity + 1);
  static_assert(2 * (capacity_max + 1) < none);
  records_.resize(most);
  for (std::size_t index = most; index-- > 0;) records_[index].next = std::exchange(free_, static_cast<Index>(index));
  buckets_.assign(std::bit_ceil(most), none);
}

void ShadowCaches::use(std::uint64_t name, std::uint64_t stamp, std::size_t reuse_class, const ReuseRanks* ranks) {
  const Index index = find_or_add(name);
  Record& record = records_[index];
  if (stamp != now_) stale_ = lines_held_;  // ages have changed
  now_ = stamp;
  if ((record.holders >> (ranks_lead_ ? ranked : lru) & 1) != 0) ++hits_[record.reuse_class];
  lead_ = lead_ * fading_ + (record.holders >> ranked & 1) - (record.holders >> lru & 1);
  if (lead_ != 0) ranks_lead_ = lead_ > 0;
  for (const std::size_t cache : {lru, ranked}) {
    if ((record.holders >> cache & 1) != 0) take_out(cache, index);
    else ++blocks_[cache];
  }
  record.holders = 1U << lru | 1U << ranked;
  record.last = stamp;
  record.reuse_class = static_cast<std::uint8_t>(reuse_class);
  for (const std::size_t cache : {lru, ranked}) insert(cache, index);
  if (blocks_[lru] > capacity_) evict(lru, by_use_.oldest);
  if (blocks_[ranked] <= capacity_) return;
  if (ranks != nullptr) return evict(ranked, next_by_rank(*ranks));
  Index oldest = none;
  for (const Line& line : by_class_) {
    if (line.oldest != none && (oldest == none || records_[line.oldest].last < records_[oldest].last)) oldest = line.oldest;
  }
  evict(ranked, oldest);
}

void ShadowCaches::tell(std::uint64_t stamp, std::size_t before, std::size_t kind) {
  if (before == kind) return;
  for (std::size_t uses = 0; uses < ReuseClass::uses; ++uses) {
    Index at = by_class_[ReuseClass::of(uses, before)].newest;
    while (at != none && records_[at].last >= stamp) {
      const Index index = std::exchange(at, records_[at].links[ranked].older);
      if (records_[index].last != stamp) continue;
      take_out(ranked, index);
      records_[index].reuse_class = static_cast<std::uint8_t>(ReuseClass::of(uses, kind));
      insert(ranked, index);
    }
  }
}

/// Returns the one of the lower rank of the class's oldest and newest block, the older one of two with equal rank. Blocks of the
/// present request do not count.
ShadowCaches::Candidate ShadowCaches::candidate_of(std::size_t reuse_class, const ReuseRanks& ranks) const {
  const Line& line = by_class_[reuse_class];
  const auto with_rank = [&](Index index) { return Candidate{ranks.rank(reuse_class, now_ - records_[index].last), index}; };
  if (line.oldest == none || records_[line.oldest].last >= now_) return {};
  const Candidate oldest = with_rank(line.oldest);
  Index newest = line.newest;
  for (int looked = 0; looked < newest_max && records_[newest].last >= now_; ++looked)
    newest = records_[newest].links[ranked].older;
  if (records_[newest].last >= now_) return oldest;
  const Candidate of_newest = with_rank(newest);
  return of_newest.rank < oldest.rank ? of_newest : oldest;
}

/// Returns the block of the lowest rank, and the older one of two with equal rank. Blocks of the present request go only if there
/// is no other.
ShadowCaches::Index ShadowCaches::next_by_rank(const ReuseRanks& ranks) {
  for (; stale_ != 0; stale_ &= stale_ - 1) {
    const auto reuse_class = static_cast<std::size_t>(std::countr_zero(stale_));
    candidates_[reuse_class] = candidate_of(reuse_class, ranks);
  }
  Candidate lowest;
  Index any = none;
  for (std::uint32_t lines = lines_held_; lines != 0; lines &= lines - 1) {
    const auto reuse_class = static_cast<std::size_t>(std::countr_zero(lines));
    const Candidate& next = candidates_[reuse_class];
    any = by_class_[reuse_class].oldest;
    if (next.block == none) continue;
    const bool goes_first = lowest.block == none || next.rank < lowest.rank ||
                            (next.rank == lowest.rank && records_[next.block].last < records_[lowest.block].last);
    if (goes_first) lowest = next;
  }
  return lowest.block == none ? any : lowest.block;
}

void ShadowCaches::evict(std::size_t cache, Index index) {
  Record& record = records_[index];
  take_out(cache, index);
  --blocks_[cache];
  record.holders = static_cast<std::uint8_t>(record.holders & ~(1U << cache));
  if (record.holders != 0) return;
  Index* at = &bucket_of(record.name);
  while (*at != index) at = &records_[*at].next;
  *at = std::exchange(record.next, free_);
  free_ = index;
}

ShadowCaches::Index ShadowCaches::find_or_add(std::uint64_t name) {
  Index& first = bucket_of(name);
  for (Index index = first; index != none; index = records_[index].next) {
    if (records_[index].name == name) return index;
  }
  const Index index = free_;
  TERRACE_CHECK(index != none);
  free_ = records_[index].next;
  records_[index] = {.name = name, .next = std::exchange(first, index)};
  return index;
}

/// Inserts a block at the place of its last use. No block, or only a few, were used later.
void ShadowCaches::insert(std::size_t cache, Index index) {
  const Record& record = records_[index];
  Line& line = line_of(cache, record);
  Index newer = none;
  Index older = line.newest;
  while (older != none && records_[older].last > record.last) newer = std::exchange(older, records_[older].links[cache].older);
  records_[index].links[cache] = {newer, older};
  (newer == none ? line.newest : records_[newer].links[cache].older) = index;
  (older == none ? line.oldest : records_[older].links[cache].newer) = index;
  if (cache != ranked) return;
  const std::uint32_t bit = 1U << record.reuse_class;
  // A block of the present request is no candidate.
  if (record.last != now_ || (lines_held_ & bit) == 0) stale_ |= bit;
  lines_held_ |= bit;
}

void ShadowCaches::take_out(std::size_t cache, Index index) {
  const Record& record = records_[index];
  Line& line = line_of(cache, record);
  const Links links = record.links[cache];
  (links.newer == none ? line.newest : records_[links.newer].links[cache].older) = links.older;
  (links.older == none ? line.oldest : records_[links.older].links[cache].newer) = links.newer;
  if (cache != ranked) return;
  stale_ |= 1U << record.reuse_class;
  if (line.oldest == none) lines_held_ &= ~(1U << record.reuse_class);
}

std::array<ShadowCaches::OfClass, ReuseClass::count> ShadowCaches::by_class() const {
  std::array<OfClass, ReuseClass::count> classes{};
  const std::size_t cache = ranks_lead_ ? ranked : lru;
  for (const Record& record : records_) {
    if ((record.holders >> cache & 1) != 0) ++classes[record.reuse_class].blocks;
  }
  for (std::size_t reuse_class = 0; reuse_class < ReuseClass::count; ++reuse_class)
    classes[reuse_class].hits = hits_[reuse_class];
  return classes;
}

std::size_t ShadowCaches::bytes_held() const {
  return records_.capacity() * sizeof(Record) + buckets_.capacity() * sizeof(Index);
}

void ShadowCaches::check_invariants() const {
  std::vector<std::uint8_t> holders(records_.size());
  std::array<std::size_t, 2> blocks{};
  const auto follow = [&](std::size_t cache, const Line& line) {
    Index newer = none;
    for (Index at = line.newest; at != none; newer = at, at = records_[at].links[cache].older) {
      TERRACE_CHECK(records_[at].links[cache].newer == newer);
      holders[at] = static_cast<std::uint8_t>(holders[at] | 1U << cache);
      ++blocks[cache];
    }
    TERRACE_CHECK(line.oldest == newer);
  };
  follow(lru, by_use_);
  for (std::size_t reuse_class = 0; reuse_class < ReuseClass::count; ++reuse_class) {
    follow(ranked, by_class_[reuse_class]);
    TERRACE_CHECK((lines_held_ >> reuse_class & 1U) == (by_class_[reuse_class].oldest == none ? 0U : 1U));
  }
  TERRACE_CHECK(blocks == blocks_ && blocks[lru] <= capacity_ && blocks[ranked] <= capacity_);
  std::size_t remembered = 0;
  for (const Index first : buckets_) {
    for (Index at = first; at != none; at = records_[at].next) {
      TERRACE_CHECK(records_[at].holders == holders[at] && holders[at] != 0);
      ++remembered;
    }
  }
  for (Index at = free_; at != none; at = records_[at].next) ++remembered;
  TERRACE_CHECK(remembered == records_.size());
}

}  // namespace terrace
