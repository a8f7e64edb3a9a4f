// Copies, pins and uses: what decides which blocks may be given up.

#include "base/check.hpp"
#include "radix/prefix_tree.hpp"
#include "radix/prefix_tree_node.hpp"

#include <algorithm>

namespace terrace {

// ---- copies --------------------------------------------------------------------------------------------------------------

Copy PrefixTree::copy(BlockRef block, Plane plane) const {
  const Node& node = nodes_[resolve(block.node, block.depth).value()];
  return copies(node, plane.index())[block.depth - node.start];
}

void PrefixTree::set_copy(BlockRef block, Plane plane, Copy copy) {
  const NodeId id = resolve(block.node, block.depth);
  const std::size_t p = plane.index();
  const Node& node = nodes_[id.value()];
  const std::uint32_t offset = block.depth - node.start;
  TERRACE_CHECK(offset < node.size);

  Copy* const row = copies(node, p);
  const Copy before = row[offset];
  row[offset] = copy;
  Totals& totals = planes_[p];
  NodePlane& here = state(id, p);
  const bool was_any = here.any();

  if (before.present() != copy.present()) {
    const bool is_pinned = totals.policy != nullptr && offset < node.pinned;
    if (copy.present()) {
      ++here.resident;
      ++totals.resident;
      if (is_pinned) ++totals.pinned;
      if (totals.follower != nullptr) totals.follower->on_inserted(keys(node)[offset]);
    } else {
      --here.resident;
      --totals.resident;
      if (is_pinned) --totals.pinned;
      if (totals.follower != nullptr) totals.follower->on_removed(keys(node)[offset]);
    }
  }
  if (copy.present()) here.end = std::max(here.end, offset + 1);
  if (copy.stays()) here.deepest = std::max(here.deepest, offset + 1);
  shrink_to_copies(here, row);
  refresh_leaf(id, p);
  set_subtree_resident(id, p, was_any);
  if (!copy.present()) prune(id);
}

/// Takes back the marks behind the last copies, where these went.
void PrefixTree::shrink_to_copies(NodePlane& here, const Copy* row) const {
  while (here.end > 0 && !row[here.end - 1].present()) --here.end;
  while (here.deepest > 0 && !row[here.deepest - 1].stays()) --here.deepest;
}

void PrefixTree::fill(Path path, Plane plane, std::span<const SlotId> slots) {
  if (slots.empty()) return;
  const NodeId id = resolve(path.node, path.length - 1);
  const std::size_t p = plane.index();
  const Node& node = nodes_[id.value()];
  const std::uint32_t end = path.length - node.start;
  const auto count = static_cast<std::uint32_t>(slots.size());
  TERRACE_CHECK(end <= node.size && count <= end);
  Copy* const row = copies(node, p) + (end - count);
  Totals& totals = planes_[p];
  for (std::uint32_t i = 0; i < count; ++i) {
    TERRACE_CHECK(!row[i].present());
    row[i] = Copy{CopyState::ready, slots[i]};
  }
  NodePlane& here = state(id, p);
  const bool was_any = here.any();
  here.resident += count;
  here.end = std::max(here.end, end);
  here.deepest = std::max(here.deepest, end);
  totals.resident += count;
  if (totals.follower != nullptr) {
    for (std::uint32_t offset = end - count; offset < end; ++offset) totals.follower->on_inserted(keys(node)[offset]);
  }
  if (totals.policy != nullptr) {
    totals.pinned += std::min(node.pinned, end) - std::min(node.pinned, end - count);
  }
  refresh_leaf(id, p);
  set_subtree_resident(id, p, was_any);
}

void PrefixTree::drop(Run run, Plane plane) {
  const std::size_t p = plane.index();
  const Node& node = nodes_[run.node.value()];
  NodePlane& here = state(run.node, p);
  TERRACE_CHECK(run.begin >= node.start + node.pinned && run.begin < run.end && here.below == 0);
  TERRACE_CHECK(run.end == node.start + here.deepest);
  Copy* const row = copies(node, p);
  Totals& totals = planes_[p];
  std::fill(row + (run.begin - node.start), row + (run.end - node.start), Copy{});
  here.resident -= run.size();
  totals.resident -= run.size();
  if (totals.follower != nullptr) {
    for (std::uint32_t depth = run.end; depth-- > run.begin;) totals.follower->on_removed(keys(node)[depth - node.start]);
  }
  shrink_to_copies(here, row);
  refresh_leaf(run.node, p);
  set_subtree_resident(run.node, p, true);
  prune(run.node);
}

std::span<const Copy> PrefixTree::copies(Run run, Plane plane) const {
  const Node& node = nodes_[run.node.value()];
  return {copies(node, plane.index()) + (run.begin - node.start), run.size()};
}

bool PrefixTree::any_in_node(Run run, Plane plane) const { return state(run.node, plane.index()).resident > 0; }

void PrefixTree::read(Path path, Plane plane, std::uint32_t first, std::span<Copy> out) const {
  TERRACE_CHECK(first <= path.length && out.size() == path.length - first);
  std::uint32_t length = path.length;
  NodeId id = path.node;
  while (length > first) {
    id = resolve(id, length - 1);
    const Node& node = nodes_[id.value()];
    const std::uint32_t from = std::max(first, node.start);
    std::copy_n(copies(node, plane.index()) + (from - node.start), length - from, out.begin() + (from - first));
    length = from;
    id = parent_of(node);
  }
}

/// Tells the ancestors when a subtree gains its first copy that stays in a plane or loses its last.
void PrefixTree::set_subtree_resident(NodeId id, std::size_t plane, bool was) {
  while (id != root_node && state(id, plane).any() != was) {
    const NodeId above = parent_of(nodes_[id.value()]);
    NodePlane& parent = state(above, plane);
    const bool parent_was = parent.any();
    if (was) {
      --parent.below;
    } else {
      ++parent.below;
    }
    refresh_leaf(above, plane);
    id = above;
    was = parent_was;
  }
}

/// Tells the plane's policy whether the node has a candidate now, and which.
void PrefixTree::refresh_leaf(NodeId id, std::size_t plane) {
  EvictionPolicy* const policy = planes_[plane].policy;
  if (policy == nullptr) return;
  const Node& node = nodes_[id.value()];
  NodePlane& here = state(id, plane);
  const bool evictable = here.deepest > node.pinned && here.below == 0 &&
                         copies(node, plane)[here.deepest - 1].state() == CopyState::ready;
  if (evictable) {
    here.listed = 1;
    const std::uint32_t last = here.deepest - 1;
    policy->on_evictable({id, node.start + last}, keys(node)[last], last_use_in(node, last));
  } else if (here.listed != 0) {
    here.listed = 0;
    policy->on_unevictable(id);
  }
}

void PrefixTree::refresh_leaves(NodeId id) {
  for (std::size_t p = 0; p < plane_count_; ++p) refresh_leaf(id, p);
}

std::optional<BlockRef> PrefixTree::victim(Plane plane) const {
  const std::size_t p = plane.index();
  if (planes_[p].policy == nullptr) return std::nullopt;
  const std::optional<NodeId> id = planes_[p].policy->victim();
  if (!id) return std::nullopt;
  return BlockRef{*id, nodes_[id->value()].start + state(*id, p).deepest - 1};
}

std::optional<Run> PrefixTree::victims(Plane plane, std::uint32_t blocks_max) const {
  const std::optional<BlockRef> last = victim(plane);
  if (!last || blocks_max == 0) return std::nullopt;
  // Who follows single blocks may think differently of the one before.
  if (planes_[plane.index()].follower != nullptr) return Run{last->node, last->depth, last->depth + 1};
  const Node& node = nodes_[last->node.value()];
  const Copy* const row = copies(node, plane.index());
  const std::uint32_t end = last->depth - node.start + 1;
  std::uint32_t least = std::max(node.pinned, used_together_from(node, end - 1));
  least = std::max(least, end - std::min(end, blocks_max));
  std::uint32_t begin = end - 1;
  while (begin > least && row[begin - 1].state() == CopyState::ready) --begin;
  return Run{last->node, node.start + begin, node.start + end};
}

std::uint32_t PrefixTree::resident_in(NodeId id, std::size_t plane, std::uint32_t from, std::uint32_t to) const {
  const NodePlane& here = state(id, plane);
  const std::uint32_t end = std::min(to, here.end);
  if (end <= from) return 0;
  if (here.resident == here.end) return end - from;  // no gaps, as is the rule
  const Copy* const row = copies(nodes_[id.value()], plane);
  return static_cast<std::uint32_t>(std::count_if(row + from, row + end, [](Copy c) { return c.present(); }));
}

// ---- pins ----------------------------------------------------------------------------------------------------------------

void PrefixTree::pin(Path path) {
  if (path.length == 0) return;
  const NodeId id = resolve(path.node, path.length - 1);
  Node& node = nodes_[id.value()];
  const std::uint32_t blocks = path.length - node.start;
  auto& pins = marks(node).pins;
  const auto same = std::find_if(pins.begin(), pins.end(), [&](const Marks::Pin& pin) { return pin.blocks == blocks; });
  if (same == pins.end()) {
    pins.push_back({blocks, 1});
  } else {
    ++same->count;
  }
  if (blocks > node.pinned) set_pinned(id, blocks);
}

void PrefixTree::unpin(Path path) {
  if (path.length == 0) return;
  const NodeId id = resolve(path.node, path.length - 1);
  Node& node = nodes_[id.value()];
  const std::uint32_t blocks = path.length - node.start;
  auto& pins = marks(node).pins;
  const auto pin = std::find_if(pins.begin(), pins.end(), [&](const Marks::Pin& p) { return p.blocks == blocks; });
  TERRACE_CHECK(pin != pins.end());
  if (--pin->count == 0) {
    *pin = pins.back();
    pins.pop_back();
  }
  const std::uint32_t pinned = pinned_from_marks(node);
  drop_empty_marks(node);
  if (pinned != node.pinned) set_pinned(id, pinned);
  prune(id);
}

bool PrefixTree::pinned(BlockRef block) const {
  const Node& node = nodes_[resolve(block.node, block.depth).value()];
  return block.depth - node.start < node.pinned;
}

std::uint32_t PrefixTree::pinned_from_marks(const Node& node) const {
  if (node.pinned_children > 0) return node.size;
  std::uint32_t longest = 0;
  if (node.marks != Node::none) {
    for (const Marks::Pin& pin : marks_[node.marks].pins) longest = std::max(longest, pin.blocks);
  }
  return longest;
}

void PrefixTree::set_pinned(NodeId id, std::uint32_t pinned) {
  for (;;) {
    Node& node = nodes_[id.value()];
    const std::uint32_t before = node.pinned;
    node.pinned = pinned;
    for (std::size_t p = 0; p < plane_count_; ++p) {
      Totals& totals = planes_[p];
      if (totals.policy == nullptr) continue;
      if (pinned > before) {
        totals.pinned += resident_in(id, p, before, pinned);
      } else {
        totals.pinned -= resident_in(id, p, pinned, before);
      }
    }
    refresh_leaves(id);

    // A node with a pin pins everything above it.
    const NodeId parent = parent_of(node);
    if ((before > 0) == (pinned > 0) || parent == root_node) return;
    id = parent;
    Node& above = nodes_[id.value()];
    if (pinned > 0) {
      ++above.pinned_children;
    } else {
      --above.pinned_children;
    }
    pinned = pinned_from_marks(above);
    if (pinned == above.pinned) return;
  }
}

// ---- uses ----------------------------------------------------------------------------------------------------------------

void PrefixTree::touch(Path path, std::uint64_t stamp) {
  std::uint32_t length = path.length;
  NodeId id = path.node;
  while (length > 0) {
    id = resolve(id, length - 1);
    const Node& node = nodes_[id.value()];
    for (const Totals& totals : planes_) {
      if (totals.follower != nullptr) totals.follower->on_used({keys(node), length - node.start}, stamp);
    }
    touch_node(id, length - node.start, stamp);
    length = node.start;
    id = parent_of(node);
  }
}

void PrefixTree::touch_node(NodeId id, std::uint32_t blocks, std::uint64_t stamp) {
  Node& node = nodes_[id.value()];
  if (blocks == node.size && node.marks == Node::none) {
    if (stamp <= node.last_use) return;
    node.last_use = stamp;
  } else {
    if (last_use_in(node, blocks - 1) >= stamp) return;
    auto& uses = marks(node).uses;
    // Older uses that reach no farther are covered by this one.
    std::erase_if(uses, [&](const Marks::Use& use) { return use.blocks <= blocks && use.stamp <= stamp; });
    if (blocks == node.size) {
      node.last_use = stamp;
    } else {
      const auto shorter = std::find_if(uses.begin(), uses.end(), [&](const Marks::Use& use) { return use.blocks < blocks; });
      uses.insert(shorter, Marks::Use{blocks, stamp});
    }
    drop_empty_marks(node);
  }
  refresh_leaves(id);
}

std::uint64_t PrefixTree::last_use(BlockRef block) const {
  const Node& node = nodes_[resolve(block.node, block.depth).value()];
  return last_use_in(node, block.depth - node.start);
}

std::uint64_t PrefixTree::last_use_in(const Node& node, std::uint32_t offset) const {
  if (node.marks == Node::none) return node.last_use;
  const auto& uses = marks_[node.marks].uses;
  for (auto use = uses.rbegin(); use != uses.rend(); ++use) {
    if (offset < use->blocks) return use->stamp;
  }
  return node.last_use;
}

/// The first of the blocks up to `offset` that were last used with it.
std::uint32_t PrefixTree::used_together_from(const Node& node, std::uint32_t offset) const {
  if (node.marks == Node::none) return 0;
  for (const Marks::Use& use : marks_[node.marks].uses) {
    if (use.blocks <= offset) return use.blocks;
  }
  return 0;
}

PrefixTree::Marks& PrefixTree::marks(Node& node) {
  if (node.marks == Node::none) {
    if (free_marks_.empty()) {
      node.marks = static_cast<std::uint32_t>(marks_.size());
      marks_.emplace_back();
    } else {
      node.marks = free_marks_.back();
      free_marks_.pop_back();
    }
  }
  return marks_[node.marks];
}

void PrefixTree::drop_empty_marks(Node& node) {
  if (node.marks == Node::none) return;
  const Marks& m = marks_[node.marks];
  if (!m.pins.empty() || !m.uses.empty()) return;
  free_marks_.push_back(node.marks);  // the vectors keep their memory
  node.marks = Node::none;
}

/// Deals out the marks of a node that is now `upper`.
void PrefixTree::split_marks(Node& upper, Node& lower, std::uint32_t at) {
  lower.last_use = upper.last_use;
  if (upper.marks == Node::none) return;
  // Taken out first: both halves' marks live in one vector, which may move. (By copying, so that each keeps its memory.)
  Marks& old = *split_marks_;
  old = marks_[upper.marks];
  marks_[upper.marks].pins.clear();
  marks_[upper.marks].uses.clear();
  drop_empty_marks(upper);
  for (const Marks::Pin& pin : old.pins) {
    if (pin.blocks > at) {
      marks(lower).pins.push_back({pin.blocks - at, pin.count});
    } else {
      marks(upper).pins.push_back(pin);
    }
  }
  for (const Marks::Use& use : old.uses) {  // longest first: the last that covers all of the upper half is its last use
    if (use.blocks >= at) upper.last_use = use.stamp;
    if (use.blocks > at) marks(lower).uses.push_back({use.blocks - at, use.stamp});
    if (use.blocks < at) marks(upper).uses.push_back(use);
  }
}

}  // namespace terrace
