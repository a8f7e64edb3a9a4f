// The part of PrefixTree for marks: pins, uses and retentions, each for the first blocks of a node.

#include "base/check.hpp"
#include "radix/tree/prefix_tree.hpp"
#include "radix/tree/prefix_tree_node.hpp"

#include <algorithm>

namespace terrace {

// ---- pins ----------------------------------------------------------------------------------------------------------------

void PrefixTree::pin(Prefix prefix) {
  if (flat()) {
    if (prefix.length > 0) flat_->pin(prefix.node);
    return sync_flat();
  }
  if (prefix.length == 0) return;
  const NodeId id = resolve(prefix.node, prefix.length - 1);
  Node& node = nodes_[id.value()];
  const std::uint32_t blocks = prefix.length - node.start;
  if (node.marks == Node::none && node.pinned == 0) return set_pinned(id, blocks);
  auto& pins = marks(node).pins;
  const auto same = std::find_if(pins.begin(), pins.end(), [&](const Marks::Pin& pin) { return pin.blocks == blocks; });
  if (same == pins.end()) {
    pins.push_back({blocks, 1});
  } else {
    ++same->count;
  }
  if (blocks > node.pinned) set_pinned(id, blocks);
}

void PrefixTree::unpin(Prefix prefix) {
  if (flat()) {
    if (prefix.length == 0) return;
    if (flat_->pins(prefix.node) == 1) ++unpins_;
    flat_->unpin(prefix.node);
    return sync_flat();
  }
  if (prefix.length == 0) return;
  const NodeId id = resolve(prefix.node, prefix.length - 1);
  Node& node = nodes_[id.value()];
  const std::uint32_t blocks = prefix.length - node.start;
  if (has_plain_pin(node)) {
    TERRACE_CHECK(node.pinned == blocks);
    set_pinned(id, 0);
    return prune(id);
  }
  TERRACE_CHECK(node.marks != Node::none);
  auto& pins = marks_[node.marks].pins;
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
  if (flat()) return flat_->pinned(block.node);
  const Node& node = nodes_[resolve(block.node, block.depth).value()];
  return block.depth - node.start < node.pinned;
}

/// Returns true if the node has a single pin and no other marks. Such a pin needs no marks, because `pinned` has its length.
bool PrefixTree::has_plain_pin(const Node& node) const {
  return node.marks == Node::none && node.pinned > 0 && node.pinned_children == 0;
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
    if (pinned < before) ++unpins_;
    for (const Tier tier : all_tiers) {
      if (totals_[index(tier)].policy == nullptr || node.in_tiers[index(tier)].resident == 0) continue;
      const std::int64_t changed = resident_in(id, tier, std::min(before, pinned), std::max(before, pinned));
      count(node, tier, 0, pinned > before ? changed : -changed);
    }
    refresh_leaves(id);

    // A pin in a node pins all blocks above the node.
    const NodeId parent = parent_of(node);
    if ((before > 0) == (pinned > 0) || parent == root_node) return;
    id = parent;
    Node& above = nodes_[id.value()];
    if (pinned > 0) {
      if (has_plain_pin(above)) (void)marks(above);
      ++above.pinned_children;
    } else {
      --above.pinned_children;
    }
    pinned = pinned_from_marks(above);
    if (pinned == above.pinned) return;
  }
}

// ---- uses ----------------------------------------------------------------------------------------------------------------

void PrefixTree::touch(Prefix prefix, std::uint64_t stamp) {
  if (flat()) {
    if (prefix.length > 0) flat_->touch(prefix.node, stamp);
    return;
  }
  if (!followers_.empty()) tell_continued(last_run(prefix), stamp);
  for (Run run = last_run(prefix); run.end > 0; run = last_run({run.node, run.begin})) {
    if (!followers_.empty()) {
      const std::uint32_t known = run.begin + used_since(nodes_[run.node.value()], stamp);
      for (EvictionPolicy* const policy : followers_) policy->on_used(blocks_of(run.node, 0, run.size()), stamp, known);
    }
    touch_node(run.node, run.size(), stamp);
  }
}

/// A prefix that ends with a whole node without children continues what the last request left there.
void PrefixTree::tell_continued(Run last_run, std::uint64_t stamp) const {
  if (last_run.end == 0) return;
  const Node& node = nodes_[last_run.node.value()];
  if (node.first_child != no_node || last_run.end != node.end()) return;
  const std::uint64_t last = last_use_in(node, node.size - 1);
  if (last == 0 || last >= stamp) return;
  for (EvictionPolicy* const policy : followers_) policy->on_continued(stamp, last);
}

void PrefixTree::end_request(std::uint64_t stamp, std::uint64_t output_tokens) {
  for (EvictionPolicy* const policy : followers_) policy->on_ended(stamp, output_tokens);
}

std::uint32_t PrefixTree::expect(Prefix prefix, const ExpectedUse& use) {
  std::uint32_t told = 0;
  for (Run run = flat() ? Run{} : last_run(prefix); run.end > 0; run = last_run({run.node, run.begin})) {
    const Node& node = nodes_[run.node.value()];
    const NodeId child = node.first_child;
    const bool goes_on = told > 0 && child != no_node && nodes_[child.value()].next_sibling == no_node;
    if (run.end != node.end() || (child != no_node && !goes_on)) break;
    for (EvictionPolicy* const policy : followers_) policy->on_expected(blocks_of(run.node, 0, node.size), use);
    refresh_leaves(run.node);
    told += run.size();
  }
  return told;
}

void PrefixTree::touch_node(NodeId id, std::uint32_t blocks, std::uint64_t stamp) {
  Node& node = nodes_[id.value()];
  if (blocks == node.size && node.marks == Node::none) {
    if (stamp <= node.last_use) return;
    node.last_use = stamp;
  } else {
    if (last_use_in(node, blocks - 1) >= stamp) return;
    auto& uses = marks(node).uses;
    // This use replaces older uses that cover at most the same blocks.
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
  if (flat()) return flat_->last_use(block.node);
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

/// Returns how many of the node's first blocks were used at the stamp or later.
std::uint32_t PrefixTree::used_since(const Node& node, std::uint64_t stamp) const {
  if (node.last_use >= stamp) return node.size;
  if (node.marks == Node::none) return 0;
  for (const Marks::Use& use : marks_[node.marks].uses) {
    if (use.stamp >= stamp) return use.blocks;
  }
  return 0;
}

/// Returns the first offset from which on all blocks up to `offset` have the same last use and the same priority.
std::uint32_t PrefixTree::marked_alike_from(const Node& node, std::uint32_t offset, Tier tier) const {
  std::uint32_t from = node.in_tiers[index(tier)].companion != Companion::no && offset > 0 ? 1 : 0;
  if (node.marks == Node::none) return from;
  for (const Marks::Use& use : marks_[node.marks].uses) {
    if (use.blocks <= offset) from = std::max(from, use.blocks);
  }
  for (const Marks::Retention& retention : marks_[node.marks].retentions) {
    if (retention.blocks <= offset) from = std::max(from, retention.blocks);
  }
  return from;
}

// ---- retention -----------------------------------------------------------------------------------------------------------

void PrefixTree::retain(Prefix prefix, RetentionId wish, Priority priority) {
  TERRACE_CHECK(priority <= highest_priority);
  for (Run run = last_run(prefix); run.end > 0; run = last_run({run.node, run.begin})) {
    auto& retentions = marks(nodes_[run.node.value()]).retentions;
    const auto same = std::ranges::find(retentions, wish, &Marks::Retention::id);
    if (same == retentions.end()) {
      retentions.push_back({wish, run.size(), priority});
    } else {
      *same = {wish, std::max(same->blocks, run.size()), priority};
    }
    refresh_leaves(run.node);
  }
}

void PrefixTree::end_retention(Prefix prefix, RetentionId wish) {
  for (Run run = last_run(prefix); run.end > 0; run = last_run({run.node, run.begin})) {
    Node& node = nodes_[run.node.value()];
    if (node.marks == Node::none) continue;
    const auto ended = std::erase_if(marks_[node.marks].retentions, [&](const auto& each) { return each.id == wish; });
    drop_empty_marks(node);
    if (ended > 0) refresh_leaves(run.node);
  }
}

Priority PrefixTree::priority(BlockRef block, Tier tier) const {
  if (flat()) return usual_priority;
  const Node& node = nodes_[resolve(block.node, block.depth).value()];
  return priority_in(node, block.depth - node.start, tier);
}

void PrefixTree::set_companion(BlockRef block, Tier tier, Companion companion) {
  TERRACE_CHECK(!flat() && block.depth == 0);
  const NodeId id = resolve(block.node, block.depth);
  if (state(id, tier).companion == companion) return;
  state(id, tier).companion = companion;
  refresh_leaf(id, tier);
}

Companion PrefixTree::companion(BlockRef block, Tier tier) const {
  if (flat() || block.depth > 0) return Companion::no;
  return state(resolve(block.node, block.depth), tier).companion;
}

Priority PrefixTree::marked_priority(const Node& node, std::uint32_t offset, Tier tier) const {
  std::optional<Priority> highest;
  const Companion companion = node.in_tiers[index(tier)].companion;
  if (companion != Companion::no && offset == 0) highest = companion == Companion::wanted ? highest_priority : lowest_priority;
  if (node.marks == Node::none) return highest.value_or(usual_priority);
  for (const Marks::Retention& retention : marks_[node.marks].retentions) {
    if (offset < retention.blocks) highest = std::max(highest.value_or(0), retention.priority);
  }
  return highest.value_or(usual_priority);
}

// ---- marks ---------------------------------------------------------------------------------------------------------------

/// Returns the node's marks. If it has none yet, they begin with its plain pin.
PrefixTree::Marks& PrefixTree::marks(Node& node) {
  const bool pinned = has_plain_pin(node);
  Marks& marks = bare_marks(node);
  if (pinned) marks.pins.push_back({node.pinned, 1});
  return marks;
}

PrefixTree::Marks& PrefixTree::bare_marks(Node& node) {
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
  if (!marks_[node.marks].empty()) return;
  free_marks_.push_back(node.marks);  // the vectors keep their memory
  node.marks = Node::none;
}

/// Limits the marks to the remaining blocks of a node that has lost blocks at its end.
void PrefixTree::cut_marks(Node& node) {
  if (node.marks == Node::none) return;
  Marks& m = marks_[node.marks];
  while (!m.uses.empty() && m.uses.front().blocks >= node.size) {  // it covers the whole node now
    node.last_use = m.uses.front().stamp;
    m.uses.erase(m.uses.begin());
  }
  for (Marks::Retention& retention : m.retentions) retention.blocks = std::min(retention.blocks, node.size);
  std::erase_if(m.retentions, [](const Marks::Retention& retention) { return retention.blocks == 0; });
  drop_empty_marks(node);
}

/// Divides the marks of a node that was split between its two halves. A plain pin belongs to the half in which it ends.
void PrefixTree::split_marks(Node& upper, Node& lower, std::uint32_t at) {
  lower.last_use = upper.last_use;
  if (upper.marks == Node::none) return;
  // Copy the marks to scratch memory first, because the marks of both halves are in one vector, which may reallocate. The
  // assignment reuses the memory of the scratch vectors.
  Marks& old = *split_marks_;
  old = marks_[upper.marks];
  marks_[upper.marks].pins.clear();
  marks_[upper.marks].uses.clear();
  marks_[upper.marks].retentions.clear();
  drop_empty_marks(upper);
  for (const Marks::Pin& pin : old.pins) {
    if (pin.blocks > at) {
      bare_marks(lower).pins.push_back({pin.blocks - at, pin.count});
    } else {
      bare_marks(upper).pins.push_back(pin);
    }
  }
  for (const Marks::Use& use : old.uses) {  // longest first: the last one that covers the whole upper half is its last use
    if (use.blocks >= at) upper.last_use = use.stamp;
    if (use.blocks > at) bare_marks(lower).uses.push_back({use.blocks - at, use.stamp});
    if (use.blocks < at) bare_marks(upper).uses.push_back(use);
  }
  for (const Marks::Retention& each : old.retentions) {
    bare_marks(upper).retentions.push_back({each.id, std::min(each.blocks, at), each.priority});
    if (each.blocks > at) bare_marks(lower).retentions.push_back({each.id, each.blocks - at, each.priority});
  }
}

}  // namespace terrace
