#pragma once

// The internals of PrefixTree. Only the sources of PrefixTree include this file.

#include "radix/tree/prefix_tree.hpp"

#include <array>
#include <limits>

namespace terrace {

/// Pins that end in the node, uses that cover only its first blocks, and retentions of its blocks.
struct PrefixTree::Marks {
  struct Pin {
    std::uint32_t blocks;  ///< number of the node's first blocks that it covers
    std::uint32_t count;
  };
  struct Use {
    std::uint32_t blocks;
    std::uint64_t stamp;
  };
  struct Retention {
    RetentionId id;
    std::uint32_t blocks;
    Priority priority;
  };
  std::vector<Pin> pins;
  /// Longest first, with growing stamps: a block was never used later than the blocks before it.
  std::vector<Use> uses;
  std::vector<Retention> retentions;

  [[nodiscard]] bool empty() const { return pins.empty() && uses.empty() && retentions.empty(); }
};

/// The state of a node in one tier.
struct PrefixTree::InTier {
  std::uint32_t resident = 0;               ///< copies in this node, in any state
  std::uint32_t end = 0;                    ///< one past the last copy; 0 if there is none
  std::uint32_t deepest = 0;                ///< one past the last staying copy (Copy::stays); 0 if there is none
  std::uint32_t below : 29 = 0;             ///< children with a staying copy anywhere in their subtree
  std::uint32_t listed : 1 = 0;             ///< the policy knows this node as a candidate
  Companion companion : 2 = Companion::no;  ///< what the node's first block is in this tier

  [[nodiscard]] bool any() const { return deepest > 0 || below > 0; }
};

/// A node takes two cache lines. find() reads only the first; the fields that only changes need are in the second.
struct alignas(128) PrefixTree::Node {
  static constexpr std::uint32_t none = std::numeric_limits<std::uint32_t>::max();

  std::byte* arrays = nullptr;      ///< keys[capacity], then Copy[tier_count][capacity]
  std::uint32_t parent_branch = 0;  ///< the branch from which this node grows: owners_ has its node
  std::uint32_t branch = 0;         ///< the branch to which this node's children refer
  std::uint32_t start = 0;          ///< depth of the first block
  std::uint32_t size = 0;           ///< number of blocks; 0 in the root, and in a node above hidden nodes
  std::uint32_t capacity = 0;       ///< length of the arrays
  NodeId first_child{none};
  NodeId split_child{none};  ///< the child that took over this node's later blocks when it was split
  std::uint32_t pinned = 0;  ///< number of its first blocks that are pinned
  std::uint32_t pinned_children = 0;
  std::uint32_t marks = none;  ///< index in PrefixTree::marks_
  std::array<InTier, tier_count> in_tiers;
  NodeId next_sibling{none};
  NodeId previous_sibling{none};
  std::uint64_t last_use = 0;  ///< last use of all blocks that no use in the marks covers
  TenantId tenant;
  TenantIndex tenant_index = other_tenants;
  GroupId group;

  [[nodiscard]] std::uint32_t end() const { return start + size; }
};

inline constexpr NodeId root_node{0};
inline constexpr NodeId no_node{std::numeric_limits<std::uint32_t>::max()};

inline BlockKey* PrefixTree::keys(const Node& node) const { return reinterpret_cast<BlockKey*>(node.arrays); }

inline Copy* PrefixTree::copies(const Node& node, Tier tier) const {
  return reinterpret_cast<Copy*>(node.arrays + sizeof(BlockKey) * node.capacity) + index(tier) * node.capacity;
}

inline NodeId PrefixTree::parent_of(const Node& node) const { return owners_[node.parent_branch]; }

/// Returns the node that holds the block at `depth`, on the prefix through `node`: a node above it, or below it if it was split.
inline NodeId PrefixTree::resolve(NodeId node, std::uint32_t depth) const {
  if (flat()) return node;
  while (depth < nodes_[node.value()].start) node = parent_of(nodes_[node.value()]);
  while (depth >= nodes_[node.value()].end() && nodes_[node.value()].split_child != no_node)
    node = nodes_[node.value()].split_child;
  return node;
}

/// Returns the blocks of the prefix that are in the node of its last block; no blocks if the prefix is empty. The blocks before
/// them are those of the prefix {run.node, run.begin}.
inline Run PrefixTree::last_run(Prefix prefix) const {
  if (prefix.length == 0) return {};
  const NodeId id = resolve(prefix.node, prefix.length - 1);
  return {id, flat() ? 0 : nodes_[id.value()].start, prefix.length};
}

inline Priority PrefixTree::priority_in(const Node& node, std::uint32_t offset, Tier tier) const {
  const bool is_usual = node.marks == Node::none && node.in_tiers[index(tier)].companion == Companion::no;
  return is_usual ? usual_priority : marked_priority(node, offset, tier);
}

inline PrefixTree::InTier& PrefixTree::state(NodeId node, Tier tier) { return nodes_[node.value()].in_tiers[index(tier)]; }

inline const PrefixTree::InTier& PrefixTree::state(NodeId node, Tier tier) const {
  return nodes_[node.value()].in_tiers[index(tier)];
}

inline void PrefixTree::refresh_leaves(NodeId id) {
  const Node& node = nodes_[id.value()];
  for (const Tier tier : all_tiers) {
    const InTier& here = node.in_tiers[index(tier)];
    if (here.deepest == 0 && here.listed == 0) continue;
    const bool may_be_kept = node.pinned > 0 && node.pinned >= here.deepest && totals_[index(tier)].keeps_pinned;
    if (!may_be_kept) refresh_leaf(id, tier);
  }
}

/// Visits the node and all nodes below it, each after its parent. It returns to parents by links, so it needs no stack and no
/// allocation.
template <class Visit>
void PrefixTree::walk(NodeId top, Visit&& visit) const {
  for (NodeId id = top;;) {
    visit(id);
    NodeId next = nodes_[id.value()].first_child;
    for (; next == no_node && id != top; id = parent_of(nodes_[id.value()])) next = nodes_[id.value()].next_sibling;
    if (next == no_node) return;
    id = next;
  }
}

inline BlockRun PrefixTree::blocks_of(NodeId id, std::uint32_t from, std::uint32_t to) const {
  const Node& node = nodes_[id.value()];
  return {id, node.start + from, {keys(node) + from, to - from}};
}

}  // namespace terrace
