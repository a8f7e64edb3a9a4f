#include "runtime/departures.hpp"

namespace terrace {

void Departures::hold_leaving(BlockRef block, Tier tier) {
  residency_.hold(block, tier);
  residency_.set_leaving(block, tier, true);
}

void Departures::reader_gone(BlockRef block, Tier tier) {
  const SlotId slot = residency_.copy(block, tier).slot();
  const bool leaving = residency_.pool(tier).leaving(slot);
  const bool wanted = residency_.tree().pinned(block);
  if (leaving && wanted) residency_.set_leaving(block, tier, false);
  if (!residency_.unhold(block, tier)) return;
  if (!wanted && (leaving || !residency_.supported(block, tier))) drop_now(block, tier);
}

void Departures::drop_unsupported(BlockRef block, Tier tier) {
  if (residency_.copy(block, tier).state() != CopyState::ready || residency_.tree().pinned(block)) return;
  if (!residency_.supported(block, tier)) drop_now(block, tier);
}

void Departures::drop_now(BlockRef block, Tier tier) {
  const bool host_has_it = tier == Tier::device && residency_.copy(block, Tier::host).present();
  const bool device_has_it = tier == Tier::host && residency_.copy(block, Tier::device).present();
  const bool storage_has_it = residency_.copy(block, Tier::storage).present();
  ++(tier == Tier::device ? stats_.evicted_device : stats_.evicted_host);
  ++(host_has_it || device_has_it || storage_has_it ? stats_.dropped_clean : stats_.dropped_lost);

  const PrefixTree& tree = residency_.tree();
  // (A device copy that goes because it lost its support may have others below that still have theirs, in it.)
  const bool orphans =
      (tier == Tier::device && tree.any_staying_below(block, Tier::device)) ||
      (!host_has_it && !device_has_it && tree.any_staying_below(block, Tier::host));
  residency_.drop(block, tier);
  // Whoever follows in the host tier stood on this copy. (Then the block is still in the tree: others follow it.)
  if (orphans) residency_.drop_orphans_below(block);
}

void Departures::drop_now(Run victims, bool clean) {
  stats_.evicted_device += victims.size();
  (clean ? stats_.dropped_clean : stats_.dropped_lost) += victims.size();
  residency_.drop(victims, Tier::device);
}

}  // namespace terrace
