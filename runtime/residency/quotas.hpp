#pragma once

#include "radix/tree/prefix_tree.hpp"
#include "terrace/request.hpp"
#include "terrace/types.hpp"

#include <cstdint>
#include <optional>
#include <vector>

namespace terrace {

/// Chooses whose copies a tier evicts first, by the quotas of the tenants:
///
/// 1. copies of the tenant that asks for slots, if these slots take it over its quota;
/// 2. copies of another tenant that is over its quota;
/// 3. the copies that the eviction policy chooses among all.
///
/// So a tenant over its quota evicts its own copies, as long as some of them are not pinned. A tenant whose quota is the whole
/// tier or more is never over it. A quota forbids nothing: a tenant may use free slots beyond its quota. A call costs one step
/// for each quota.
///
/// Threads: the manager's.
class Quotas {
 public:
  /// The tree outlives the Quotas.
  explicit Quotas(PrefixTree& tree) : tree_{tree} {}

  /// Gives the tenant this quota, in place of one it had. The tree must follow the tenant (PrefixTree::follow_tenant) as long as
  /// it has a quota.
  void set(TenantId tenant, TenantQuota quota);
  /// Returns false if the tenant has no quota.
  bool remove(TenantId tenant);
  [[nodiscard]] std::optional<TenantQuota> quota(TenantId tenant) const;
  [[nodiscard]] bool any() const { return !entries_.empty(); }

  /// A tenant that asks for slots. `slots` includes those that it has got already and that hold nothing cached yet.
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
  /// How many copies the tenant has more than its quota.
  [[nodiscard]] std::uint64_t excess(const Entry& entry, Tier tier, std::optional<Asker> asker) const;

  PrefixTree& tree_;
  std::vector<Entry> entries_;  ///< few: an operator sets them
};

}  // namespace terrace
