#include "radix/eviction/shadow_caches.hpp"

#include "base/check.hpp"

#include <bit>
#include <utility>

namespace terrace {

ShadowCaches::ShadowCaches(std::size_t capacity, const std::array<RecencyBoost, rule_count>& rules) : capacity_{capacity} {
  TERRACE_CHECK(capacity > 0 && capacity <= capacity_max);
  for (std::size_t rule = 0; rule < rule_count; ++rule) rules_[rule].recency_boost = rules[rule];
  // The largest number of records: no two rules hold the same block, all ghosts are used, and each rule holds one block more
  // during a use().
  const std::size_t most = (rule_count + ghosts_per_block) * capacity + rule_count;
  static_assert((rule_count + ghosts_per_block) * capacity_max + rule_count < none);
  records_.resize(most);
  for (std::size_t index = most; index-- > 0;) records_[index].next = std::exchange(free_, static_cast<Index>(index));
  buckets_.assign(std::bit_ceil(most), none);
}

std::uint32_t ShadowCaches::use(std::uint64_t name, std::uint64_t stamp, double residence_time) {
  const Index index = find_or_add(name);
  const std::uint32_t had = records_[index].holders;
  records_[index].last = stamp;
  for (std::size_t rule = 0; rule < rule_count; ++rule) use_by(rule, index, residence_time);
  return had;
}

void ShadowCaches::use_by(std::size_t r, Index index, double residence_time) {
  Rule& rule = rules_[r];
  Record& record = records_[index];
  ReuseClass& reuse_class = record.reuse_classes[r];
  if ((record.holders >> r & 1U) != 0) {
    take_out(line_of(rule, reuse_class), index, links_in(r));
    reuse_class = ReuseClass::near;
    push_newest(line_of(rule, reuse_class), index, links_in(r));
    return;
  }
  if (record.evictions[r] != 0) reuse_class = reuse_class_on_return(rule.evictions - record.evictions[r], capacity_);
  if (record.holders == 0) take_out(ghosts_, index, links_of_ghost());
  record.holders = static_cast<std::uint8_t>(record.holders | 1U << r);
  push_newest(line_of(rule, reuse_class), index, links_in(r));
  if (++rule.blocks > capacity_) evict_one(r, residence_time);
}

void ShadowCaches::evict_one(std::size_t r, double residence_time) {
  Rule& rule = rules_[r];
  Index oldest = none;
  double oldest_age = 0;
  for (std::size_t line = 0; line < reuse_class_count; ++line) {
    const Index index = rule.lines[line].oldest;
    if (index == none) continue;
    const double age = rule.recency_boost.age(static_cast<ReuseClass>(line), records_[index].last, residence_time);
    if (oldest != none && age >= oldest_age) continue;
    oldest = index;
    oldest_age = age;
  }
  Record& record = records_[oldest];
  take_out(line_of(rule, record.reuse_classes[r]), oldest, links_in(r));
  record.evictions[r] = ++rule.evictions;
  --rule.blocks;
  record.holders = static_cast<std::uint8_t>(record.holders & ~(1U << r));
  if (record.holders != 0) return;
  push_newest(ghosts_, oldest, links_of_ghost());
  if (ghosts_.size > ghosts_per_block * capacity_) forget(ghosts_.oldest);
}

ShadowCaches::Index ShadowCaches::find_or_add(std::uint64_t name) {
  Index& first = bucket_of(name);
  for (Index index = first; index != none; index = records_[index].next) {
    if (records_[index].name == name) return index;
  }
  const Index index = free_;
  TERRACE_CHECK(index != none);
  free_ = records_[index].next;
  records_[index] = {};
  records_[index].name = name;
  records_[index].next = first;
  first = index;
  push_newest(ghosts_, index, links_of_ghost());
  return index;
}

void ShadowCaches::forget(Index index) {
  take_out(ghosts_, index, links_of_ghost());
  Index* at = &bucket_of(records_[index].name);
  while (*at != index) at = &records_[*at].next;
  *at = std::exchange(records_[index].next, free_);
  free_ = index;
}

template <class LinksOf>
void ShadowCaches::push_newest(Line& line, Index index, LinksOf links_of) {
  links_of(index) = {none, line.newest};
  (line.newest == none ? line.oldest : links_of(line.newest).newer) = index;
  line.newest = index;
  ++line.size;
}

template <class LinksOf>
void ShadowCaches::take_out(Line& line, Index index, LinksOf links_of) {
  const Links links = links_of(index);
  (links.newer == none ? line.newest : links_of(links.newer).older) = links.older;
  (links.older == none ? line.oldest : links_of(links.older).newer) = links.newer;
  --line.size;
}

std::size_t ShadowCaches::bytes_held() const {
  return records_.capacity() * sizeof(Record) + buckets_.capacity() * sizeof(Index);
}

void ShadowCaches::check_invariants() const {
  std::vector<std::uint8_t> holders(records_.size());
  for (std::size_t rule = 0; rule < rule_count; ++rule) {
    TERRACE_CHECK(rules_[rule].blocks <= capacity_);
    std::size_t in_lines = 0;
    for (std::size_t line = 0; line < reuse_class_count; ++line) {
      std::size_t size = 0;
      Index newer = none;
      for (Index at = rules_[rule].lines[line].newest; at != none; at = records_[at].links[rule].older) {
        TERRACE_CHECK(records_[at].links[rule].newer == newer);
        TERRACE_CHECK(static_cast<std::size_t>(records_[at].reuse_classes[rule]) == line);
        holders[at] = static_cast<std::uint8_t>(holders[at] | 1U << rule);
        ++size;
        newer = at;
      }
      TERRACE_CHECK(rules_[rule].lines[line].oldest == newer);
      TERRACE_CHECK(rules_[rule].lines[line].size == size);
      in_lines += size;
    }
    TERRACE_CHECK(in_lines == rules_[rule].blocks);
  }
  TERRACE_CHECK(ghosts_.size <= ghosts_per_block * capacity_);
  std::size_t remembered = 0;
  for (const Index first : buckets_) {
    for (Index at = first; at != none; at = records_[at].next) {
      TERRACE_CHECK(records_[at].holders == holders[at]);
      ++remembered;
    }
  }
  for (Index at = free_; at != none; at = records_[at].next) ++remembered;
  TERRACE_CHECK(remembered == records_.size());
}

}  // namespace terrace
