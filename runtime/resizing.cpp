#include "runtime/resizing.hpp"

#include "radix/copy.hpp"

#include <algorithm>

namespace terrace {

/// Slots that nobody can be asked to give up, and those that are promised.
std::uint64_t Resizing::needed(Tier tier) const {
  const std::uint64_t unpinned = residency_.tree().unpinned(tier);
  if (tier == Tier::host) return residency_.host_used() - unpinned;
  const SlotPool& device = residency_.pool(Tier::device);
  return device.in_use() - device.count(SlotState::free) - unpinned + device_room_.promised();
}

Result<void> Resizing::resize(Tier tier, std::uint32_t blocks) {
  if (tier == Tier::storage) return Errc::invalid_argument;
  const SlotPool& pool = residency_.pool(tier);
  const bool device = tier == Tier::device;
  const std::uint64_t slots = std::uint64_t{blocks} + (device ? first_slot_ : residency_.staging_blocks());
  if (device && slots <= pool.count(SlotState::null)) return Errc::invalid_argument;
  if (slots >= Copy::slots_max) return Errc::never_fits;
  const bool smaller = device ? slots < pool.capacity() : blocks < residency_.host_blocks();
  if (smaller && needed(tier) > (device ? slots : blocks)) return Errc::no_room;
  if (device) {
    residency_.resize_device(static_cast<std::uint32_t>(slots));
    seen_ = {};
  } else {
    residency_.resize_host(blocks);
  }
  return {};
}

std::uint64_t Resizing::retiring(Tier tier) const {
  if (tier == Tier::host) return residency_.host_retiring();
  const SlotPool& device = residency_.pool(Tier::device);
  return device.in_use() - std::min<std::uint64_t>(device.in_use(), device.capacity());
}

Resizing::Seen Resizing::look() const {
  const SlotPool& device = residency_.pool(Tier::device);
  return {residency_.tree().unpinned(Tier::device), device.readers_total(), device.leaving_total(),
          residency_.retiring().size()};
}

bool Resizing::pump() {
  auto& entries = residency_.retiring();
  if (entries.empty() || look() == seen_) return false;
  const SlotPool& device = residency_.pool(Tier::device);
  bool changed = false;
  for (std::size_t i = 0; i < entries.size();) {
    const Residency::Retiring entry = entries[i];
    if (device.state(entry.slot) != SlotState::ready) {
      entries[i] = entries.back();
      entries.pop_back();
      continue;
    }
    if (device.retiring_and_leaving() >= leaving_max) break;  // those that leave change what look() sees when they have left
    changed |= give_up(entry.block);
    ++i;
  }
  seen_ = look();
  return changed;
}

/// The block's copy with those that stand on it, from their ends; none while one of them is read.
bool Resizing::give_up(BlockRef block) {
  const PrefixTree& tree = residency_.tree();
  if (tree.pinned(block) || tree.hidden(block)) return false;  // (what is hidden goes by itself)
  below_.assign(1, block);
  tree.collect_below(block, below_);
  const auto state = [&](BlockRef at) { return residency_.copy(at, Tier::device).state(); };
  if (std::ranges::any_of(below_, [&](BlockRef at) { return state(at) == CopyState::busy; })) return false;
  std::erase_if(below_, [&](BlockRef at) { return state(at) != CopyState::ready; });
  for (auto at = below_.rbegin(); at != below_.rend(); ++at) {
    // (What goes to storage has its ancestors copied there first: those are read from then on, and go when that ends.)
    if (state(*at) == CopyState::ready) device_room_.give_up(*at);
  }
  return !below_.empty();
}

}  // namespace terrace
