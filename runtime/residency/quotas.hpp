#pragma once

#include "base/tier.hpp"
#include "radix/tree/prefix_tree.hpp"
#include "runtime/types/request.hpp"

#include <cstdint>
#include <optional>
#include <vector>

namespace terrace {

/// What tenants may keep cached, and so whose copies a tier gives up first:
///
/// 1. those of the tenant that asks for room, where that room takes it over its quota;
/// 2. those of any other tenant that is over its quota, having used room that nobody wanted;
/// 3. whatever the policy would give up.
///
/// So a tenant over its quota evicts its own copies only, as long as it has some that nobody holds; one whose quota is the whole
/// tier or more is never over it. A quota forbids nothing: room that nobody wants may be used by anybody. Costs a step a
/// quota where there are any. Threads: the manager's.
class Quotas {
 public:
  /// The tree outlives this.
  explicit Quotas(const PrefixTree& tree) : tree_{tree} {}

  /// From now on, in place of one it had. The tree must follow the tenant (PrefixTree::follow_tenant) as long as it has a quota.
  void set(TenantId tenant, TenantQuota quota);
  /// False where it had none.
  bool remove(TenantId tenant);
  [[nodiscard]] std::optional<TenantQuota> quota(TenantId tenant) const;

  /// Who wants `slots` of a tier, those included that it has and that hold nothing cached yet.
  struct Asker {
    TenantId tenant;
    std::uint64_t slots = 0;
  };
  [[nodiscard]] std::optional<BlockRef> victim(Tier tier, std::optional<Asker> asker) const;
  /// At most `most` of them, as PrefixTree::victims.
  [[nodiscard]] std::optional<Run> victims(Tier tier, std::uint32_t most, std::optional<Asker> asker) const;

 private:
  struct Entry {
    TenantId tenant;
    TenantQuota quota;
  };
  /// So many copies has the tenant more than it may keep.
  [[nodiscard]] std::uint64_t excess(const Entry& entry, Tier tier, std::optional<Asker> asker) const;

  const PrefixTree& tree_;
  std::vector<Entry> entries_;  ///< few: those of an operator's list
};

}  // namespace terrace
