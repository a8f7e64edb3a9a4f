#include "runtime/cache/pool/pool_resizer.hpp"

#include "base/failure.hpp"
#include "radix/tree/copy.hpp"

#include <algorithm>

namespace terrace {

/// Number of slots whose contents cannot be evicted, plus the number of promised slots.
std::uint64_t PoolResizer::needed(Tier tier) const {
  const std::uint64_t unpinned = residency_.tree().unpinned(tier);
  if (tier == Tier::host) return residency_.host_used() - unpinned;
  const SlotAllocator& device = residency_.slots_of(Tier::device);
  return device.in_use() - device.count(SlotState::free) - unpinned + device_slots_.promised();
}

Result<void> PoolResizer::resize(Tier tier, std::uint32_t blocks, std::span<const SlotSpan> closing) {
  if (tier == Tier::storage) return Errc::invalid_argument;
  const SlotAllocator& pool = residency_.slots_of(tier);
  const bool device = tier == Tier::device;
  if (device && sizes_.engine_blocks > 0) {
    return failure<Errc::invalid_argument, "the device slots are the engine's (engine_owns_slots)">;
  }
  const std::uint64_t slots = std::uint64_t{blocks} + (device ? sizes_.first_slot : residency_.staging_blocks());
  if (device && slots <= pool.count(SlotState::null)) return failure<Errc::invalid_argument, "the device tier needs a block">;
  if (device && sizes_.device_blocks_max > 0 && blocks > sizes_.device_blocks_max) {
    return failure<Errc::invalid_argument, "the device tier has memory for fewer blocks (PoolOptions::device_blocks_max)">;
  }
  if (slots >= Copy::slots_max) return Errc::never_fits;
  const bool smaller = device ? slots < pool.capacity() : blocks < residency_.host_blocks_wanted();
  if (smaller && needed(tier) > (device ? slots : blocks)) {
    return failure<Errc::no_room, "requests use or were promised more blocks than the smaller tier would have">;
  }
  if (device) {
    residency_.resize_device(static_cast<std::uint32_t>(slots));
  } else {
    residency_.resize_host(blocks);
    for (const SlotSpan& chunk : closing) residency_.close_host(chunk);
  }
  seen_[index(tier)] = {};
  return {};
}

std::uint64_t PoolResizer::retiring(Tier tier) const {
  if (tier == Tier::host) return residency_.host_retiring();
  const SlotAllocator& device = residency_.slots_of(Tier::device);
  return device.in_use() - std::min<std::uint64_t>(device.in_use(), device.capacity());
}

void PoolResizer::open_host(SlotSpan slots) {
  residency_.open_host(slots);
  seen_[index(Tier::host)] = {};
}

std::uint32_t PoolResizer::first_in_use(SlotSpan slots) const {
  const SlotAllocator& arena = residency_.slots_of(Tier::host);
  std::uint32_t slot = slots.first.value();
  const std::uint32_t known = std::min(slots.end(), arena.capacity());
  while (slot < known && arena.state(SlotId{slot}) == SlotState::retired) ++slot;
  return slot < known ? slot : slots.end();
}

PoolResizer::Seen PoolResizer::look(Tier tier) const {
  return {.unpins = residency_.tree().unpins(),
          .reads_ended = residency_.slots_of(tier).reads_ended(),
          .entries = residency_.retiring(tier).size(),
          .writes_ended = storage_writer_.ended(),
          .copies_allowed = host_slots_.can_copy()};
}

bool PoolResizer::pump(Tier tier) {
  const auto& all = residency_.retiring(tier);
  if (look(tier) == seen_[index(tier)]) return false;
  const SlotAllocator& pool = residency_.slots_of(tier);
  bool changed = false;
  std::uint64_t later = 0;
  for (std::size_t i = 0; i < all.size() && later < evicting_max;) {
    const Residency::Retiring entry = all[i];
    if (pool.state(entry.slot) != SlotState::ready) {
      residency_.erase_retired(tier, i);
      continue;
    }
    // When one of these evictions ends, the result of look() changes, and pump() continues. Host copies are dropped at once, so
    // they need no bound.
    if (tier == Tier::device && pool.closed_evicting() >= evicting_max) break;
    const Gone gone = give_up(entry.block, tier);
    changed |= gone == Gone::yes;
    later += gone == Gone::later;
    ++i;
  }
  seen_[index(tier)] = look(tier);
  return changed;
}

/// Evicts the block's copy and those that depend on it, the last block first. Does nothing while one of them is read.
PoolResizer::Gone PoolResizer::give_up(BlockRef block, Tier tier) {
  const PrefixTree& tree = residency_.tree();
  if (tree.pinned(block) || tree.hidden(block)) return Gone::no;  // TieredPool drops hidden blocks
  below_.assign(1, block);
  // While the block is on the device, too, no copy depends on its host copy.
  if (tier == Tier::device || !residency_.copy(block, Tier::device).present()) tree.collect_below(block, below_);
  const auto state = [&](BlockRef at) { return residency_.copy(at, tier).state(); };
  if (std::ranges::any_of(below_, [&](BlockRef at) { return state(at) == CopyState::busy; })) return Gone::no;
  std::erase_if(below_, [&](BlockRef at) { return state(at) != CopyState::ready; });
  bool any = false;
  for (auto at = below_.rbegin(); at != below_.rend(); ++at) {
    // The eviction of a block may store its ancestors first. Then transfers read their copies, and a later call evicts them.
    if (state(*at) != CopyState::ready) continue;
    if (!(tier == Tier::device ? device_slots_.give_up(*at) : host_slots_.give_up(*at))) return any ? Gone::yes : Gone::later;
    any = true;
  }
  return any ? Gone::yes : Gone::no;
}

}  // namespace terrace
