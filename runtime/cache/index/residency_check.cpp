#include "base/check.hpp"
#include "runtime/cache/index/residency.hpp"

#include <array>
#include <set>

namespace terrace {

void Residency::check_invariants() const {
  tree_.check_invariants();
  device_.check_invariants();
  arena_.check_invariants();
  TERRACE_CHECK(host_used() <= host_blocks_ + host_retiring());
  for (const Tier tier : {Tier::device, Tier::host}) {
    std::uint64_t there = 0;
    for (const Retiring& entry : retiring(tier)) {
      if (slots_of(tier).state(entry.slot) != SlotState::ready) continue;
      ++there;
      TERRACE_CHECK(copy(entry.block, tier).usable() && copy(entry.block, tier).slot() == entry.slot);
    }
    TERRACE_CHECK(there == slots_of(tier).closed_ready());
  }
  TERRACE_CHECK(arena_.in_use() >= std::uint64_t{host_blocks_} + staging_blocks_);
  // There is a free slot for each slot that the budget of staging still allows.
  TERRACE_CHECK(arena_.count(SlotState::free) >= staging_free());
  TERRACE_CHECK(arena_.count(SlotState::held) + lent_count_ <= staging_blocks_);
  std::uint64_t lent = 0;
  for (std::uint32_t slot = 0; slot < lent_.size(); ++slot) {
    if (!lent_[slot]) continue;
    ++lent;
    TERRACE_CHECK(arena_.state(SlotId{slot}) == SlotState::ready && borrowers_[slot] > 0);
  }
  TERRACE_CHECK(lent == lent_count_);

  std::array<std::uint64_t, tier_count> copies{};
  std::uint64_t duplicates = 0;
  std::set<BlockKey> in_memory;
  tree_.for_each([&](BlockRef block) {
    for (const Tier tier : {Tier::device, Tier::host}) {
      const Copy now = copy(block, tier);
      if (!now.present()) continue;
      ++copies[index(tier)];
      const SlotAllocator& slots = slots_of(tier);
      const bool filling = now.state() == CopyState::filling;
      TERRACE_CHECK(slots.state(now.slot()) == (filling ? SlotState::filling : SlotState::ready));
      if (!filling) {
        const bool read = slots.readers(now.slot()) > 0;
        TERRACE_CHECK(read == (now.state() != CopyState::ready));
        TERRACE_CHECK(slots.evicting(now.slot()) == (now.state() == CopyState::evicting));
      }
    }
    const Copy in_host = copy(block, Tier::host);
    const bool owns = (in_host.present() || copy(block, Tier::device).present()) && !tree_.hidden(block);
    if (owns && !companions_.empty()) in_memory.insert(tree_.key(block));
    const CopyState on_device = copy(block, Tier::device).state();
    const bool both = in_host.state() == CopyState::ready && (on_device == CopyState::ready || on_device == CopyState::busy);
    const bool listed = in_host.usable() && duplicates_.contains(in_host.slot());
    TERRACE_CHECK(listed == (both && inclusion_ == InclusionPolicy::lazy_exclusive));
    if (listed) TERRACE_CHECK(tree_.same(duplicates_.block(in_host.slot()), block));
    duplicates += listed ? 1 : 0;
    const Copy in_storage = copy(block, Tier::storage);
    if (in_storage.present()) {
      ++copies[index(Tier::storage)];
      const std::optional<BlockRef> known = stored_block(in_storage.slot().value());
      TERRACE_CHECK(known.has_value());
      TERRACE_CHECK(copy(*known, Tier::storage) == in_storage);
    }
    check_closure(block);
  });
  for (const Tier tier : {Tier::device, Tier::host}) {
    const SlotAllocator& slots = slots_of(tier);
    TERRACE_CHECK(copies[index(tier)] == slots.count(SlotState::filling) + slots.count(SlotState::ready));
  }
  TERRACE_CHECK(duplicates == duplicates_.size());
  std::size_t companions = 0;
  for (const BlockKey& owner : in_memory) companions += companions_.of(owner);
  TERRACE_CHECK(companions == companions_.size());
  TERRACE_CHECK(copies[index(Tier::storage)] == stored_.size() - free_numbers_.size());
}

/// Checks that ready copies are supported. Copies that are filling, read or pinned may have lost their support; they are dropped
/// when that ends.
void Residency::check_closure(BlockRef block) const {
  for (const Tier tier : {Tier::device, Tier::host}) {
    if (copy(block, tier).state() == CopyState::ready && !tree_.pinned(block)) TERRACE_CHECK(supported(block, tier));
  }
  if (block.depth > 0 && stored(block)) TERRACE_CHECK(stored(tree_.parent(block)));
}

}  // namespace terrace
