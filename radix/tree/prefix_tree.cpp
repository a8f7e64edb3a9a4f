#include "radix/tree/prefix_tree.hpp"

#include "base/check.hpp"
#include "radix/tree/prefix_tree_node.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace terrace {
namespace {

/// Returns how many of the first min(n, m) keys are equal. Keys are chained, so they are equal up to some index and differ after
/// it.
std::uint32_t common_prefix(const BlockKey* a, std::size_t n, const BlockKey* b, std::size_t m) {
  const std::size_t length = std::min(n, m);
  if (length == 0) return 0;
  if (a[length - 1] == b[length - 1]) return static_cast<std::uint32_t>(length);
  std::size_t low = 0;  // all keys before this index are equal
  std::size_t high = length - 1;
  while (low < high) {
    const std::size_t middle = low + (high - low) / 2;
    if (a[middle] == b[middle]) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return static_cast<std::uint32_t>(low);
}

}  // namespace

PrefixTree::PrefixTree(Shape shape)
    : flat_{shape == Shape::flat ? std::make_unique<FlatIndex>() : nullptr},
      arrays_{sizeof(BlockKey) + tier_count * sizeof(Copy)},
      split_marks_{std::make_unique<Marks>()},
      tenants_(1) {
  nodes_.push_back({});
  owners_.push_back(root_node);
}

PrefixTree::~PrefixTree() {
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    if (nodes_[i].arrays != nullptr) arrays_.put(nodes_[i].arrays, nodes_[i].capacity);
  }
}

/// Copies the counts of the flat index into the members that other functions read.
void PrefixTree::sync_flat() {
  ++changes_;
  blocks_ = node_count_ = flat_->blocks();
  for (const Tier tier : all_tiers) totals_[index(tier)].count.resident = flat_->resident(tier);
  totals_[index(Tier::host)].count.pinned = flat_->pinned_resident();
  hidden_nodes_ = flat_->any_hidden() ? 1 : 0;
}

std::uint32_t PrefixTree::nodes_end() const { return flat() ? flat_->end() : static_cast<std::uint32_t>(nodes_.size()); }

void PrefixTree::set_policy(Tier tier, EvictionPolicy& policy) {
  Totals& totals = totals_[index(tier)];
  TERRACE_CHECK(totals.policy != nullptr || blocks_ == 0);
  TERRACE_CHECK(followed_.empty() || policy.knows_tenants());
  std::erase(followers_, totals.follower);
  totals.policy = &policy;
  totals.keeps_pinned = policy.keeps_pinned();
  totals.follower = policy.follows_blocks() ? &policy : nullptr;
  if (totals.follower != nullptr) followers_.push_back(&policy);
  if (!flat()) walk(root_node, [&](NodeId id) { introduce(id, tier); });
}

NodeId PrefixTree::child_of(NodeId parent, const BlockKey& first) const {
  const std::uint32_t branch = nodes_[parent.value()].branch;
  return children_.find(first, [&](NodeId id) {
    const Node& node = nodes_[id.value()];
    // The caller reads these next. Prefetching all of them lets three cache misses overlap.
    __builtin_prefetch(keys(node) + node.size - 1);
    __builtin_prefetch(copies(node, Tier::device));
    return node.parent_branch == branch && keys(node)[0] == first;
  });
}

Prefix PrefixTree::find(std::span<const BlockKey> wanted) const {
  if (flat()) {
    const std::optional<NodeId> block = wanted.empty() ? std::nullopt : flat_->find(wanted.front());
    return block ? Prefix{*block, 1} : Prefix{root_node, 0};
  }
  Prefix prefix{root_node, 0};
  while (prefix.length < wanted.size()) {
    const NodeId child = child_of(prefix.node, wanted[prefix.length]);
    if (child == no_node) break;
    const Node& node = nodes_[child.value()];
    prefix.node = child;
    const std::span<const BlockKey> rest = wanted.subspan(prefix.length);
    // Keys are chained, so a binary search finds how many blocks of the node match.
    const std::uint32_t agreed = common_prefix(keys(node), node.size, rest.data(), rest.size());
    prefix.length += agreed;
    if (agreed < node.size) break;
  }
  return prefix;
}

Prefix PrefixTree::extend(Prefix at, std::span<const BlockKey> wanted, TenantId tenant, GroupId group) {
  if (flat()) {
    added_ = 0;
    if (at.length > 0 || wanted.empty()) return at;
    const std::uint64_t before = flat_->blocks();
    const NodeId block = flat_->add(wanted.front(), tenant);
    sync_flat();
    added_ = static_cast<std::uint32_t>(blocks_ - before);
    return {block, 1};
  }
  added_ = 0;
  ++changes_;
  NodeId id = at.length == 0 ? root_node : resolve(at.node, at.length - 1);
  std::uint32_t length = at.length;
  while (!wanted.empty()) {
    const Node& node = nodes_[id.value()];
    const std::uint32_t offset = length - node.start;
    if (offset < node.size) {
      const std::uint32_t agreed = common_prefix(keys(node) + offset, node.size - offset, wanted.data(), wanted.size());
      length += agreed;
      wanted = wanted.subspan(agreed);
      if (wanted.empty()) break;
      if (offset + agreed < node.size) {
        // The keys diverge inside this node: the new blocks branch off before its remaining blocks.
        split(id, offset + agreed);
        break;
      }
    }
    const NodeId child = child_of(id, wanted.front());
    if (child == no_node) break;
    id = child;
  }
  if (wanted.empty()) return {id, length};

  // All remaining keys are new.
  const Node& node = nodes_[id.value()];
  const auto added = static_cast<std::uint32_t>(wanted.size());
  added_ = added;
  // A node with children ends at a branch, so the new blocks need their own node.
  if (id == root_node || node.first_child != no_node || !has_room(node, added)) {
    if (id != root_node) {
      tenant = node.tenant;
      group = node.group;
    }
    id = new_node(id, length, arrays_.capacity_for(added));
    nodes_[id.value()].tenant = tenant;
    nodes_[id.value()].group = group;
    nodes_[id.value()].tenant_index = tenant_of(tenant);
    append(id, wanted);
    link(id);
  } else {
    append(id, wanted);
  }
  return {id, length + added};
}

NodeId PrefixTree::new_node(NodeId parent, std::uint32_t start, std::uint32_t capacity) {
  std::uint32_t index = 0;
  if (free_nodes_.empty()) {
    index = static_cast<std::uint32_t>(nodes_.size());
    nodes_.push_back({}).branch = index;
    owners_.push_back({});
  } else {
    index = free_nodes_.back();
    free_nodes_.pop_back();
    Node fresh;
    fresh.branch = nodes_[index].branch;
    nodes_[index] = fresh;
  }
  Node& node = nodes_[index];
  owners_[node.branch] = NodeId{index};
  node.parent_branch = nodes_[parent.value()].branch;
  node.start = start;
  node.capacity = capacity;
  node.arrays = arrays_.take(capacity);
  ++node_count_;
  return NodeId{index};
}

/// Returns true if the new blocks are added to the node's own arrays, for a node without children. If the arrays have to grow,
/// the existing blocks are copied. This is better than a new node only if there are at most a few times more existing blocks than
/// new ones. Otherwise a long context that grows by small turns would be copied at each turn.
bool PrefixTree::has_room(const Node& node, std::size_t added) const {
  constexpr std::size_t copied_per_added_max = 4;
  return node.size + added <= node.capacity || node.size <= copied_per_added_max * added;
}

void PrefixTree::append(NodeId id, std::span<const BlockKey> added) {
  Node& node = nodes_[id.value()];
  const std::uint32_t size = node.size + static_cast<std::uint32_t>(added.size());
  if (size > node.capacity) {
    Node larger = node;
    larger.capacity = arrays_.capacity_for(size);
    larger.arrays = arrays_.take(larger.capacity);
    std::memcpy(larger.arrays, node.arrays, node.size * sizeof(BlockKey));
    for (const Tier tier : all_tiers) std::copy_n(copies(node, tier), node.size, copies(larger, tier));
    arrays_.put(node.arrays, node.capacity);
    node = larger;
  }
  std::copy(added.begin(), added.end(), keys(node) + node.size);
  for (const Tier tier : all_tiers) std::fill_n(copies(node, tier) + node.size, added.size(), Copy{});
  node.size = size;
  blocks_ += added.size();
}

/// Frees the memory of the arrays after the node's blocks, so that a long node that was split near its beginning, or has lost
/// most of its blocks, does not keep the memory of its old length.
void PrefixTree::fit(Node& node) {
  const std::uint32_t capacity = arrays_.capacity_for(node.size);
  if (capacity >= node.capacity) return;
  Node smaller = node;
  smaller.capacity = capacity;
  const bool in_place = arrays_.can_shrink(node.capacity, capacity);
  if (!in_place) {
    smaller.arrays = arrays_.take(capacity);
    std::copy_n(keys(node), node.size, keys(smaller));
  }
  // Each row moves down into memory that the previous row has freed, so the first row moves first.
  for (const Tier tier : all_tiers) std::memmove(copies(smaller, tier), copies(node, tier), node.size * sizeof(Copy));
  if (in_place) {
    arrays_.shrink(node.arrays, node.capacity, capacity);
  } else {
    arrays_.put(node.arrays, node.capacity);
  }
  node = smaller;
}

/// Moves blocks [at, size) and the children to a new node below. The children move with the branch to which they refer. The node
/// keeps its id and its first blocks. So it exists while any block exists that was once in it, and references to these blocks
/// find the new node through `split_child`.
void PrefixTree::split(NodeId upper_id, std::uint32_t at) {
  ++splits_;
  const std::uint32_t moved = nodes_[upper_id.value()].size - at;
  const NodeId lower_id = new_node(upper_id, nodes_[upper_id.value()].start + at, arrays_.capacity_for(moved));
  Node& upper = nodes_[upper_id.value()];
  Node& lower = nodes_[lower_id.value()];

  std::copy_n(keys(upper) + at, moved, keys(lower));
  for (const Tier tier : all_tiers) std::copy_n(copies(upper, tier) + at, moved, copies(lower, tier));
  lower.size = moved;
  upper.size = at;
  lower.split_child = upper.split_child;
  upper.split_child = lower_id;
  lower.tenant = upper.tenant;
  lower.group = upper.group;
  lower.tenant_index = upper.tenant_index;
  lower.first_child = upper.first_child;
  upper.first_child = no_node;
  std::swap(upper.branch, lower.branch);
  std::swap(owners_[upper.branch], owners_[lower.branch]);
  lower.parent_branch = upper.branch;
  lower.pinned = upper.pinned - std::min(upper.pinned, at);
  upper.pinned -= lower.pinned;
  lower.pinned_children = upper.pinned_children;
  upper.pinned_children = lower.pinned > 0 ? 1 : 0;
  split_marks(upper, lower, at);

  for (const Tier tier : all_tiers) {
    InTier& above = state(upper_id, tier);
    InTier& below = state(lower_id, tier);
    const Copy* const taken = copies(lower, tier);
    below.resident = static_cast<std::uint32_t>(std::count_if(taken, taken + moved, [](Copy c) { return c.present(); }));
    below.end = below.deepest = moved;
    shrink_to_copies(below, taken);
    below.below = above.below;
    above.resident -= below.resident;
    above.end = std::min(above.end, at);
    above.deepest = std::min(above.deepest, at);
    shrink_to_copies(above, copies(upper, tier));
    above.below = below.any() ? 1 : 0;
  }
  link(lower_id);
  fit(upper);
  for (EvictionPolicy* const policy : followers_) policy->on_split(upper_id, lower_id, lower.start);
  refresh_leaves(upper_id);
  refresh_leaves(lower_id);
}

/// A new node without blocks takes over the root's children, with the branch to which they refer. It is a child of the root, but
/// is not in children_.
void PrefixTree::hide_all() {
  if (flat()) {
    flat_->hide_all();
    return sync_flat();
  }
  ++changes_;
  NodeId visible = nodes_[0].first_child;
  while (visible != no_node && nodes_[visible.value()].size == 0) visible = nodes_[visible.value()].next_sibling;
  if (visible == no_node) return;
  const NodeId over_id = new_node(root_node, 0, arrays_.capacity_for(1));
  ++hidden_nodes_;
  Node& root = nodes_[0];
  Node& over = nodes_[over_id.value()];
  std::swap(root.branch, over.branch);
  std::swap(owners_[root.branch], owners_[over.branch]);
  over.parent_branch = root.branch;
  over.first_child = root.first_child;
  over.pinned_children = root.pinned_children;
  over.next_sibling = over.previous_sibling = no_node;
  root.first_child = over_id;
  root.pinned_children = 0;
  for (const Tier tier : all_tiers) {
    state(over_id, tier).below = state(root_node, tier).below;
    state(root_node, tier).below = state(over_id, tier).any() ? 1 : 0;
  }
}

bool PrefixTree::hidden(BlockRef block) const {
  if (flat()) return flat_->hidden(block.node);
  if (hidden_nodes_ == 0) return false;
  for (NodeId id = block.node; id != root_node; id = parent_of(nodes_[id.value()])) {
    if (nodes_[id.value()].size == 0) return true;
  }
  return false;
}

void PrefixTree::link(NodeId id) {
  Node& node = nodes_[id.value()];
  Node& parent = nodes_[parent_of(node).value()];
  node.previous_sibling = no_node;
  node.next_sibling = parent.first_child;
  if (parent.first_child != no_node) nodes_[parent.first_child.value()].previous_sibling = id;
  parent.first_child = id;
  children_.insert(keys(node)[0], id);
}

void PrefixTree::unlink(NodeId id) {
  const Node& node = nodes_[id.value()];
  if (node.size > 0) {
    children_.erase(keys(node)[0], id);
  } else {
    --hidden_nodes_;
  }
  if (node.previous_sibling == no_node) {
    nodes_[parent_of(node).value()].first_child = node.next_sibling;
  } else {
    nodes_[node.previous_sibling.value()].next_sibling = node.next_sibling;
  }
  if (node.next_sibling != no_node) nodes_[node.next_sibling.value()].previous_sibling = node.previous_sibling;
}

/// Removes blocks without copies and pins from the end of a branch, and nodes that become empty.
void PrefixTree::prune(NodeId id) {
  while (id != root_node) {
    Node& node = nodes_[id.value()];
    if (node.first_child != no_node) return;
    // A block stays while it, or a block after it in the node, has a pin or a copy in any tier.
    std::uint32_t keep = node.pinned;
    for (const Tier tier : all_tiers) keep = std::max(keep, state(id, tier).end);
    if (keep == node.size && node.size > 0) return;
    ++changes_;
    blocks_ -= node.size - keep;
    if (keep > 0) {
      node.size = keep;
      cut_marks(node);
      if (node.capacity > arrays_.capacity_for(keep * 2)) fit(node);
      for (EvictionPolicy* const policy : followers_) policy->on_gone(id, node.end());
      return;
    }
    unlink(id);
    const NodeId parent = parent_of(node);
    if (nodes_[parent.value()].split_child == id) nodes_[parent.value()].split_child = no_node;
    arrays_.put(node.arrays, node.capacity);
    node.arrays = nullptr;
    node.size = 0;
    cut_marks(node);
    TERRACE_CHECK(node.marks == Node::none);
    for (EvictionPolicy* const policy : followers_) policy->on_gone(id, 0);
    free_nodes_.push_back(id.value());
    --node_count_;
    id = parent;
  }
}

const BlockKey& PrefixTree::key(BlockRef block) const {
  return keys(Run{resolve(block.node, block.depth), block.depth, block.depth + 1}).front();
}

std::span<const BlockKey> PrefixTree::keys(Run run) const {
  if (flat()) return {&flat_->key(run.node), 1};
  const Node& node = nodes_[run.node.value()];
  TERRACE_CHECK(run.begin >= node.start && run.begin <= run.end && run.end <= node.end());
  return {keys(node) + (run.begin - node.start), run.size()};
}

Run PrefixTree::last(Prefix prefix, std::uint32_t blocks) const {
  TERRACE_CHECK(blocks > 0 && blocks <= prefix.length);
  return {resolve(prefix.node, prefix.length - 1), prefix.length - blocks, prefix.length};
}

std::optional<BlockKey> PrefixTree::parent_key(BlockRef block) const {
  if (block.depth == 0) return std::nullopt;
  return key({block.node, block.depth - 1});
}

BlockRef PrefixTree::at(Prefix prefix, std::uint32_t depth) const { return {resolve(prefix.node, depth), depth}; }

Prefix PrefixTree::first(Prefix prefix, std::uint32_t length) const {
  return length == 0 ? Prefix{} : Prefix{resolve(prefix.node, length - 1), length};
}

GroupId PrefixTree::group(BlockRef block) const {
  if (flat()) return {};
  return nodes_[resolve(block.node, block.depth).value()].group;
}

TenantId PrefixTree::tenant(BlockRef block) const {
  if (flat()) return flat_->tenant(block.node);
  return nodes_[resolve(block.node, block.depth).value()].tenant;
}

bool PrefixTree::same(BlockRef a, BlockRef b) const {
  return a.depth == b.depth && resolve(a.node, a.depth) == resolve(b.node, b.depth);
}

void PrefixTree::collect_below(BlockRef block, std::vector<BlockRef>& out) const {
  if (flat()) return;
  walk(resolve(block.node, block.depth), [&](NodeId id) {
    const Node& node = nodes_[id.value()];
    for (std::uint32_t depth = std::max(block.depth + 1, node.start); depth < node.end(); ++depth) out.push_back({id, depth});
  });
}

bool PrefixTree::any_staying_below(BlockRef block, Tier tier) const {
  if (flat()) return false;
  const NodeId id = resolve(block.node, block.depth);
  const InTier& here = state(id, tier);
  return here.below > 0 || here.deepest > block.depth - nodes_[id.value()].start + 1;
}

TreeCounts PrefixTree::counts() const {
  if (flat()) {
    TreeCounts flat;
    flat.nodes = flat.blocks = blocks_;
    for (const Tier tier : all_tiers) {
      const Count& count = totals_[index(tier)].count;
      flat.tiers[index(tier)] = {.blocks = count.resident, .pinned = count.pinned, .leaves = count.resident};
    }
    for (std::uint32_t row = 0; row < flat_->end(); ++row) {
      if (flat_->exists(NodeId{row})) flat.references += flat_->pins(NodeId{row});
    }
    return flat;
  }
  TreeCounts counts;
  counts.nodes = node_count_;
  counts.blocks = blocks_;
  for (const Tier tier : all_tiers) {
    counts.tiers[index(tier)].blocks = totals_[index(tier)].count.resident;
    counts.tiers[index(tier)].pinned = totals_[index(tier)].count.pinned;
  }
  walk(root_node, [&](NodeId id) {
    const Node& node = nodes_[id.value()];
    if (has_plain_pin(node)) ++counts.references;
    if (node.marks != Node::none) {
      for (const Marks::Pin& pin : marks_[node.marks].pins) counts.references += pin.count;
    }
    for (const Tier tier : all_tiers) {
      const InTier& here = state(id, tier);
      if (here.deepest > 0 && here.below == 0) ++counts.tiers[index(tier)].leaves;
    }
  });
  return counts;
}

void PrefixTree::for_each_node(const std::function<void(Run)>& visit) const {
  if (flat()) {
    for (std::uint32_t row = 0; row < flat_->end(); ++row) {
      if (const std::optional<Run> block = blocks_in(NodeId{row})) visit(*block);
    }
    return;
  }
  walk(root_node, [&](NodeId id) {
    const Node& node = nodes_[id.value()];
    if (node.size > 0) visit({id, node.start, node.end()});
  });
}

void PrefixTree::for_each(const std::function<void(BlockRef)>& visit) const {
  for_each_node([&](Run run) {
    for (std::uint32_t depth = run.begin; depth < run.end; ++depth) visit({run.node, depth});
  });
}

std::optional<Run> PrefixTree::blocks_in(NodeId id) const {
  if (flat()) return flat_->exists(id) ? std::optional{Run{id, 0, 1}} : std::nullopt;
  const Node& node = nodes_[id.value()];
  if (node.size == 0) return std::nullopt;
  return Run{id, node.start, node.end()};
}

void PrefixTree::for_each_hidden(const std::function<void(BlockRef)>& visit) const {
  if (flat()) {
    return for_each([&](BlockRef block) {
      if (hidden(block)) visit(block);
    });
  }
  for (NodeId child = nodes_[0].first_child; child != no_node; child = nodes_[child.value()].next_sibling) {
    if (nodes_[child.value()].size > 0) continue;
    walk(child, [&](NodeId id) {
      const Node& node = nodes_[id.value()];
      for (std::uint32_t depth = node.start; depth < node.end(); ++depth) visit({id, depth});
    });
  }
}

std::uint32_t PrefixTree::common(Prefix a, Prefix b) const {
  if (flat()) return a.length > 0 && b.length > 0 && a.node == b.node ? 1 : 0;
  if (a.length == 0 || b.length == 0) return 0;
  NodeId x = resolve(a.node, a.length - 1);
  NodeId y = resolve(b.node, b.length - 1);
  while (x != y) {
    // If the nodes differ, the node that begins deeper is not an ancestor of the other.
    NodeId& deeper = nodes_[x.value()].start >= nodes_[y.value()].start ? x : y;
    Prefix& prefix = deeper == x ? a : b;
    prefix.length = nodes_[deeper.value()].start;
    if (prefix.length == 0) return 0;
    deeper = parent_of(nodes_[deeper.value()]);
  }
  return std::min(a.length, b.length);
}

std::uint32_t PrefixTree::unshared_from(Prefix prefix) const {
  if (flat()) return prefix.length > 0 && flat_->pinned(prefix.node) ? prefix.length : 0;
  if (prefix.length == 0) return 0;
  NodeId id = resolve(prefix.node, prefix.length - 1);
  std::uint32_t from = prefix.length;
  if (prefix.length < nodes_[id.value()].end() || nodes_[id.value()].first_child != no_node) return from;
  for (;;) {
    const Node& node = nodes_[id.value()];
    from = std::min(from, node.start + node.pinned);
    if (node.pinned > 0) return std::max(from, node.start + node.pinned);
    from = node.start;
    const NodeId above = parent_of(node);
    const bool only_child = nodes_[above.value()].first_child == id && node.next_sibling == no_node;
    if (from == 0 || !only_child) return from;
    id = above;
  }
}

std::size_t PrefixTree::bytes_held() const {
  if (flat()) return flat_->bytes_held();
  const std::size_t vectors =
      marks_.capacity() * sizeof(Marks) + free_nodes_.capacity() * sizeof(std::uint32_t) + tenants_.capacity() * sizeof(Tenant);
  return arrays_.bytes_held() + nodes_.bytes_held() + owners_.bytes_held() + children_.bytes_held() + vectors;
}

}  // namespace terrace
