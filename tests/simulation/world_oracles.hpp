#pragma once

#include "base/block_key.hpp"
#include "base/tier.hpp"
#include "radix/groups/groups.hpp"
#include "runtime/manager/cache_manager.hpp"
#include "runtime/types/kv_events.hpp"

#include <compare>
#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <vector>

namespace terrace::test {

/// What a router believes that each tier can serve: it hears of nothing but events.
class EventMirror {
 public:
  /// Nothing is stored twice, and nothing is removed that was not stored.
  void apply(std::span<const KvEvent> events);
  /// The tree's copies that can be served are those that the events tell of, and no others.
  void compare(const CacheManager& manager) const;

 private:
  struct Served {
    BlockKey key;
    GroupId group;
    Tier tier;

    friend auto operator<=>(const Served&, const Served&) = default;
  };

  std::set<Served> served_;
};

/// For each number of leading hits, 0 to keys.size(): whether the group could serve them from `lowest` or a tier above it just
/// now. Nothing where that depends on a load that is under way.
[[nodiscard]] std::vector<std::optional<bool>> could_serve(const CacheManager& manager, const GroupRule& rule, GroupId group,
                                                           std::span<const BlockKey> keys, Tier lowest);

/// Promises of device slots are kept with slots that are free or can be freed, and that stay: a slot that a resize has still to
/// retire is promised to nobody. `duplicates`, by PoolId: slots that requests hold beside a copy that was there when they
/// committed (Duplicate). That copy could be freed before; instead the slot is free when its request is released.
void check_promises(const CacheManager& manager, std::span<const std::uint64_t> duplicates);

}  // namespace terrace::test
