// Whose blocks they are: counts and candidates of the tenants that are followed.

#include "base/check.hpp"
#include "radix/prefix_tree.hpp"
#include "radix/prefix_tree_node.hpp"

namespace terrace {

void PrefixTree::count(const Node& node, std::size_t plane, std::int64_t resident, std::int64_t pinned) {
  if (planes_[plane].policy == nullptr) pinned = 0;
  const auto add = [&](Count& to) {
    to.resident += static_cast<std::uint64_t>(resident);
    to.pinned += static_cast<std::uint64_t>(pinned);
  };
  add(planes_[plane].count);
  if (node.tenant != nobody) add(tenants_[node.tenant].planes[plane]);
}

TenantIndex PrefixTree::tenant_of(std::uint64_t name_space) const {
  if (followed_.empty()) return nobody;
  const auto found = followed_.find(name_space);
  return found == followed_.end() ? nobody : found->second;
}

void PrefixTree::follow_tenant(std::uint64_t name_space) {
  if (follows_tenant(name_space)) return;
  for (const Totals& totals : planes_) TERRACE_CHECK(totals.policy == nullptr || totals.policy->knows_tenants());
  auto tenant = static_cast<TenantIndex>(tenants_.size());
  if (free_tenants_.empty()) {
    tenants_.emplace_back();
  } else {
    tenant = free_tenants_.back();
    free_tenants_.pop_back();
  }
  tenants_[tenant] = {name_space, std::vector<Count>(plane_count_)};
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
    for (std::size_t p = 0; p < plane_count_; ++p) {
      if (tenant != nobody) {
        Count& counted = tenants_[tenant].planes[p];
        counted.resident += state(id, p).resident;
        if (planes_[p].policy != nullptr) counted.pinned += resident_in(id, p, 0, node.pinned);
      }
      refresh_leaf(id, p);
    }
  });
}

std::uint64_t PrefixTree::resident(Plane plane, std::uint64_t name_space) const {
  TERRACE_CHECK(follows_tenant(name_space));
  return tenants_[tenant_of(name_space)].planes[plane.index()].resident;
}

std::uint64_t PrefixTree::unpinned(Plane plane, std::uint64_t name_space) const {
  TERRACE_CHECK(follows_tenant(name_space));
  const Count& counted = tenants_[tenant_of(name_space)].planes[plane.index()];
  return counted.resident - counted.pinned;
}

std::optional<BlockRef> PrefixTree::victim(Plane plane, std::uint64_t name_space) const {
  TERRACE_CHECK(follows_tenant(name_space));
  const EvictionPolicy* const policy = planes_[plane.index()].policy;
  const std::optional<NodeId> id = policy == nullptr ? std::nullopt : policy->victim(tenant_of(name_space));
  if (!id) return std::nullopt;
  return candidate(*id, plane.index());
}

std::optional<Run> PrefixTree::victims(Plane plane, std::uint32_t blocks_max, std::uint64_t name_space) const {
  const std::optional<BlockRef> last = victim(plane, name_space);
  if (!last || blocks_max == 0) return std::nullopt;
  return run_to(*last, plane, blocks_max);
}

}  // namespace terrace
