#include "runtime/cache/index/deferred_eviction.hpp"

#include "base/check.hpp"

#include <optional>

namespace terrace {

void DeferredEviction::reader_gone(BlockRef block, Tier tier) {
  const SlotId slot = residency_.copy(block, tier).slot();
  const bool evicting = residency_.slots_of(tier).evicting(slot);
  const bool wanted = residency_.tree().pinned(block);
  if (evicting && !wanted && residency_.slots_of(tier).readers(slot) == 1) {  // the usual case: a swap-out has ended
    residency_.unhold_before_drop(block, tier);
    return drop_now(block, tier);
  }
  if (evicting && wanted) residency_.set_evicting(block, tier, false);
  if (!residency_.unhold(block, tier)) return;
  if (wanted) return;
  if (evicting || !residency_.supported(block, tier)) return drop_now(block, tier);
  not_needed(block);
}

void DeferredEviction::drop_unsupported(BlockRef block, Tier tier) {
  if (residency_.copy(block, tier).state() != CopyState::ready || residency_.tree().pinned(block)) return;
  if (!residency_.supported(block, tier)) drop_now(block, tier);
}

void DeferredEviction::drop_now(BlockRef block, Tier tier) {
  ++(tier == Tier::device ? stats_.evicted_device : stats_.evicted_host);
  ++(residency_.survives(block, tier) ? stats_.dropped_clean : stats_.dropped_lost);

  const PrefixTree& tree = residency_.tree();
  const bool only_here = !residency_.copy(block, tier == Tier::device ? Tier::host : Tier::device).present();
  // Host copies may depend on a device copy. So may device copies, if this copy is dropped because it is not supported itself.
  const bool orphans = (tier == Tier::device && tree.any_staying_below(block, Tier::device)) ||
                       (only_here && tree.any_staying_below(block, Tier::host));
  residency_.drop(block, tier);
  // The block is still in the tree, because the orphans follow it.
  if (orphans) residency_.drop_orphans_below(block);
}

void DeferredEviction::drop_now(Run victims, Tier tier, std::uint32_t clean) {
  (tier == Tier::device ? stats_.evicted_device : stats_.evicted_host) += victims.size();
  stats_.dropped_clean += clean;
  stats_.dropped_lost += victims.size() - clean;
  residency_.drop(victims, tier);
}

void DeferredEviction::drop_victims(Run victims, Tier tier, std::uint32_t clean) {
  if (!residency_.needs_companions()) return drop_now(victims, tier, clean);
  pin_before({victims.node, victims.begin}, tier);
  drop_now(victims, tier, clean);
  drop_useless();
}

void DeferredEviction::pin_before(BlockRef block, Tier tier) {
  if (block.depth == 0 || residency_.survives(block, tier)) return;
  const PrefixTree& tree = residency_.tree();
  const Prefix before = tree.first({block.node, block.depth + 1}, block.depth);
  // A block that goes itself, with its own call, must not be pinned.
  if (!residency_.ends_no_hit(before.last()) || residency_.copy(before.last(), tier).state() != CopyState::ready) return;
  residency_.pin(before);
  before_dropped_.push_back(before);
}

void DeferredEviction::drop_useless_before() {
  const PrefixTree& tree = residency_.tree();
  const Prefix before = before_dropped_.back();
  before_dropped_.pop_back();
  residency_.unpin(before);
  const auto can_go = [&](BlockRef block) {
    const auto rests = [&](Tier tier) { return residency_.copy(block, tier).at_rest() && !tree.any_staying_below(block, tier); };
    return residency_.ends_no_hit(block) && !tree.pinned(block) && !residency_.copy(block, Tier::storage).present() &&
           rests(Tier::device) && rests(Tier::host);
  };
  std::optional<BlockRef> next = tree.at(before, before.length - 1);
  while (next && can_go(*next)) {
    const BlockRef block = *next;
    const bool on_device = residency_.copy(block, Tier::device).present();
    const bool in_host = residency_.copy(block, Tier::host).present();
    // Read before the drop, because a block without copies leaves the tree.
    next.reset();
    if (block.depth > 0) {
      const BlockRef above = tree.parent(block);
      if (residency_.copy(above, Tier::device).present() || residency_.copy(above, Tier::host).present()) next = above;
    }
    if (in_host) drop_now(block, Tier::host);
    if (on_device) drop_now(block, Tier::device);
  }
}

void DeferredEviction::not_needed(BlockRef block) {
  const PrefixTree& tree = residency_.tree();
  for (bool goes_on = keeps_nothing_; goes_on;) {
    // A block that was swapped out to make room stays in the host, and is evicted there in the ordinary way.
    const bool in_host = residency_.copy(block, Tier::host).present();
    const bool at_rest = residency_.copy(block, Tier::device).state() == CopyState::ready && !in_host;
    if (!at_rest || tree.pinned(block) || residency_.wished(block) || kept_.contains(tree.key(block))) return;
    if (tree.any_staying_below(block, Tier::device) || tree.any_staying_below(block, Tier::host)) return;
    // Read before the drop, because a block without copies leaves the tree.
    const BlockRef above = block.depth > 0 ? tree.parent(block) : block;
    goes_on = block.depth > 0 && residency_.copy(above, Tier::device).present();
    residency_.drop(block, Tier::device);
    ++stats_.dropped_uncached;
    block = above;
  }
}

void DeferredEviction::keep(std::span<const BlockKey> keys) {
  if (!keeps_nothing_) return;
  for (const BlockKey& key : keys) ++kept_[key];
}

void DeferredEviction::end_keep(std::span<const BlockKey> keys) {
  if (!keeps_nothing_) return;
  for (const BlockKey& key : keys) {
    const auto kept = kept_.find(key);
    TERRACE_CHECK(kept != kept_.end());
    if (--kept->second == 0) kept_.erase(kept);
  }
}

}  // namespace terrace
