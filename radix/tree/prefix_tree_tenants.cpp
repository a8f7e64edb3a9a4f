// The part of PrefixTree for followed tenants: their counts and candidates.

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
  if (node.tenant_index == other_tenants) return;
  Tenant& tenant = tenants_[node.tenant_index];
  const bool was_over = tenant.is_over(tier);
  add(tenant.tiers[index(tier)]);
  if (tenant.is_over(tier) != was_over) list_over_limit(tenant, tier);
}

/// Lists the tenant if it is over its limit, and not otherwise.
void PrefixTree::list_over_limit(const Tenant& tenant, Tier tier) {
  std::vector<TenantId>& listed = over_limit_[index(tier)];
  std::erase(listed, tenant.tenant);
  if (tenant.is_over(tier)) listed.push_back(tenant.tenant);
}

void PrefixTree::limit_tenant(TenantId tenant, Tier tier, std::uint64_t most) {
  TERRACE_CHECK(follows_tenant(tenant));
  Tenant& followed = tenants_[tenant_of(tenant)];
  followed.limits[index(tier)] = most;
  list_over_limit(followed, tier);
}

TenantIndex PrefixTree::tenant_of(TenantId tenant) const {
  if (followed_.empty()) return other_tenants;
  const auto found = followed_.find(tenant);
  return found == followed_.end() ? other_tenants : found->second;
}

void PrefixTree::follow_tenant(TenantId tenant) {
  if (follows_tenant(tenant)) return;
  for (const Totals& totals : totals_) TERRACE_CHECK(totals.policy == nullptr || totals.policy->knows_tenants());
  auto followed = static_cast<TenantIndex>(tenants_.size());
  if (free_tenants_.empty()) {
    tenants_.emplace_back();
  } else {
    followed = free_tenants_.back();
    free_tenants_.pop_back();
  }
  tenants_[followed] = {tenant, {}};
  followed_.emplace(tenant, followed);
  set_tenant(tenant, followed);
}

void PrefixTree::ignore_tenant(TenantId tenant) {
  const TenantIndex followed = tenant_of(tenant);
  if (followed == other_tenants) return;
  followed_.erase(tenant);
  for (std::vector<TenantId>& listed : over_limit_) std::erase(listed, tenant);
  set_tenant(tenant, other_tenants);
  free_tenants_.push_back(followed);
}

/// Sets the index of the tenant's nodes, counts their copies under it, and informs the policies.
void PrefixTree::set_tenant(TenantId tenant, TenantIndex followed) {
  walk(root_node, [&](NodeId id) {
    Node& node = nodes_[id.value()];
    if (node.size == 0 || node.tenant != tenant) return;
    node.tenant_index = followed;
    for (const Tier tier : all_tiers) {
      if (followed != other_tenants) {
        Count& counted = tenants_[followed].tiers[index(tier)];
        counted.resident += state(id, tier).resident;
        if (totals_[index(tier)].policy != nullptr) counted.pinned += resident_in(id, tier, 0, node.pinned);
      }
      refresh_leaf(id, tier);
    }
  });
}

std::uint64_t PrefixTree::resident(Tier tier, TenantId tenant) const {
  TERRACE_CHECK(follows_tenant(tenant));
  return tenants_[tenant_of(tenant)].tiers[index(tier)].resident;
}

std::uint64_t PrefixTree::unpinned(Tier tier, TenantId tenant) const {
  TERRACE_CHECK(follows_tenant(tenant));
  const Count& counted = tenants_[tenant_of(tenant)].tiers[index(tier)];
  return counted.resident - counted.pinned;
}

}  // namespace terrace
