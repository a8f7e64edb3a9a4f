// Whose blocks they are: counts and candidates of the tenants that are followed.

#include "base/check.hpp"
#include "radix/tree/prefix_tree.hpp"
#include "radix/tree/prefix_tree_node.hpp"

namespace terrace {

void PrefixTree::count(const Node& node, Tier tier, std::int64_t resident, std::int64_t pinned) {
  if (totals_[index(tier)].policy == nullptr) pinned = 0;
  const auto add = [&](Count& to) {
    to.resident += static_cast<std::uint64_t>(resident);
    to.pinned += static_cast<std::uint64_t>(pinned);
  };
  add(totals_[index(tier)].count);
  if (node.tenant != nobody) add(tenants_[node.tenant].tiers[index(tier)]);
}

TenantIndex PrefixTree::tenant_of(std::uint64_t name_space) const {
  if (followed_.empty()) return nobody;
  const auto found = followed_.find(name_space);
  return found == followed_.end() ? nobody : found->second;
}

void PrefixTree::follow_tenant(std::uint64_t name_space) {
  if (follows_tenant(name_space)) return;
  for (const Totals& totals : totals_) TERRACE_CHECK(totals.policy == nullptr || totals.policy->knows_tenants());
  auto tenant = static_cast<TenantIndex>(tenants_.size());
  if (free_tenants_.empty()) {
    tenants_.emplace_back();
  } else {
    tenant = free_tenants_.back();
    free_tenants_.pop_back();
  }
  tenants_[tenant] = {name_space, {}};
  followed_.emplace(name_space, tenant);
  set_tenant(name_space, tenant);
}

void PrefixTree::ignore_tenant(std::uint64_t name_space) {
  const TenantIndex tenant = tenant_of(name_space);
  if (tenant == nobody) return;
  followed_.erase(name_space);
  set_tenant(name_space, nobody);
  free_tenants_.push_back(tenant);
}

/// Counts and candidates of what is there go along.
void PrefixTree::set_tenant(std::uint64_t name_space, TenantIndex tenant) {
  walk(root_node, [&](NodeId id) {
    Node& node = nodes_[id.value()];
    if (node.size == 0 || node.name_space != name_space) return;
    node.tenant = tenant;
    for (const Tier tier : all_tiers) {
      if (tenant != nobody) {
        Count& counted = tenants_[tenant].tiers[index(tier)];
        counted.resident += state(id, tier).resident;
        if (totals_[index(tier)].policy != nullptr) counted.pinned += resident_in(id, tier, 0, node.pinned);
      }
      refresh_leaf(id, tier);
    }
  });
}

std::uint64_t PrefixTree::resident(Tier tier, std::uint64_t name_space) const {
  TERRACE_CHECK(follows_tenant(name_space));
  return tenants_[tenant_of(name_space)].tiers[index(tier)].resident;
}

std::uint64_t PrefixTree::unpinned(Tier tier, std::uint64_t name_space) const {
  TERRACE_CHECK(follows_tenant(name_space));
  const Count& counted = tenants_[tenant_of(name_space)].tiers[index(tier)];
  return counted.resident - counted.pinned;
}

std::optional<BlockRef> PrefixTree::victim(Tier tier, std::uint64_t name_space) const {
  TERRACE_CHECK(follows_tenant(name_space));
  const EvictionPolicy* const policy = totals_[index(tier)].policy;
  const std::optional<NodeId> id = policy == nullptr ? std::nullopt : policy->victim(tenant_of(name_space));
  if (!id) return std::nullopt;
  return candidate(*id, tier);
}

std::optional<Run> PrefixTree::victims(Tier tier, std::uint32_t blocks_max, std::uint64_t name_space) const {
  const std::optional<BlockRef> last = victim(tier, name_space);
  if (!last || blocks_max == 0) return std::nullopt;
  return run_to(*last, tier, blocks_max);
}

}  // namespace terrace
