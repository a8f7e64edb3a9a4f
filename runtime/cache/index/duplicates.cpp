#include "runtime/cache/index/duplicates.hpp"

#include "base/check.hpp"

namespace terrace {

void Duplicates::add(BlockRef block, SlotId slot, std::optional<SlotId> before) {
  const std::uint32_t at = slot.value();
  if (at >= entries_.size()) entries_.resize(std::size_t{at} + 1);
  TERRACE_CHECK(!entries_[at].is_in_list);
  const bool follows = before && before->value() == last_added_ && contains(*before);
  const std::uint32_t previous = follows ? last_added_ : none;
  const std::uint32_t next = follows ? entries_[previous].next : first_;
  entries_[at] = {block, next, previous, true};
  (follows ? entries_[previous].next : first_) = at;
  if (next != none) entries_[next].previous = at;
  last_added_ = at;
  ++size_;
}

void Duplicates::remove(SlotId slot) {
  if (!contains(slot)) return;
  Entry& entry = entries_[slot.value()];
  (entry.previous == none ? first_ : entries_[entry.previous].next) = entry.next;
  if (entry.next != none) entries_[entry.next].previous = entry.previous;
  entry.is_in_list = false;
  --size_;
}

std::optional<BlockRef> Duplicates::first() const {
  if (first_ == none) return std::nullopt;
  return entries_[first_].block;
}

}  // namespace terrace
