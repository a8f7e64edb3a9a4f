#include "runtime/tiering/host_room.hpp"

namespace terrace {
namespace {

Residency::PathOrder order_of(SwapOutPurpose purpose) {
  return leaves(purpose) ? Residency::PathOrder::from_end : Residency::PathOrder::from_begin;
}

}  // namespace

HostRoom::Answer HostRoom::swap_out(BlockRef block, SwapOutPurpose purpose) {
  if (wants_.empty()) {
    const std::uint64_t tenant = residency_.tree().name_space(block);
    if (const std::optional<SlotId> slot = take(order_of(purpose), tenant, Unsaved::goes_all_the_same)) {
      swap_outs_.begin(block, *slot, purpose);
      return Answer::begun;
    }
    if (!in_transition()) return Answer::impossible;
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

std::optional<SlotId> HostRoom::take_for_landing(std::uint64_t tenant) {
  const std::optional<SlotId> slot = take(Residency::PathOrder::from_begin, tenant, Unsaved::stays);
  if (slot) ++landing_;
  return slot;
}

std::optional<SlotId> HostRoom::take(Residency::PathOrder order, std::uint64_t tenant, Unsaved unsaved) {
  // A tier that was made smaller has no room for one more before all of its excess has gone, which shrink() saves first.
  if (residency_.host_used() > residency_.host_blocks() && unsaved == Unsaved::goes_all_the_same) unsaved = Unsaved::is_saved;
  for (;;) {
    if (std::optional<SlotId> slot = residency_.take_host(order)) return slot;
    if (!evict_one(tenant, unsaved)) return std::nullopt;
  }
}

bool HostRoom::evict_one(std::optional<std::uint64_t> tenant, Unsaved unsaved) {
  const auto asker = tenant ? std::optional{Quotas::Asker{*tenant, 1}} : std::nullopt;
  const std::optional<BlockRef> victim = residency_.quotas().victim(Tier::host, asker);
  return victim && evict(*victim, unsaved);
}

bool HostRoom::evict(BlockRef victim, Unsaved unsaved) {
  const bool costs_a_write = write_back_ && !residency_.copy(victim, Tier::device).present() && !residency_.saved(victim);
  if (costs_a_write) {
    if (unsaved == Unsaved::stays) return false;
    if (persists_.save_now(victim) == Persists::Saved::later) {
      if (unsaved == Unsaved::is_saved) return false;
      ++stats_.persist_no_room;
    }
  }
  departures_.drop_now(victim, Tier::host);
  return true;
}

/// (What storage reads into the tier is no concern of the link's.)
bool HostRoom::in_transition() const {
  const SlotPool& arena = residency_.pool(Tier::host);
  return arena.count(SlotState::filling) > landing_ || arena.readers_total() > 0 || arena.count(SlotState::quarantined) > 0;
}

/// What the tier holds beyond its size, after that became smaller.
bool HostRoom::shrink() {
  bool changed = false;
  // Those in chunks that are to go leave in any case (Resizing); it takes the oldest only for what is missing then.
  const std::uint64_t leave = residency_.pool(Tier::host).closed_ready() > 0 ? residency_.leaving_host_unpinned() : 0;
  while (residency_.host_used() > residency_.host_blocks() + leave) {
    if (!evict_one(std::nullopt, Unsaved::is_saved)) break;  // pinned, read, or still to be saved: there will be another call
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
    const bool needless = rescued || residency_.copy(want.block, Tier::host).present();
    if (!needless) {
      const std::uint64_t tenant = residency_.tree().name_space(want.block);
      if (const std::optional<SlotId> slot = take(order_of(want.purpose), tenant, Unsaved::goes_all_the_same)) {
        swap_outs_.begin(want.block, *slot, want.purpose);
      } else if (in_transition()) {
        break;
      }
    }
    wants_.pop_front();
    departures_.reader_gone(want.block, Tier::device);
    changed = true;
  }
  return changed;
}

}  // namespace terrace
