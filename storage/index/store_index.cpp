#include "storage/index/store_index.hpp"

#include "base/check.hpp"

#include <algorithm>
#include <array>
#include <tuple>
#include <utility>

namespace terrace {

StoreIndex::StoreIndex(std::uint32_t capacity) : entries_(capacity), free_{capacity}, closed_{0}, limit_{capacity} {
  TERRACE_CHECK(capacity > 0);
  counts_[static_cast<std::size_t>(State::absent)] = capacity;
  slots_.reserve(capacity);
}

std::optional<SlotId> StoreIndex::find(const BlockKey& key) const {
  const SlotId slot = slot_of(key);
  return slot == Slots::none ? std::nullopt : std::optional{slot};
}

StoredBlock StoreIndex::block(SlotId slot) const {
  const Entry& e = at(slot);
  return {e.key, e.parent == none ? BlockKey{} : entries_[e.parent].key, e.depth, e.tenant, e.group};
}

void StoreIndex::set_block(std::uint32_t slot, const StoredBlock& block) {
  Entry& e = entry(slot);
  e.key = block.key;
  e.tenant = block.tenant;
  e.depth = block.depth;
  e.group = block.group;
}

std::optional<std::uint32_t> StoreIndex::parent_of(const StoredBlock& block) const {
  if (block.depth == 0) return none;
  const SlotId slot = slot_of(block.parent);
  if (slot == Slots::none) return std::nullopt;
  const Entry& parent = at(slot);
  if (parent.marked_for_removal || parent.depth + 1 != block.depth) return std::nullopt;
  return slot.value();
}

Result<StoreIndex::Freed> StoreIndex::place(const StoredBlock& block) {
  TERRACE_CHECK(!find(block.key).has_value());
  const std::optional<std::uint32_t> parent = parent_of(block);
  if (!parent) return Errc::parent_missing;

  Freed placed;
  if (free_.empty()) {
    // The parent may be a leaf until the child is linked, even the least recently used leaf. It must not be evicted here.
    if (*parent != none) leaves_.erase(*parent);
    if (leaves_.empty()) {
      if (*parent != none) consider(*parent);
      return Errc::full;
    }
    placed = evict_leaf(Reuse::yes, *parent);
  }

  const std::optional<SlotId> slot = *parent == none ? free_.take() : free_.take_after(SlotId{*parent});
  TERRACE_CHECK(slot.has_value());
  placed.slot = *slot;
  set_block(slot->value(), block);
  Entry& e = entry(slot->value());
  e.last_use = now_;
  e.operations = 1;
  slots_.insert(block.key, *slot);
  set_state(slot->value(), State::writing);
  if (*parent != none) {
    link(slot->value(), *parent);
    consider(*parent);
  }
  return placed;
}

void StoreIndex::data_arrived(SlotId slot, std::vector<SlotId>& became_ready) {
  Entry& arrived = entry(slot.value());
  TERRACE_CHECK(arrived.state == State::writing);
  TERRACE_CHECK(arrived.operations == 1);
  arrived.operations = 0;
  if (arrived.parent != none && entry(arrived.parent).state != State::ready) {
    set_state(slot.value(), State::awaiting_parent);
    return;
  }
  // `became_ready` also serves as the queue of blocks whose children are visited next.
  std::size_t next = became_ready.size();
  became_ready.push_back(slot);
  for (; next < became_ready.size(); ++next) {
    const std::uint32_t ready = became_ready[next].value();
    set_state(ready, State::ready);
    for (std::uint32_t child = entry(ready).first_child; child != none; child = entry(child).next_sibling) {
      if (entry(child).state == State::awaiting_parent) became_ready.push_back(SlotId{child});
    }
    consider(ready);
  }
}

void StoreIndex::drop(SlotId slot, std::vector<Dropped>& gone) {
  const std::uint32_t top = slot.value();
  const std::uint32_t parent_before = entry(top).parent;
  for (std::uint32_t at = top;;) {
    while (entry(at).first_child != none) at = entry(at).first_child;
    const std::uint32_t up = entry(at).parent;
    gone.push_back({SlotId{at}, entry(at).key, entry(at).state, entry(at).write_token});
    forget(at);
    if (at == top) break;
    at = up;
  }
  if (parent_before != none) consider(parent_before);
}

void StoreIndex::hold(SlotId slot) {
  TERRACE_CHECK(entry(slot.value()).state == State::ready);
  ++entry(slot.value()).operations;
  consider(slot.value());
}

void StoreIndex::release(SlotId slot) {
  Entry& e = entry(slot.value());
  TERRACE_CHECK(e.operations > 0);
  TERRACE_CHECK(e.state == State::ready || e.state == State::removing);
  --e.operations;
  if (e.state == State::removing) {
    if (e.operations == 0) free_slot(slot.value());
  } else {
    consider(slot.value());
  }
}

void StoreIndex::retire_slot(SlotId slot) {
  TERRACE_CHECK(entry(slot.value()).state == State::removing);
  entry(slot.value()).slot_retired = true;
}

void StoreIndex::mark_for_removal(SlotId slot) {
  Entry& e = entry(slot.value());
  TERRACE_CHECK(e.state == State::writing || e.state == State::awaiting_parent);
  e.marked_for_removal = true;
}

void StoreIndex::use(SlotId slot) {
  // Only this block gets the time. Its ancestors are evicted after it in any case; then their own older times count.
  entry(slot.value()).last_use = now_;
  consider(slot.value());
}

std::optional<SlotId> StoreIndex::restore(SlotId slot, const StoredBlock& block, std::uint64_t last_use) {
  advance_past(last_use);
  const SlotId same = slot_of(block.key);
  if (same != Slots::none) {
    const Entry& other = at(same);
    if (std::tuple{other.depth, ~other.last_use, same} < std::tuple{block.depth, ~last_use, slot}) return slot;
    while (other.first_child != none) {
      apart_.push_back({other.first_child, block.key});
      unlink(other.first_child);
    }
    if (other.parent != none) ends_.push_back(other.parent);
    forget(same.value());
  }
  free_.take_exactly(slot);
  const std::uint32_t at = slot.value();
  set_block(at, block);
  entry(at).last_use = last_use;
  slots_.insert(block.key, slot);
  set_state(at, State::ready);
  // The blocks of a prefix are usually adjacent, so most parents are in the previous slot and need no lookup.
  const Entry* const before = at == 0 ? nullptr : &entries_[at - 1];
  if (block.depth > 0 && before != nullptr && before->state == State::ready && before->key == block.parent &&
      before->depth + 1 == block.depth) {
    link(at, at - 1);
    if (!ends_.empty() && ends_.back() == at - 1) ends_.pop_back();
  } else if (block.depth > 0) {
    apart_.push_back({at, block.parent});
  }
  ends_.push_back(at);
  return same == Slots::none ? std::nullopt : std::optional{same};
}

void StoreIndex::finish_restore(std::vector<SlotId>& dropped) {
  std::vector<std::uint32_t> orphans;
  link_restored(orphans);
  std::vector<Dropped> gone;
  for (const std::uint32_t orphan : orphans) drop(SlotId{orphan}, gone);
  for (const Dropped& block : gone) dropped.push_back(block.slot);
  for (const std::uint32_t slot : ends_) consider(slot);
  apart_ = {};
  ends_ = {};
}

/// Links blocks to parents that may be in any slot. Each step of a lookup reads other memory, so each step is prefetched for a
/// later block while the steps of earlier blocks are done.
void StoreIndex::link_restored(std::vector<std::uint32_t>& orphans) {
  constexpr std::size_t ahead = 8;
  for (std::size_t i = 0; i < apart_.size(); ++i) {
    if (i + 2 * ahead < apart_.size()) slots_.prefetch(apart_[i + 2 * ahead].parent);
    if (i + ahead < apart_.size()) {
      __builtin_prefetch(&entries_[apart_[i + ahead].slot].depth);
      const SlotId parent = slots_.find(apart_[i + ahead].parent, [](SlotId) { return true; });
      if (parent != Slots::none) __builtin_prefetch(&at(parent).key);
      if (parent != Slots::none) __builtin_prefetch(&at(parent).depth);
    }
    const std::uint32_t slot = apart_[i].slot;
    if (entries_[slot].state != State::ready) continue;  // another slot has the same block
    const SlotId parent = slot_of(apart_[i].parent);
    if (parent != Slots::none && at(parent).depth + 1 == entries_[slot].depth) {
      link(slot, parent.value());
    } else {
      orphans.push_back(slot);
    }
  }
}

void StoreIndex::set_state(std::uint32_t slot, State state) {
  --counts_[static_cast<std::size_t>(entry(slot).state)];
  entry(slot).state = state;
  ++counts_[static_cast<std::size_t>(state)];
}

void StoreIndex::consider(std::uint32_t slot) {
  const Entry& e = entry(slot);
  if (evictable(e)) {
    leaves_.set(slot, {e.last_use, e.depth});
  } else {
    leaves_.erase(slot);
  }
}

void StoreIndex::link(std::uint32_t slot, std::uint32_t parent) {
  Entry& e = entry(slot);
  e.parent = parent;
  e.next_sibling = entry(parent).first_child;
  if (e.next_sibling != none) entry(e.next_sibling).previous_sibling = slot;
  entry(parent).first_child = slot;
}

void StoreIndex::unlink(std::uint32_t slot) {
  Entry& e = entry(slot);
  if (e.next_sibling != none) entry(e.next_sibling).previous_sibling = e.previous_sibling;
  if (e.previous_sibling != none) {
    entry(e.previous_sibling).next_sibling = e.next_sibling;
  } else if (e.parent != none) {
    entry(e.parent).first_child = e.next_sibling;
  }
  e.parent = e.next_sibling = e.previous_sibling = none;
}

void StoreIndex::forget(std::uint32_t slot, Reuse reuse) {
  const State state = entry(slot).state;
  TERRACE_CHECK(state == State::writing || state == State::awaiting_parent || state == State::ready);
  TERRACE_CHECK(entry(slot).first_child == none);
  leaves_.erase(slot);
  slots_.erase(entry(slot).key, SlotId{slot});
  unlink(slot);
  entry(slot).marked_for_removal = false;
  set_state(slot, State::removing);
  if (entry(slot).operations == 0) free_slot(slot, reuse);
}

void StoreIndex::free_slot(std::uint32_t slot, Reuse reuse) {
  const State state = entry(slot).slot_retired ? State::bad : State::absent;
  set_state(slot, state);
  entry(slot) = Entry{};
  entry(slot).state = state;
  if (state != State::absent) return;
  if (reuse == Reuse::no && excess() > 0) {
    begin_closing(slot);
  } else {
    free_.put(SlotId{slot});
  }
}

void StoreIndex::begin_closing(std::uint32_t slot) {
  set_state(slot, State::closing);
  closing_.push_back(SlotId{slot});
}

std::optional<StoreIndex::Freed> StoreIndex::shrink() {
  if (excess() == 0) return std::nullopt;
  if (const std::optional<SlotId> free = free_.take_last()) {
    begin_closing(free->value());
    return Freed{*free, std::nullopt};
  }
  if (leaves_.empty()) return std::nullopt;
  return evict_leaf(Reuse::no);
}

StoreIndex::Freed StoreIndex::evict_leaf(Reuse reuse, std::uint32_t in_use) {
  const std::uint32_t victim = leaves_.top().handle;
  const std::uint32_t parent = entry(victim).parent;
  const Evicted evicted{entry(victim).key, entry(victim).write_token};
  forget(victim, reuse);
  if (parent != none && parent != in_use) consider(parent);
  return {SlotId{victim}, evicted};
}

void StoreIndex::take_closing(std::vector<SlotId>& closing) {
  closing.clear();
  closing.swap(closing_);
}

/// Grows closed_ to the current number of slots. New slots are free in closed_ at first, so they are taken from it here.
void StoreIndex::number_closed() {
  const std::uint32_t known = closed_.capacity();
  if (known == slots()) return;
  closed_.grow(slots());
  for (std::uint32_t joined = known; joined < slots(); ++joined) closed_.take_exactly(SlotId{joined});
}

void StoreIndex::close(SlotId slot) {
  TERRACE_CHECK(entry(slot.value()).state == State::closing);
  set_state(slot.value(), State::closed);
  number_closed();
  closed_.put(slot);
}

void StoreIndex::close_free(SlotId slot) {
  free_.take_exactly(slot);
  set_state(slot.value(), State::closing);
  close(slot);
}

void StoreIndex::open(SlotId slot) {
  const State state = entry(slot.value()).state;
  TERRACE_CHECK(state == State::closing || state == State::closed);
  TERRACE_CHECK(!closed_.contains(slot));
  set_state(slot.value(), State::absent);
  free_.put(slot);
}

bool StoreIndex::lose(SlotId slot) {
  switch (entry(slot.value()).state) {
    case State::lost: return true;
    case State::absent: free_.take_exactly(slot); break;
    case State::closed:
      if (!closed_.contains(slot)) return false;
      closed_.take_exactly(slot);
      break;
    case State::bad: break;
    default: return false;
  }
  set_state(slot.value(), State::lost);
  return true;
}

void StoreIndex::extend(std::uint32_t slots) {
  const std::uint32_t before = this->slots();
  TERRACE_CHECK(slots > before);
  free_.grow(slots);
  for (std::uint32_t slot = before; slot < slots; ++slot) free_.take_exactly(SlotId{slot});
  entries_.resize(slots);
  counts_[static_cast<std::size_t>(State::absent)] += slots - before;
  for (std::uint32_t slot = before; slot < slots; ++slot) set_state(slot, State::closed);
  number_closed();
}

std::uint64_t StoreIndex::count_orphans() const {
  std::uint64_t orphans = 0;
  for (const Entry& e : entries_) {
    if (e.state != State::ready || e.depth == 0) continue;
    orphans +=
        e.parent == none || entries_[e.parent].state != State::ready || slot_of(entries_[e.parent].key) != SlotId{e.parent};
  }
  return orphans;
}

void StoreIndex::check_invariants() const {
  free_.check_invariants();
  leaves_.check_invariants();
  std::array<std::uint32_t, state_count> counts{};
  std::size_t named = 0;
  std::size_t evictables = 0;
  std::size_t children = 0;
  std::size_t linked = 0;
  std::size_t closed = 0;
  for (std::uint32_t slot = 0; slot < slots(); ++slot) {
    const Entry& e = entries_[slot];
    closed += closed_.contains(SlotId{slot});
    if (closed_.contains(SlotId{slot})) TERRACE_CHECK(e.state == State::closed);
    ++counts[static_cast<std::size_t>(e.state)];
    TERRACE_CHECK(free_.contains(SlotId{slot}) == (e.state == State::absent));
    TERRACE_CHECK(leaves_.contains(slot) == evictable(e));
    if (evictable(e)) {
      ++evictables;
      TERRACE_CHECK(leaves_.priority(slot).last_use == e.last_use);
      TERRACE_CHECK(leaves_.priority(slot).depth == e.depth);
    }
    if (e.state == State::absent || e.state == State::bad || e.state == State::removing || e.state == State::closing ||
        e.state == State::closed || e.state == State::lost) {
      TERRACE_CHECK((e.operations > 0) == (e.state == State::removing));
      TERRACE_CHECK(e.parent == none && e.first_child == none && e.next_sibling == none && e.previous_sibling == none);
      continue;
    }
    ++named;
    TERRACE_CHECK(slot_of(e.key) == SlotId{slot});
    TERRACE_CHECK(!e.slot_retired);
    TERRACE_CHECK(e.last_use <= now_);
    if (e.state == State::writing) TERRACE_CHECK(e.operations == 1);
    if (e.state == State::awaiting_parent) TERRACE_CHECK(e.operations == 0);
    if (e.state == State::ready) TERRACE_CHECK(!e.marked_for_removal);
    TERRACE_CHECK((e.parent == none) == (e.depth == 0));
    if (e.parent != none) {
      ++children;
      const Entry& parent = entries_[e.parent];
      TERRACE_CHECK(parent.depth + 1 == e.depth);
      if (e.state == State::ready) TERRACE_CHECK(parent.state == State::ready);
      if (e.state == State::awaiting_parent) TERRACE_CHECK(parent.state != State::ready);
    }
    std::uint32_t previous = none;
    for (std::uint32_t child = e.first_child; child != none; child = entries_[child].next_sibling) {
      TERRACE_CHECK(entries_[child].parent == slot);
      TERRACE_CHECK(entries_[child].previous_sibling == previous);
      previous = child;
      ++linked;
    }
  }
  TERRACE_CHECK(counts == counts_);
  closed_.check_invariants();
  TERRACE_CHECK(closed == closed_.size());
  TERRACE_CHECK(named == slots_.size());
  TERRACE_CHECK(evictables == leaves_.size());
  TERRACE_CHECK(children == linked);
}

}  // namespace terrace
