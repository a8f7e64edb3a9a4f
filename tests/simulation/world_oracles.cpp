// Properties that must always hold in a world, computed in the simplest way from what is visible from outside.
#include "tests/simulation/world_oracles.hpp"

#include "base/check.hpp"

#include <algorithm>

namespace terrace::test {

void EventMirror::apply(std::span<const KvEvent> events) {
  for (const KvEvent& event : events) {
    const Served served{event.key, event.group, event.source};
    switch (event.kind) {
      case KvEvent::Kind::stored:
        // A copy in the shared store is a hint, which is renewed and never taken back.
        TERRACE_CHECK(event.source == Source::shared || served_.insert(served).second);
        break;
      case KvEvent::Kind::removed: TERRACE_CHECK(served_.erase(served) == 1); break;
      case KvEvent::Kind::cleared: served_.clear(); break;
    }
  }
}

template <class Visit>
void EventMirror::for_each_served(const CacheManager& manager, Visit visit) {
  const auto pools = static_cast<std::uint16_t>(manager.pool_count());
  for (std::uint16_t pool = 0; pool < pools; ++pool) {
    const Residency& residency = manager.residency(PoolId{pool});
    const PrefixTree& tree = residency.tree();
    tree.for_each([&](BlockRef block) {
      if (tree.hidden(block)) return;
      const GroupId group = tree.group(block);
      const BlockKey key = key_in_group(tree.key(block), group);
      for (const Tier tier : all_tiers) {
        const bool serves = tier == Tier::storage ? residency.stored(block) : residency.usable(block, tier);
        if (serves) visit(Served{key, group, to_source(tier)});
      }
    });
  }
}

void EventMirror::begin(const CacheManager& manager) {
  served_.clear();
  for_each_served(manager, [this](const Served& served) { TERRACE_CHECK(served_.insert(served).second); });
}

void EventMirror::compare(const CacheManager& manager) const {
  std::size_t found = 0;
  for_each_served(manager, [&](const Served& served) {
    ++found;
    TERRACE_CHECK(served_.contains(served));
  });
  TERRACE_CHECK(found == served_.size());
}

std::vector<std::optional<bool>> could_serve(const CacheManager& manager, const GroupRule& rule, GroupId group,
                                             std::span<const BlockKey> keys, Source farthest) {
  const Residency& residency = manager.residency(rule.config().pool);
  const PrefixTree& tree = residency.tree();
  std::vector<BlockKey> in_group;
  for (std::size_t unit = rule.units_per_block(); unit <= keys.size(); unit += rule.units_per_block()) {
    in_group.push_back(key_in_group(keys[unit - 1], group));
  }
  const auto has = [&](std::uint32_t block) -> std::optional<bool> {
    const std::uint32_t first = rule.chained() ? 0 : block;
    const std::span<const BlockKey> names = std::span{in_group}.subspan(first, block - first + 1);
    const Prefix prefix = tree.find(names);
    if (prefix.length < names.size()) return false;
    if (residency.usable(prefix.last(), Tier::device)) return true;
    if (residency.copy(prefix.last(), Tier::device).present()) return std::nullopt;  // it is coming from one of the lower tiers
    return (farthest >= Source::host && residency.usable(prefix.last(), Tier::host)) ||
           (farthest >= Source::storage && residency.stored(prefix.last()));
  };
  std::vector<std::optional<bool>> could;
  for (std::uint32_t hits = 0; hits <= keys.size(); ++hits) {
    std::optional<bool> all = hits % rule.units_per_block() == 0;
    const std::uint32_t first = rule.chained() ? 0 : rule.first_needed(std::uint64_t{hits} * manager.unit_tokens());
    for (std::uint32_t block = first; all != false && block < rule.full_blocks(hits); ++block) {
      const std::optional<bool> there = has(block);
      if (there != true) all = there;
    }
    could.push_back(all);
  }
  return could;
}

void check_promises(const CacheManager& manager) {
  const auto pools = static_cast<std::uint16_t>(manager.pool_count());
  for (std::uint16_t number = 0; number < pools; ++number) {
    const PoolId pool{number};
    const Usage device = manager.usage(Tier::device, pool);
    if (device.promised == 0) continue;
    const Residency& residency = manager.residency(pool);
    std::uint64_t retiring = 0;
    residency.tree().for_each([&](BlockRef block) {
      const Copy copy = residency.copy(block, Tier::device);
      if (!copy.present() || residency.tree().pinned(block)) return;
      retiring += residency.slots_of(Tier::device).closed(copy.slot());
    });
    const std::uint64_t unpinned = residency.tree().unpinned(Tier::device);
    TERRACE_CHECK(device.promised + retiring <= device.free + unpinned);
  }
}

}  // namespace terrace::test
