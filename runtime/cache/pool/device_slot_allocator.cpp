#include "runtime/cache/pool/device_slot_allocator.hpp"

#include "base/check.hpp"

#include <algorithm>

namespace terrace {

// ---- slots for requests: promise, wait, evict -----------------------------------------------------------------------------

bool DeviceSlotAllocator::can_promise(std::uint64_t slots) const {
  const SlotAllocator& device = residency_.slots_of(Tier::device);
  const std::uint64_t unpinned = residency_.tree().unpinned(Tier::device);
  const std::uint64_t there = device.count(SlotState::free) + unpinned;
  const std::uint64_t wanted = promised_ + slots;
  if (device.closed_ready() == 0 || there < wanted) return there >= wanted;
  // The slots of retiring_unpinned() will retire, so they cannot be promised.
  return there - residency_.retiring_unpinned(Tier::device) >= wanted;
}

void DeviceSlotAllocator::take_free(std::uint32_t count, std::optional<SlotId> after, std::vector<SlotId>& out) {
  if (!waiters_.empty()) return;  // free slots are promised to them
  residency_.take_device(count, after, out);
}

bool DeviceSlotAllocator::take_or_wait(std::uint32_t waiter, std::uint32_t slots, TenantId tenant, std::vector<SlotId>& out) {
  const std::size_t before = out.size();
  if (slots == 0) return true;
  if (waiters_.empty()) evict_for(slots, tenant);
  take_free(slots, std::nullopt, out);
  const std::uint32_t missing = slots - static_cast<std::uint32_t>(out.size() - before);
  if (missing == 0) return true;
  waiters_.push_back({waiter, missing, tenant});
  promised_ += missing;
  return false;
}

/// Drops victims that need not be copied down, as pump() would do for a waiter, until `slots` slots are free. Stops at the first
/// victim that has to be copied down. If that suffices, the request gets its slots at once, and does not become a waiter.
void DeviceSlotAllocator::evict_for(std::uint32_t slots, TenantId tenant) {
  const SlotAllocator& device = residency_.slots_of(Tier::device);
  // Evictions under way may free enough slots, and those of a resize come first.
  if (device.evicting_total() > 0 || device.closed_ready() > 0) return;
  while (device.count(SlotState::free) < slots) {
    const auto missing = static_cast<std::uint32_t>(slots - device.count(SlotState::free));
    const std::uint32_t most = victims_max(evictions_for(missing));
    const std::optional<Run> victims = residency_.quotas().victims(Tier::device, most, Quotas::Asker{tenant, missing});
    if (!victims || !drop_without_copying(*victims)) return;
  }
}

/// After each block that is lost, its companions are the next victims.
std::uint32_t DeviceSlotAllocator::victims_max(std::uint64_t wanted) const {
  return residency_.needs_companions() && !host_tier() ? 1 : static_cast<std::uint32_t>(wanted);
}

bool DeviceSlotAllocator::pump() {
  if (promised_ == 0) return false;
  const SlotAllocator& device = residency_.slots_of(Tier::device);
  bool changed = false;
  for (;;) {
    while (!waiters_.empty() && device.count(SlotState::free) > 0) {
      Waiter& first = waiters_.front();
      const std::size_t before = served_slots_.size();
      residency_.take_device(first.slots, std::nullopt, served_slots_);
      const auto got = static_cast<std::uint32_t>(served_slots_.size() - before);
      promised_ -= got;
      first.slots -= got;
      served_.push_back({first.id, got, first.slots == 0});
      changed = true;
      if (first.slots > 0) continue;
      // This waiter may give back some slots. The caller lets it do so before other waiters are served.
      waiters_.erase(waiters_.begin());
      return true;
    }
    // Evictions for a resize free no slots for the waiters, so they do not count.
    const std::uint64_t evicting = device.evicting_open();
    const std::uint64_t evictions_wanted = evictions_for(promised_);
    if (evicting >= evictions_wanted) break;
    const std::uint32_t wanted = victims_max(evictions_wanted - evicting);
    const std::optional<Run> victims = residency_.quotas().victims(Tier::device, wanted, asker_behind(evicting));
    if (!victims) break;  // transfers still read the others; pump() is called again when they end
    evict(*victims, SwapOutPurpose::evict);
    changed = true;
  }
  return changed;
}

/// The evictions under way serve the first waiters. So the next victims are for the first waiter that these evictions do not
/// cover, and Quotas must count its tenant: if that exceeds its quota, its own blocks are evicted first.
Quotas::Asker DeviceSlotAllocator::asker_behind(std::uint64_t on_their_way) const {
  for (const Waiter& waiter : waiters_) {
    if (on_their_way < waiter.slots) return {waiter.tenant, waiter.slots - on_their_way};
    on_their_way -= waiter.slots;
  }
  return {};
}

std::uint64_t DeviceSlotAllocator::missing(std::uint64_t evicting_ahead) const {
  const SlotAllocator& device = residency_.slots_of(Tier::device);
  const std::uint64_t evicting = device.evicting_open();
  const std::uint64_t evicting_for_waiters = evicting - std::min(evicting, evicting_ahead);
  return promised_ - std::min(promised_, evicting_for_waiters);
}

std::uint32_t DeviceSlotAllocator::promised_to(std::uint32_t id) const {
  const auto waiter = std::ranges::find(waiters_, id, &Waiter::id);
  return waiter == waiters_.end() ? 0 : waiter->slots;
}

void DeviceSlotAllocator::leave(std::uint32_t id) {
  const auto waiter = std::find_if(waiters_.begin(), waiters_.end(), [&](const Waiter& w) { return w.id == id; });
  if (waiter == waiters_.end()) return;
  promised_ -= waiter->slots;
  waiters_.erase(waiter);
}

// ---- how a victim is evicted ----------------------------------------------------------------------------------------------

/// Evicts blocks from the end of the run: as many as are evicted in the same way as the last one. Returns their number.
std::uint32_t DeviceSlotAllocator::evict(Run victims, SwapOutPurpose purpose) {
  if (const std::uint32_t dropped = drop_without_copying(victims)) return dropped;
  std::uint32_t end = victims.end;
  while (end > victims.begin) {
    const BlockRef block{victims.node, end - 1};
    // The eviction of the block after this one may have begun to store this one (StorageWriter::lets_go). Then a swap-out reads
    // the copy.
    if (residency_.copy(block, Tier::device).state() != CopyState::ready) break;
    if (end < victims.end && can_be_dropped(highest_below(block))) break;  // the next call drops such blocks together
    // In inclusive mode, each block is examined: not every block is copied to the host (wants_host).
    const std::uint32_t begun =
        end < victims.end && !inclusive() ? host_slots_.swap_out({victims.node, victims.begin, end}, purpose) : 0;
    if (begun == 0 && !evict_without_host_copy(block, purpose)) break;
    end -= std::max(begun, 1U);
  }
  return victims.end - end;
}

/// Drops blocks at the end of the run together, if no copy in a lower tier has to be made: a lower tier has them, or no lower
/// tier can take them, so that they are lost. Returns their number; 0 if the last block has to be evicted by itself, because it
/// may have to be copied down, or host copies may depend on it.
std::uint32_t DeviceSlotAllocator::drop_without_copying(Run victims) {
  const Tier below = highest_below({victims.node, victims.end - 1});
  if (!can_be_dropped(below)) return 0;
  const Run alike = alike_at_end(victims, below);
  deferred_eviction_.drop_victims(alike, Tier::device, below == Tier::device ? 0 : alike.size());
  return alike.size();
}

/// Returns true if the device copy of a block can be dropped without a copy to a lower tier. `below` is highest_below() of the
/// block.
bool DeviceSlotAllocator::can_be_dropped(Tier below) const {
  return below == Tier::host || (!host_tier() && (below == Tier::storage || !config_.stores_by(WritePolicy::write_back)));
}

/// Returns the highest tier below the device that has the block, or the device if none has.
Tier DeviceSlotAllocator::highest_below(BlockRef block) const {
  if (residency_.copy(block, Tier::host).present()) return Tier::host;
  return residency_.saved(block) ? Tier::storage : Tier::device;
}

/// Returns the longest end of the run whose blocks all have the same highest_below() as the last block.
Run DeviceSlotAllocator::alike_at_end(Run victims, Tier below) const {
  const PrefixTree& tree = residency_.tree();
  const bool none_below = !tree.any_in_node(victims, Tier::host) && !tree.any_in_node(victims, Tier::storage);
  Run alike = victims;
  if (none_below) return alike;
  for (alike.begin = alike.end - 1; alike.begin > victims.begin; --alike.begin) {
    if (highest_below({victims.node, alike.begin - 1}) != below) break;
  }
  return alike;
}

/// Evicts a copy that the host does not have: copies it to the host, stores it, or drops it, in this order of preference. Returns
/// false if the copy stays: it must be stored first, staging has no room for it, and no request waits for the slot.
bool DeviceSlotAllocator::evict_without_host_copy(BlockRef block, SwapOutPurpose purpose) {
  TERRACE_CHECK(!residency_.copy(block, Tier::host).present());
  if (host_tier() && wants_host(block) && host_slots_.swap_out(block, purpose)) return true;
  using Unsaved = StorageWriter::Unsaved;
  const Unsaved unsaved = purpose == SwapOutPurpose::evict_ahead ? Unsaved::is_saved : Unsaved::evict_anyway;
  if (!storage_writer_.lets_go(block, unsaved)) return false;
  // If a swap-out to staging reads the copy, the copy is dropped when that ends.
  if (residency_.copy(block, Tier::device).state() == CopyState::busy) {
    residency_.set_evicting(block, Tier::device, true);
    return true;
  }
  deferred_eviction_.drop_now(block, Tier::device);
  return true;
}

/// Returns true if the block, which has no host copy, must get one before its device copy is evicted.
bool DeviceSlotAllocator::wants_host(BlockRef block) const {
  // In inclusive mode the block was copied to the host when it was committed, and the host has evicted that copy since. It is
  // copied again only if other host copies depend on it.
  if (residency_.tree().any_staying_below(block, Tier::host)) return true;
  if (inclusive()) return false;
  // The slot of a duplicate costs no hit.
  if (!config_.host_admission || residency_.host_free() > 0 || residency_.duplicate() || residency_.host_admits(block))
    return true;
  ++stats_.not_admitted;
  return false;
}

// ---- although no request waits --------------------------------------------------------------------------------------------

std::uint32_t DeviceSlotAllocator::evict_ahead(std::uint32_t slots) {
  if (!host_slots_.can_copy()) return 0;  // no request waits for these slots, and the blocks would be lost
  const std::optional<Run> victims = residency_.quotas().victims(Tier::device, slots, std::nullopt);
  return victims ? evict(*victims, SwapOutPurpose::evict_ahead) : 0;
}

bool DeviceSlotAllocator::give_up(BlockRef block) {
  if (highest_below(block) != Tier::host) return evict_without_host_copy(block, SwapOutPurpose::evict_ahead);
  deferred_eviction_.drop_now(block, Tier::device);
  return true;
}

// ---- for a caller that cannot wait ----------------------------------------------------------------------------------------

bool DeviceSlotAllocator::choose(std::uint32_t slots, Quotas::Asker asker) {
  const SlotAllocator& device = residency_.slots_of(Tier::device);
  for (std::uint32_t gained = 0; gained < slots;) {
    const std::optional<BlockRef> victim = choose_one(asker);
    if (!victim) return false;
    // The slot of a pool that shrinks may retire when it is freed. Then the caller does not get it.
    if (!device.closed(residency_.copy(*victim, Tier::device).slot())) ++gained;
    // The policy does not name an evicting copy again, and the block before it can be the next victim.
    residency_.hold_evicting(*victim, Tier::device);
    chosen_.push_back(*victim);
    if (asker.slots > 0) --asker.slots;
  }
  return true;
}

std::optional<BlockRef> DeviceSlotAllocator::choose_one(Quotas::Asker asker) {
  // No bytes are lost if a lower tier has the block, too. So this looks for such a copy among the next few victims. It holds the
  // victims that it skips until the end of the search, so that the policy does not name them again. If skipped_max victims have
  // no other copy, or the policy names no more victims, it takes the first victim.
  skipped_.clear();
  const auto next = [&] { return residency_.quotas().victim(Tier::device, asker); };
  std::optional<BlockRef> victim = next();
  while (victim && !residency_.usable(*victim, Tier::host) && !residency_.stored(*victim) && skipped_.size() < skipped_max) {
    residency_.hold(*victim, Tier::device);
    skipped_.push_back(*victim);
    victim = next();
  }
  for (const BlockRef block : skipped_) residency_.unhold(block, Tier::device);
  if (!victim || skipped_.size() == skipped_max) victim = next();
  return victim;
}

void DeviceSlotAllocator::give_up_chosen() {
  for (const BlockRef block : chosen_) deferred_eviction_.will_drop(block, Tier::device);
  for (const BlockRef block : chosen_) deferred_eviction_.reader_gone(block, Tier::device);
  deferred_eviction_.drop_useless();
  chosen_.clear();
}

void DeviceSlotAllocator::keep_chosen() {
  for (const BlockRef block : chosen_) {
    residency_.set_evicting(block, Tier::device, false);
    residency_.unhold(block, Tier::device);
  }
  chosen_.clear();
}

}  // namespace terrace
