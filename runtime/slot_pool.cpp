#include "runtime/slot_pool.hpp"

#include "base/check.hpp"

#include <algorithm>

namespace terrace {

SlotPool::SlotPool(std::uint32_t slots) : free_{slots}, slots_(slots) {
  counts_[static_cast<std::size_t>(SlotState::free)] = slots;
}

std::optional<SlotId> SlotPool::take(SlotState state) {
  const std::optional<SlotId> slot = free_.take();
  if (slot) occupy(*slot, state);
  return slot;
}

std::optional<SlotId> SlotPool::take_last(SlotState state) {
  const std::optional<SlotId> slot = free_.take_last();
  if (slot) occupy(*slot, state);
  return slot;
}

std::optional<SlotId> SlotPool::take_after(SlotId neighbour, SlotState state) {
  const std::optional<SlotId> slot = free_.take_after(neighbour);
  if (slot) occupy(*slot, state);
  return slot;
}

void SlotPool::make_null(SlotId slot) {
  free_.take_exactly(slot);
  occupy(slot, SlotState::null);
}

void SlotPool::occupy(SlotId slot, SlotState state) {
  TERRACE_CHECK(state != SlotState::free);
  slots_[slot.value()].state = state;
  --counts_[static_cast<std::size_t>(SlotState::free)];
  ++counts_[static_cast<std::size_t>(state)];
}

void SlotPool::put(SlotId slot) { put_all({&slot, 1}); }

void SlotPool::change(SlotId slot, SlotState to) {
  Slot& s = slots_[slot.value()];
  TERRACE_CHECK(s.state != SlotState::free && s.state != SlotState::null);
  TERRACE_CHECK(to != SlotState::free && to != SlotState::null);
  --counts_[static_cast<std::size_t>(s.state)];
  ++counts_[static_cast<std::size_t>(to)];
  s.state = to;
}

void SlotPool::take_many(std::uint32_t count, std::optional<SlotId> neighbour, SlotState state, std::vector<SlotId>& out) {
  TERRACE_CHECK(state != SlotState::free);
  const std::size_t before = out.size();
  free_.take_many(count, neighbour, out);
  for (std::size_t i = before; i < out.size(); ++i) slots_[out[i].value()].state = state;
  counts_[static_cast<std::size_t>(SlotState::free)] -= out.size() - before;
  counts_[static_cast<std::size_t>(state)] += out.size() - before;
}

void SlotPool::put_all(std::span<const SlotId> slots) {
  for (const SlotId slot : slots) {
    Slot& s = slots_[slot.value()];
    TERRACE_CHECK(s.state != SlotState::free && s.state != SlotState::null && s.readers == 0);
    if (s.leaving) set_leaving(slot, false);
    --counts_[static_cast<std::size_t>(s.state)];
    s.state = SlotState::free;
    s.job = no_job;
  }
  free_.put_many(slots);
  counts_[static_cast<std::size_t>(SlotState::free)] += slots.size();
  if (remember_freed_) freed_.insert(freed_.end(), slots.begin(), slots.end());
}

void SlotPool::change_all(std::span<const SlotId> slots, SlotState from, SlotState to) {
  TERRACE_CHECK(from != SlotState::free && from != SlotState::null && to != SlotState::free && to != SlotState::null);
  for (const SlotId slot : slots) {
    Slot& s = slots_[slot.value()];
    TERRACE_CHECK(s.state == from);
    s.state = to;
  }
  counts_[static_cast<std::size_t>(from)] -= slots.size();
  counts_[static_cast<std::size_t>(to)] += slots.size();
}

void SlotPool::raise_fences(std::span<const SlotId> slots, Fence fence) {
  if (fence == Fence{}) return;
  for (const SlotId slot : slots) raise_fence(slot, fence);
}

std::uint32_t SlotPool::add_reader(SlotId slot) {
  Slot& s = slots_[slot.value()];
  TERRACE_CHECK(s.state == SlotState::ready);
  TERRACE_CHECK(s.readers < std::numeric_limits<std::uint16_t>::max());
  ++readers_total_;
  return ++s.readers;
}

std::uint32_t SlotPool::remove_reader(SlotId slot) {
  Slot& s = slots_[slot.value()];
  TERRACE_CHECK(s.readers > 0);
  --readers_total_;
  return --s.readers;
}

void SlotPool::set_leaving(SlotId slot, bool leaving) {
  bool& now = slots_[slot.value()].leaving;
  if (now == leaving) return;
  now = leaving;
  leaving ? ++leaving_total_ : --leaving_total_;
}

void SlotPool::raise_fence(SlotId slot, Fence fence) {
  Fence& now = slots_[slot.value()].fence;
  now = std::max(now, fence);
}

Ledger SlotPool::ledger() const {
  return {count(SlotState::free),        count(SlotState::held), count(SlotState::filling), count(SlotState::ready),
          count(SlotState::quarantined), count(SlotState::null), capacity()};
}

void SlotPool::check_invariants() const {
  free_.check_invariants();
  TERRACE_CHECK(free_.size() == count(SlotState::free));
  TERRACE_CHECK(ledger().balanced());
  std::array<std::uint64_t, slot_state_count> counts{};
  std::uint64_t readers = 0;
  std::uint64_t leaving = 0;
  for (std::uint32_t i = 0; i < slots_.size(); ++i) {
    const Slot& s = slots_[i];
    ++counts[static_cast<std::size_t>(s.state)];
    readers += s.readers;
    leaving += s.leaving ? 1 : 0;
    TERRACE_CHECK(free_.contains(SlotId{i}) == (s.state == SlotState::free));
    if (s.readers > 0 || s.leaving) TERRACE_CHECK(s.state == SlotState::ready);
  }
  TERRACE_CHECK(counts == counts_);
  TERRACE_CHECK(readers == readers_total_);
  TERRACE_CHECK(leaving == leaving_total_);
}

}  // namespace terrace
