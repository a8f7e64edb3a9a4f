#pragma once

#include "radix/tree/prefix_tree.hpp"
#include "terrace/request.hpp"
#include "terrace/types.hpp"

#include <cstdint>
#include <optional>
#include <vector>

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
/// call is proportional to the number of quotas.
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
  bool remove(TenantId tenant) {
    return std::erase_if(entries_, [&](const Entry& entry) { return entry.tenant == tenant; }) > 0;
  }
  [[nodiscard]] std::optional<TenantQuota> quota(TenantId tenant) const;
  [[nodiscard]] bool any() const { return !entries_.empty(); }

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
  struct Entry {
    TenantId tenant;
    TenantQuota quota;
  };
  /// Number of copies that the tenant has in excess of its quota, including the slots that it asks for.
  [[nodiscard]] std::uint64_t excess(const Entry& entry, Tier tier, std::optional<Asker> asker) const;

  PrefixTree& tree_;
  std::vector<Entry> entries_;  ///< few: an operator sets them
};

}  // namespace terrace
