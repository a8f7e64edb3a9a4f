#include "runtime/cache/pool/host_slot_allocator.hpp"

#include <algorithm>
#include <span>

namespace terrace {

bool HostSlotAllocator::swap_out(BlockRef block, SwapOutPurpose purpose) {
  if (!swap_outs_.allowed()) return false;
  if (wants_.empty()) {
    if (begin_now(block, purpose)) return true;
    if (!in_transition()) return false;
  }
  // The waiting swap-out holds the device copy, so that the copy is still there when its turn comes.
  swap_outs_.hold(block, purpose);
  wants_.push_back({block, purpose});
  return true;
}

/// Begins the swap-out if there is a slot now. Returns false if there is none.
bool HostSlotAllocator::begin_now(BlockRef block, SwapOutPurpose purpose) {
  const auto order = evicts(purpose) ? Residency::PrefixOrder::from_end : Residency::PrefixOrder::from_begin;
  const std::optional<SlotId> slot = take(order, residency_.tree().tenant(block), Unsaved::evict_anyway);
  if (slot) swap_outs_.begin(block, *slot, purpose);
  return slot.has_value();
}

std::uint32_t HostSlotAllocator::swap_out(Run run, SwapOutPurpose purpose) {
  // While the block after the run is being copied, no copy of this node or of its ancestors is a victim of the host. So all
  // victims can be chosen before the copies begin: the choice is the same as if they were chosen one by one. With quotas this is
  // not true, because each copy changes the count of its tenant.
  const PrefixTree& tree = residency_.tree();
  if (!swap_outs_.allowed()) return 0;
  const bool shielded = residency_.copy({run.node, run.end}, Tier::host).state() == CopyState::filling;
  if (!shielded || !wants_.empty() || residency_.quotas().any() || residency_.host_used() > residency_.host_blocks()) return 0;
  const std::span<const Copy> in_host = tree.copies(run, Tier::host);
  // Only the end of the run without host copies is copied.
  const auto with_copy = std::find_if(in_host.rbegin(), in_host.rend(), [](Copy copy) { return copy.present(); });
  run.begin = run.end - static_cast<std::uint32_t>(with_copy - in_host.rbegin());
  if (residency_.host_free() == 0) evict_run(run.size());
  slots_.clear();
  residency_.take_host(run.size(), slots_);
  run.begin = run.end - static_cast<std::uint32_t>(slots_.size());
  if (run.size() > 0) swap_outs_.begin(run, slots_, purpose);
  return run.size();
}

/// Evicts at most `most` victims: duplicates as evict_one() does, and then a run. Stops at the first one that has to be stored
/// first.
void HostSlotAllocator::evict_run(std::uint32_t most) {
  while (most > 0 && residency_.duplicate() && evict_one(std::nullopt, Unsaved::stays)) --most;
  if (most == 0) return;
  const std::optional<Run> victims = residency_.quotas().victims(Tier::host, most, std::nullopt);
  if (!victims) return;
  const PrefixTree& tree = residency_.tree();
  const bool must_be_saved = config_.stores_by(WritePolicy::write_back);
  Run run = *victims;
  std::uint32_t clean = 0;
  if (tree.any_in_node(run, Tier::device) || tree.any_in_node(run, Tier::storage)) {
    for (run.begin = run.end; run.begin > victims->begin; --run.begin) {
      const bool survives = residency_.survives({run.node, run.begin - 1}, Tier::host);
      if (!survives && must_be_saved) break;
      clean += survives ? 1 : 0;
    }
  } else if (must_be_saved) {
    return;
  }
  if (run.size() > 0) deferred_eviction_.drop_now(run, Tier::host, clean);
}

std::optional<SlotId> HostSlotAllocator::take_for_landing(TenantId tenant, LandsIn from) {
  if (from == LandsIn::free_or_duplicates && residency_.host_free() == 0 && !residency_.duplicate()) return std::nullopt;
  const std::optional<SlotId> slot = take(Residency::PrefixOrder::from_begin, tenant, Unsaved::stays);
  if (slot) ++landing_;
  return slot;
}

std::optional<SlotId> HostSlotAllocator::take(Residency::PrefixOrder order, TenantId tenant, Unsaved unsaved) {
  // A tier that was made smaller first evicts its excess. shrink() stores those copies, so this call must not drop them unsaved.
  if (residency_.host_used() > residency_.host_blocks() && unsaved == Unsaved::evict_anyway) unsaved = Unsaved::is_saved;
  for (;;) {
    if (std::optional<SlotId> slot = residency_.take_host(order)) return slot;
    if (!evict_one(tenant, unsaved)) return std::nullopt;
  }
}

bool HostSlotAllocator::evict_one(std::optional<TenantId> tenant, Unsaved unsaved) {
  // Duplicates go before the choice of Quotas, even those of a tenant within its quota: the device keeps the block.
  if (const auto duplicate = residency_.duplicate()) return evict(*duplicate, unsaved);
  const auto asker = tenant ? std::optional{Quotas::Asker{*tenant, 1}} : std::nullopt;
  const std::optional<BlockRef> victim = residency_.quotas().victim(Tier::host, asker);
  return victim && evict(*victim, unsaved);
}

bool HostSlotAllocator::evict(BlockRef victim, Unsaved unsaved) {
  if (!residency_.survives(victim, Tier::host) && !storage_writer_.lets_go(victim, unsaved)) return false;
  deferred_eviction_.drop_now(victim, Tier::host);
  return true;
}

/// Copies that reads from storage fill (`landing_` of them) do not count: a swap-out does not wait for a disk.
bool HostSlotAllocator::in_transition() const {
  const SlotAllocator& arena = residency_.slots_of(Tier::host);
  return arena.count(SlotState::filling) > landing_ || arena.readers_total() > 0 || arena.count(SlotState::quarantined) > 0;
}

/// Evicts what the tier holds beyond its size, after it was made smaller.
bool HostSlotAllocator::shrink() {
  bool changed = false;
  // PoolResizer evicts the copies in closed slots. So this evicts only what exceeds the size without those copies.
  const std::uint64_t leave = residency_.slots_of(Tier::host).closed_ready() > 0 ? residency_.retiring_unpinned(Tier::host) : 0;
  while (residency_.host_used() > residency_.host_blocks() + leave) {
    if (!evict_one(std::nullopt, Unsaved::is_saved))
      break;  // the rest is pinned, read, or must be stored first; later calls go on
    changed = true;
  }
  return residency_.retire_host_slots() || changed;
}

bool HostSlotAllocator::pump() {
  if (residency_.slots_of(Tier::host).capacity() == 0) return false;  // there is no host tier and no staging
  bool changed = shrink();
  while (!wants_.empty()) {
    const Want want = wants_.front();
    const SlotAllocator& device = residency_.slots_of(Tier::device);
    const SlotId source = residency_.copy(want.block, Tier::device).slot();
    const bool eviction_cancelled = evicts(want.purpose) && !device.evicting(source);
    const bool needless = eviction_cancelled || residency_.copy(want.block, Tier::host).present() || !swap_outs_.allowed();
    // If it is needless, or impossible by now, the swap-out ends without a copy.
    if (!needless && !begin_now(want.block, want.purpose) && in_transition()) break;
    wants_.pop_front();
    deferred_eviction_.reader_gone(want.block, Tier::device);
    changed = true;
  }
  return changed;
}

}  // namespace terrace
