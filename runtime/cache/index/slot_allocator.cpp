#include "runtime/cache/index/slot_allocator.hpp"

#include "base/check.hpp"

#include <algorithm>
#include <utility>

namespace terrace {
namespace {

/// Returns true if the slot belongs to a request, a copy or staging, or is quarantined.
bool is_taken(SlotState state) { return state != SlotState::free && state != SlotState::null && state != SlotState::retired; }

}  // namespace

SlotAllocator::SlotAllocator(std::uint32_t slots) : free_{slots}, capacity_{slots}, slots_(slots) {
  counts_[static_cast<std::size_t>(SlotState::free)] = slots;
}

void SlotAllocator::make_null(SlotId slot) {
  free_.take_exactly(slot);
  occupy(slot, SlotState::null);
}

std::optional<SlotId> SlotAllocator::occupy(std::optional<SlotId> slot, SlotState state) {
  TERRACE_CHECK(state != SlotState::free);
  if (slot) move(*slot, state);
  return slot;
}

/// Changes the state and all counts, but not free_.
void SlotAllocator::move(SlotId slot, SlotState to) {
  Slot& s = slots_[slot.value()];
  const SlotState now = s.state();
  --counts_[static_cast<std::size_t>(now)];
  ++counts_[static_cast<std::size_t>(to)];
  if (s.closed != 0) {
    if (now == SlotState::ready) --closed_ready_;
    if (to == SlotState::ready) ++closed_ready_;
  }
  s.set_state(to);
  s.note = 0;
}

void SlotAllocator::resize(std::uint32_t capacity) {
  retires_at_once_ = true;
  const std::uint32_t before = std::exchange(capacity_, capacity);
  const std::uint32_t known = std::min(capacity, static_cast<std::uint32_t>(slots_.size()));
  if (capacity < before) close({SlotId{capacity}, before - capacity});
  else open({SlotId{before}, known - before});
  if (capacity > known) grow(capacity);
}

/// Adds free slots at the end.
void SlotAllocator::grow(std::uint32_t slots) {
  counts_[static_cast<std::size_t>(SlotState::free)] += slots - slots_.size();
  slots_.resize(slots);
  free_.grow(slots);
}

/// A closed slot, which is not in free_, has become free.
void SlotAllocator::note_closed_free(SlotId slot) {
  if (retires_at_once_) move(slot, SlotState::retired);
  else closed_free_.push_back(slot);
}

void SlotAllocator::retire_free() {
  if (take_closed(SlotState::retired)) return;
  const std::optional<SlotId> slot = take_last(SlotState::retired);
  TERRACE_CHECK(slot.has_value());
  retired_free_.push_back(*slot);
}

bool SlotAllocator::unretire() {
  if (retired_free_.empty()) return false;
  move(retired_free_.back(), SlotState::free);
  free_.put(retired_free_.back());
  retired_free_.pop_back();
  return true;
}

std::optional<SlotId> SlotAllocator::take_closed(SlotState state) {
  if (closed_free_.empty()) return std::nullopt;
  const SlotId slot = closed_free_.back();
  closed_free_.pop_back();
  return occupy(slot, state);
}

void SlotAllocator::extend(std::uint32_t slots) {
  const auto before = static_cast<std::uint32_t>(slots_.size());
  if (slots <= before) return;
  TERRACE_CHECK(capacity_ == before);  // a pool that resize() has made smaller cannot grow by chunks
  capacity_ = slots;
  grow(slots);
  for (std::uint32_t i = before; i < slots; ++i) {
    free_.take_exactly(SlotId{i});
    move(SlotId{i}, SlotState::retired);
    slots_[i].closed = 1;
  }
  closed_total_ += slots - before;
}

void SlotAllocator::close(SlotSpan slots) {
  for (std::uint32_t i = slots.first.value(); i < slots.end(); ++i) {
    Slot& s = slots_[i];
    if (s.closed != 0) continue;
    s.closed = 1;
    ++closed_total_;
    closed_evicting_ += s.evicting;
    if (s.state() == SlotState::ready) ++closed_ready_;
    if (s.state() != SlotState::free) continue;
    free_.take_exactly(SlotId{i});
    note_closed_free(SlotId{i});
  }
  std::erase_if(retired_free_, [this](SlotId slot) { return closed(slot); });
}

void SlotAllocator::open(SlotSpan slots) {
  for (std::uint32_t i = slots.first.value(); i < slots.end(); ++i) {
    Slot& s = slots_[i];
    if (s.closed == 0) continue;
    s.closed = 0;
    --closed_total_;
    closed_evicting_ -= s.evicting;
    if (s.state() == SlotState::ready) --closed_ready_;
    if (s.state() == SlotState::retired) move(SlotId{i}, SlotState::free);
    if (s.state() == SlotState::free) free_.put(SlotId{i});
  }
  std::erase_if(closed_free_, [this](SlotId slot) { return !closed(slot); });
}

void SlotAllocator::change(SlotId slot, SlotState to) {
  const Slot& s = slots_[slot.value()];
  TERRACE_CHECK(is_taken(s.state()) && s.readers() == 0);
  TERRACE_CHECK(is_taken(to));
  move(slot, to);
}

void SlotAllocator::take_many(std::uint32_t count, std::optional<SlotId> neighbour, SlotState state, std::vector<SlotId>& out) {
  const std::size_t before = out.size();
  free_.take_many(count, neighbour, out);
  occupy_all(std::span{out}.subspan(before), state);
}

std::uint32_t SlotAllocator::take_last_many(std::uint32_t count, SlotState state, std::vector<SlotId>& out) {
  const std::size_t before = out.size();
  free_.take_last_many(count, out);
  occupy_all(std::span{out}.subspan(before), state);
  return static_cast<std::uint32_t>(out.size() - before);
}

/// The slots were in free_.
void SlotAllocator::occupy_all(std::span<const SlotId> slots, SlotState state) {
  TERRACE_CHECK(state != SlotState::free);
  SlotUse plain;  // a free slot has no note
  plain.set_state(state);
  for (const SlotId slot : slots) static_cast<SlotUse&>(slots_[slot.value()]) = plain;
  counts_[static_cast<std::size_t>(SlotState::free)] -= slots.size();
  counts_[static_cast<std::size_t>(state)] += slots.size();
}

/// Fast path: if the use of all these slots is `from`, except for the bits of `ignored`, it becomes `to`. Otherwise, and if any
/// slots are closed, it changes nothing and returns false. The caller then changes the slots one by one. It does not count.
bool SlotAllocator::replace_alike(std::span<const SlotId> slots, SlotUse from, SlotUse to, std::uint32_t ignored) {
  if (closed_total_ > 0) return false;
  std::uint32_t others = 0;
  for (const SlotId slot : slots) others |= slots_[slot.value()].word() ^ from.word();
  if ((others & ~ignored) != 0) return false;
  for (const SlotId slot : slots) static_cast<SlotUse&>(slots_[slot.value()]) = to;
  return true;
}

/// The same for the state of slots that nothing reads or evicts, with the counts. The slots get this note.
bool SlotAllocator::move_alike(std::span<const SlotId> slots, SlotState from, SlotState to, std::uint32_t note) {
  SlotUse before;
  before.set_state(from);
  SlotUse after;
  after.set_state(to);
  after.note = note & Slot::note_max;
  SlotUse ignored;
  if (from == SlotState::filling) ignored.note = Slot::note_max;  // the load that has filled it
  if (!replace_alike(slots, before, after, ignored.word())) return false;
  counts_[static_cast<std::size_t>(from)] -= slots.size();
  counts_[static_cast<std::size_t>(to)] += slots.size();
  return true;
}

void SlotAllocator::put_all(std::span<const SlotId> slots) {
  if (slots.empty()) return;
  const SlotState first = state(slots.front());
  if (is_taken(first) && move_alike(slots, first, SlotState::free)) {
    free_.put_many(slots);
    if (remember_freed_) freed_.insert(freed_.end(), slots.begin(), slots.end());
    return;
  }
  for (const SlotId slot : slots) {
    Slot& s = slots_[slot.value()];
    TERRACE_CHECK(is_taken(s.state()) && s.readers() == 0);
    if (s.evicting != 0) set_evicting(slot, false);
    move(slot, SlotState::free);
    if (closed(slot)) note_closed_free(slot);
    else free_.put(slot);
    if (remember_freed_ && state(slot) == SlotState::free) freed_.push_back(slot);
  }
}

void SlotAllocator::change_all(std::span<const SlotId> slots, SlotState from, SlotState to) {
  TERRACE_CHECK(is_taken(from) && is_taken(to));
  if (move_alike(slots, from, to)) return;
  for (const SlotId slot : slots) {
    TERRACE_CHECK(slots_[slot.value()].state() == from);
    move(slot, to);
  }
}

void SlotAllocator::begin_load(std::span<const SlotId> slots, std::uint32_t load, Source source) {
  TERRACE_CHECK(load < Slot::note_max >> Slot::source_bits);
  const std::uint32_t note = (load + 1) << Slot::source_bits | static_cast<std::uint32_t>(source);
  if (move_alike(slots, SlotState::held, SlotState::filling, note)) return;
  change_all(slots, SlotState::held, SlotState::filling);
  for (const SlotId slot : slots) slots_[slot.value()].note = note & Slot::note_max;
}

void SlotAllocator::raise_fences(std::span<const SlotId> slots, Fence fence) {
  if (fence == Fence{}) return;
  for (const SlotId slot : slots) raise_fence(slot, fence);
}

std::uint32_t SlotAllocator::remove_reader(SlotId slot) {
  Slot& s = slots_[slot.value()];
  TERRACE_CHECK(s.readers() > 0);
  --readers_total_;
  ++reads_ended_;
  return --s.note;
}

/// The use of a slot that is ready, with one reader or none.
SlotAllocator::SlotUse SlotAllocator::ready_use(bool read, bool evicting) {
  SlotUse use;
  use.set_state(SlotState::ready);
  use.note = read ? 1 : 0;
  use.evicting = evicting ? 1 : 0;
  return use;
}

void SlotAllocator::add_readers(std::span<const SlotId> slots, bool evicting) {
  if (replace_alike(slots, ready_use(false, false), ready_use(true, evicting))) {
    readers_total_ += slots.size();
    if (evicting) evicting_total_ += slots.size();
    return;
  }
  for (const SlotId slot : slots) {
    add_reader(slot);
    if (evicting) set_evicting(slot, true);
  }
}

bool SlotAllocator::end_reads(std::span<const SlotId> slots, bool evicting) {
  if (!replace_alike(slots, ready_use(true, evicting), ready_use(false, false))) return false;
  readers_total_ -= slots.size();
  reads_ended_ += slots.size();
  if (evicting) evicting_total_ -= slots.size();
  return true;
}

Fence SlotAllocator::fence(SlotSpan slots) const {
  Fence last{};
  for (std::uint32_t i = slots.first.value(); i < slots.end(); ++i) last = std::max(last, fence(SlotId{i}));
  return last;
}

std::uint32_t SlotAllocator::load(SlotId slot) const {
  const Slot& s = slots_[slot.value()];
  return s.state() == SlotState::filling && s.note > 0 ? (s.note >> Slot::source_bits) - 1 : no_load;
}

Source SlotAllocator::source(SlotId slot) const {
  TERRACE_CHECK(load(slot) != no_load);
  return static_cast<Source>(slots_[slot.value()].note & ((1U << Slot::source_bits) - 1));
}

void SlotAllocator::set_evicting(SlotId slot, bool evicting) {
  Slot& s = slots_[slot.value()];
  if ((s.evicting != 0) == evicting) return;
  s.evicting = evicting ? 1 : 0;
  evicting ? ++evicting_total_ : --evicting_total_;
  if (closed(slot)) evicting ? ++closed_evicting_ : --closed_evicting_;
}

void SlotAllocator::raise_fence(SlotId slot, Fence fence) {
  if (fence <= this->fence(slot)) return;
  slots_[slot.value()].fence = std::bit_cast<std::array<std::uint32_t, 2>>(fence);
}

Ledger SlotAllocator::ledger() const {
  return {count(SlotState::free),        count(SlotState::held), count(SlotState::filling), count(SlotState::ready),
          count(SlotState::quarantined), count(SlotState::null), count(SlotState::retired), slots_.size()};
}

void SlotAllocator::check_invariants() const {
  free_.check_invariants();
  TERRACE_CHECK(free_.size() + closed_free_.size() == count(SlotState::free));
  TERRACE_CHECK(ledger().balanced());
  std::array<std::uint64_t, slot_state_count> counts{};
  std::uint64_t readers = 0;
  std::uint64_t evicting = 0;
  std::uint64_t closed_slots = 0;
  std::uint64_t closed_and_ready = 0;
  std::uint64_t closed_and_evicting = 0;
  for (std::uint32_t i = 0; i < slots_.size(); ++i) {
    const Slot& s = slots_[i];
    ++counts[static_cast<std::size_t>(s.state())];
    readers += s.readers();
    evicting += s.evicting;
    closed_slots += s.closed;
    closed_and_ready += s.closed != 0 && s.state() == SlotState::ready ? 1 : 0;
    closed_and_evicting += s.closed & s.evicting;
    if (retires_at_once_) TERRACE_CHECK((s.closed != 0) == (i >= capacity_) && (s.closed == 0 || s.state() != SlotState::free));
    TERRACE_CHECK(free_.contains(SlotId{i}) == (s.state() == SlotState::free && s.closed == 0));
    if (s.evicting != 0) TERRACE_CHECK(s.state() == SlotState::ready);
    if (s.note > 0) TERRACE_CHECK(s.state() == SlotState::ready || s.state() == SlotState::filling);
  }
  TERRACE_CHECK(counts == counts_);
  TERRACE_CHECK(readers == readers_total_);
  TERRACE_CHECK(evicting == evicting_total_);
  TERRACE_CHECK(closed_slots == closed_total_);
  TERRACE_CHECK(closed_and_ready == closed_ready_);
  for (const SlotId slot : retired_free_) TERRACE_CHECK(state(slot) == SlotState::retired && !closed(slot));
  for (const SlotId slot : closed_free_) TERRACE_CHECK(state(slot) == SlotState::free && closed(slot));
  TERRACE_CHECK(closed_and_evicting == closed_evicting_);
}

}  // namespace terrace
