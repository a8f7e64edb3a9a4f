// PrefixTree::check_invariants: recomputes the data that the tree updates incrementally, and compares.

#include "base/check.hpp"
#include "radix/tree/prefix_tree.hpp"
#include "radix/tree/prefix_tree_node.hpp"

#include <algorithm>

namespace terrace {

void PrefixTree::check_invariants() const {
  if (flat()) return flat_->check_invariants();
  std::uint64_t blocks = 0;
  std::uint64_t reached = 0;
  std::vector<std::array<Count, tier_count>> counted(tenants_.size());
  walk(root_node, [&](NodeId id) {
    const Node& node = nodes_[id.value()];
    check_node(id);
    if (id != root_node) ++reached;
    blocks += node.size;
    for (const Tier tier : all_tiers) {
      Count& count = counted[node.tenant_index][index(tier)];
      count.resident += state(id, tier).resident;
      if (totals_[index(tier)].policy != nullptr) count.pinned += resident_in(id, tier, 0, node.pinned);
    }
    for (NodeId child = node.first_child; child != no_node; child = nodes_[child.value()].next_sibling) {
      TERRACE_CHECK(parent_of(nodes_[child.value()]) == id);
    }
  });
  arrays_.check_invariants();
  TERRACE_CHECK(blocks == blocks_);
  TERRACE_CHECK(reached == node_count_);
  TERRACE_CHECK(children_.size() + hidden_nodes_ == node_count_);
  TERRACE_CHECK(free_nodes_.size() + node_count_ + 1 == nodes_.size());
  for (const Tier tier : all_tiers) {
    Count all = counted[other_tenants][index(tier)];
    for (const auto& [tenant, followed] : followed_) {
      TERRACE_CHECK(tenants_[followed].tenant == tenant);
      TERRACE_CHECK(std::ranges::count(over_limit(tier), tenant) == (tenants_[followed].is_over(tier) ? 1 : 0));
      TERRACE_CHECK(tenants_[followed].tiers[index(tier)].resident == counted[followed][index(tier)].resident);
      TERRACE_CHECK(tenants_[followed].tiers[index(tier)].pinned == counted[followed][index(tier)].pinned);
      all.resident += counted[followed][index(tier)].resident;
      all.pinned += counted[followed][index(tier)].pinned;
    }
    TERRACE_CHECK(all.resident == totals_[index(tier)].count.resident);
    TERRACE_CHECK(all.pinned == totals_[index(tier)].count.pinned);
    if (totals_[index(tier)].policy != nullptr) totals_[index(tier)].policy->check_invariants();
  }
}

void PrefixTree::check_node(NodeId id) const {
  const Node& node = nodes_[id.value()];
  if (id == root_node) {
    TERRACE_CHECK(node.size == 0);
    return;
  }
  TERRACE_CHECK(owners_[node.branch] == id);
  TERRACE_CHECK(node.size <= node.capacity);
  if (node.size == 0) {  // a node above hidden nodes
    TERRACE_CHECK(nodes_[parent_of(node).value()].size == 0 && node.first_child != no_node && node.start == 0);
    return;
  }
  TERRACE_CHECK(node.start == nodes_[parent_of(node).value()].end());
  TERRACE_CHECK(child_of(parent_of(node), keys(node)[0]) == id);

  TERRACE_CHECK(node.tenant_index == tenant_of(node.tenant));

  std::uint32_t pinned_children = 0;
  for (NodeId child = node.first_child; child != no_node; child = nodes_[child.value()].next_sibling) {
    if (nodes_[child.value()].pinned > 0) ++pinned_children;
  }
  TERRACE_CHECK(pinned_children == node.pinned_children);
  if (!has_plain_pin(node)) TERRACE_CHECK(node.pinned == pinned_from_marks(node));
  TERRACE_CHECK(node.pinned <= node.size);

  std::uint64_t newer = node.last_use;
  if (node.marks != Node::none) {
    const Marks& m = marks_[node.marks];
    TERRACE_CHECK(!m.empty());
    std::uint32_t longer = node.size;
    for (const Marks::Use& use : m.uses) {
      TERRACE_CHECK(use.blocks < longer && use.blocks > 0);
      TERRACE_CHECK(use.stamp > newer);
      longer = use.blocks;
      newer = use.stamp;
    }
    for (const Marks::Retention& each : m.retentions) TERRACE_CHECK(each.blocks > 0 && each.blocks <= node.size);
    for (const Marks::Pin& pin : m.pins) TERRACE_CHECK(pin.count > 0 && pin.blocks > 0 && pin.blocks <= node.size);
  }

  std::uint32_t deepest_of_all = 0;
  for (const Tier tier : all_tiers) {
    const InTier& here = state(id, tier);
    const Copy* const row = copies(node, tier);
    std::uint32_t resident = 0;
    std::uint32_t end = 0;
    std::uint32_t deepest = 0;
    for (std::uint32_t i = 0; i < node.size; ++i) {
      if (row[i].present()) {
        ++resident;
        end = i + 1;
      }
      if (row[i].stays()) deepest = i + 1;
    }
    TERRACE_CHECK(resident == here.resident);
    TERRACE_CHECK(deepest == here.deepest);
    TERRACE_CHECK(end == here.end);
    deepest_of_all = std::max(deepest_of_all, end);

    std::uint32_t below = 0;
    for (NodeId child = node.first_child; child != no_node; child = nodes_[child.value()].next_sibling) {
      if (state(child, tier).any()) ++below;
    }
    TERRACE_CHECK(below == here.below);
    const Totals& totals = totals_[index(tier)];
    const bool is_candidate = totals.policy != nullptr && evictable(node, tier);
    const bool may_be_kept = totals.keeps_pinned && node.pinned > 0 && node.pinned >= deepest;
    TERRACE_CHECK(is_candidate == (here.listed != 0) || (may_be_kept && !is_candidate));
  }
  // The last block of a branch has a copy or a pin.
  if (node.first_child == no_node) TERRACE_CHECK(std::max(deepest_of_all, node.pinned) == node.size);
}

}  // namespace terrace
