#include "runtime/host_room.hpp"

namespace terrace {
namespace {

Residency::PathOrder order_of(SwapOutPurpose purpose) {
  return leaves(purpose) ? Residency::PathOrder::from_end : Residency::PathOrder::from_begin;
}

}  // namespace

HostRoom::Answer HostRoom::swap_out(BlockRef block, SwapOutPurpose purpose) {
  if (wants_.empty()) {
    const std::uint64_t tenant = residency_.tree().name_space(block);
    std::optional<SlotId> slot = take_now(order_of(purpose), tenant);
    Evicted evicted = Evicted::none;
    if (!slot) {
      evicted = evict_one(WriteBack::yes, tenant);
      if (evicted == Evicted::now) slot = residency_.take_host(order_of(purpose));
    }
    if (slot) {
      swap_outs_.begin(block, *slot, purpose);
      return Answer::begun;
    }
    if (evicted == Evicted::none && !in_transition()) return Answer::impossible;
  }
  // The wish itself reads the copy, so that it is there when its turn comes.
  if (leaves(purpose)) {
    departures_.hold_leaving(block, Tier::device);
  } else {
    residency_.hold(block, Tier::device);
  }
  wants_.push_back({block, purpose});
  return Answer::waiting;
}

std::optional<SlotId> HostRoom::take_now(Residency::PathOrder order, std::uint64_t tenant) {
  for (;;) {
    if (std::optional<SlotId> slot = residency_.take_host(order)) return slot;
    if (evict_one(WriteBack::no, tenant) != Evicted::now) return std::nullopt;
  }
}

HostRoom::Evicted HostRoom::evict_one(WriteBack write_back, std::optional<std::uint64_t> tenant) {
  const auto asker = tenant ? std::optional{Quotas::Asker{*tenant, 1}} : std::nullopt;
  const std::optional<BlockRef> victim = residency_.quotas().victim(Tier::host, asker);
  if (!victim) return Evicted::none;
  if (write_back == WriteBack::no && costs_a_write(*victim)) return Evicted::none;
  // Where somebody waits: not for a write that takes longer than computing what it writes.
  const bool too_slow = tenant && persists_.slow();
  return evict(*victim, too_slow ? SaveFirst::no : SaveFirst::yes);
}

bool HostRoom::costs_a_write(BlockRef victim) const {
  return write_back_ && !residency_.copy(victim, Tier::device).present() && !residency_.stored(victim);
}

HostRoom::Evicted HostRoom::evict(BlockRef victim, SaveFirst save) {
  if (save == SaveFirst::yes && costs_a_write(victim)) {
    const SlotId slot = residency_.copy(victim, Tier::host).slot();
    departures_.hold_leaving(victim, Tier::host);
    persists_.begin(victim);
    // Begun, the persist reads the copy and keeps it alive until it is stored; refused, the copy goes now.
    departures_.reader_gone(victim, Tier::host);
    return residency_.pool(Tier::host).readers(slot) > 0 ? Evicted::later : Evicted::now;
  }
  departures_.drop_now(victim, Tier::host);
  return Evicted::now;
}

bool HostRoom::in_transition() const {
  const SlotPool& arena = residency_.pool(Tier::host);
  return arena.count(SlotState::filling) > 0 || arena.readers_total() > 0 || arena.count(SlotState::quarantined) > 0;
}

/// What the tier holds beyond its size, after that became smaller.
bool HostRoom::shrink() {
  bool changed = false;
  const SlotPool& arena = residency_.pool(Tier::host);
  // Those in chunks that are to go leave in any case (Resizing); it takes the oldest only for what is missing then.
  const std::uint64_t leave = arena.closed_ready() > 0 ? residency_.leaving_host_unpinned() : 0;
  while (residency_.host_used() > residency_.host_blocks() + arena.leaving_total() + leave) {
    if (evict_one(WriteBack::yes, std::nullopt) == Evicted::none) break;  // pinned, or read: there will be another call
    changed = true;
  }
  return residency_.retire_host_slots() || changed;
}

bool HostRoom::pump() {
  bool changed = shrink();
  while (!wants_.empty()) {
    const Want want = wants_.front();
    const SlotPool& device = residency_.pool(Tier::device);
    const SlotId source = residency_.copy(want.block, Tier::device).slot();
    const bool rescued = leaves(want.purpose) && !device.leaving(source);
    if (rescued || residency_.copy(want.block, Tier::host).present()) {
      wants_.pop_front();
      departures_.reader_gone(want.block, Tier::device);
      changed = true;
      continue;
    }
    if (const std::optional<SlotId> slot = residency_.take_host(order_of(want.purpose))) {
      wants_.pop_front();
      swap_outs_.begin(want.block, *slot, want.purpose);
      departures_.reader_gone(want.block, Tier::device);
      changed = true;
      continue;
    }
    if (residency_.pool(Tier::host).leaving_total() >= wants_.size()) break;
    const Evicted evicted = evict_one(WriteBack::yes, residency_.tree().name_space(want.block));
    if (evicted == Evicted::none) {
      if (in_transition()) break;
      wants_.pop_front();
      departures_.reader_gone(want.block, Tier::device);
    }
    changed = true;
  }
  return changed;
}

}  // namespace terrace
