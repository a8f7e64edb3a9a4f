#pragma once

#include "radix/tree/prefix_tree.hpp"
#include "terrace/request.hpp"
#include "terrace/types.hpp"

#include <boost/unordered/unordered_flat_map.hpp>

#include <cstdint>
#include <functional>
#include <optional>

namespace terrace {

/// Chooses the tenant whose copies a tier evicts first, by the quotas of the tenants (HostSlotAllocator evicts duplicates before
/// it asks here):
///
/// 1. copies of the tenant that asks for slots, if it exceeds its quota with these slots;
/// 2. copies of another tenant that is over its quota;
/// 3. otherwise, the copies that the eviction policy chooses among all.
///
/// So a tenant over its quota evicts its own copies, unless all of them are pinned. A tenant with a quota of at least the whole
/// tier is never over it. A quota does not limit the use of free slots: a tenant may use them beyond its quota. The time of a
/// call depends on the tenants that are over their quotas, and not on the number of quotas.
///
/// Threads: the manager's.
class Quotas {
 public:
  /// The tree outlives the Quotas.
  explicit Quotas(PrefixTree& tree) : tree_{tree} {}

  /// Gives the tenant this quota, in place of one it had. While a tenant has a quota, the tree must follow it
  /// (PrefixTree::follow_tenant).
  void set(TenantId tenant, TenantQuota quota);
  /// Returns false if the tenant has no quota.
  bool remove(TenantId tenant) { return quotas_.erase(tenant) > 0; }
  [[nodiscard]] std::optional<TenantQuota> quota(TenantId tenant) const;
  [[nodiscard]] bool any() const { return !quotas_.empty(); }

  /// A tenant that asks for slots. `slots` includes the slots that it has got already and that hold no cached block yet.
  struct Asker {
    TenantId tenant;
    std::uint64_t slots = 0;
  };
  /// The block whose copy in the tier is evicted first; nothing if no copy can be evicted.
  [[nodiscard]] std::optional<BlockRef> victim(Tier tier, std::optional<Asker> asker) const;
  /// The same for a run of at most `most` blocks, as PrefixTree::victims.
  [[nodiscard]] std::optional<Run> victims(Tier tier, std::uint32_t most, std::optional<Asker> asker) const;

 private:
  [[nodiscard]] std::optional<Run> victims_of(TenantId tenant, Tier tier, std::uint64_t most_copies, std::uint64_t slots,
                                              std::uint32_t most) const;

  PrefixTree& tree_;
  boost::unordered_flat_map<TenantId, TenantQuota, std::hash<TenantId>> quotas_;
};

}  // namespace terrace
