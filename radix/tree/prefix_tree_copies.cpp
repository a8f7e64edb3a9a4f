// The part of PrefixTree for copies and candidates for eviction.

#include "base/check.hpp"
#include "radix/tree/prefix_tree.hpp"
#include "radix/tree/prefix_tree_node.hpp"

#include <algorithm>

namespace terrace {

// ---- copies --------------------------------------------------------------------------------------------------------------

Copy PrefixTree::copy(BlockRef block, Tier tier) const {
  return copies(Run{resolve(block.node, block.depth), block.depth, block.depth + 1}, tier).front();
}

void PrefixTree::set_copy(BlockRef block, Tier tier, Copy copy) {
  if (flat()) {
    flat_->set_copy(block.node, tier, copy);
    return sync_flat();
  }
  ++changes_;
  const NodeId id = resolve(block.node, block.depth);
  const Node& node = nodes_[id.value()];
  const std::uint32_t offset = block.depth - node.start;
  TERRACE_CHECK(offset < node.size);

  Copy* const row = copies(node, tier);
  const Copy before = row[offset];
  row[offset] = copy;
  Totals& totals = totals_[index(tier)];
  InTier& here = state(id, tier);
  const bool was_any = here.any();

  if (before.present() != copy.present()) {
    const int change = copy.present() ? 1 : -1;
    here.resident += static_cast<std::uint32_t>(change);
    count(node, tier, change, offset < node.pinned ? change : 0);
    if (totals.follower != nullptr) {
      const BlockRun blocks = blocks_of(id, offset, offset + 1);
      copy.present() ? totals.follower->on_inserted(blocks) : totals.follower->on_removed(blocks);
    }
  }
  if (copy.present()) here.end = std::max(here.end, offset + 1);
  if (copy.stays()) here.deepest = std::max(here.deepest, offset + 1);
  shrink_to_copies(here, row);
  refresh_leaf(id, tier);
  set_subtree_resident(id, tier, was_any);
  if (!copy.present()) prune(id);
}

/// Moves `end` and `deepest` down to the last remaining copies.
void PrefixTree::shrink_to_copies(InTier& here, const Copy* row) const {
  while (here.end > 0 && !row[here.end - 1].present()) --here.end;
  while (here.deepest > 0 && !row[here.deepest - 1].stays()) --here.deepest;
}

void PrefixTree::fill(Prefix prefix, Tier tier, std::span<const SlotId> slots, CopyState state_now) {
  if (flat()) {
    for (const SlotId slot : slots) set_copy(prefix.last(), tier, Copy{state_now, slot});
    return;
  }
  if (slots.empty()) return;
  ++changes_;
  const NodeId id = resolve(prefix.node, prefix.length - 1);
  const Node& node = nodes_[id.value()];
  const std::uint32_t end = prefix.length - node.start;
  const auto added = static_cast<std::uint32_t>(slots.size());
  TERRACE_CHECK(end <= node.size && added <= end);
  const std::uint32_t begin = end - added;
  Copy* const row = copies(node, tier) + begin;
  for (std::uint32_t i = 0; i < added; ++i) {
    TERRACE_CHECK(!row[i].present());
    row[i] = Copy{state_now, slots[i]};
  }
  InTier& here = state(id, tier);
  const bool was_any = here.any();
  here.resident += added;
  here.end = std::max(here.end, end);
  here.deepest = std::max(here.deepest, end);
  count(node, tier, added, std::min(node.pinned, end) - std::min(node.pinned, begin));
  if (EvictionPolicy* const follower = totals_[index(tier)].follower) follower->on_inserted(blocks_of(id, begin, end));
  refresh_leaf(id, tier);
  set_subtree_resident(id, tier, was_any);
}

void PrefixTree::change(Run run, Tier tier, CopyState to) {
  if (flat()) return set_copy({run.node, run.begin}, tier, Copy{to, flat_->copy(run.node, tier).slot()});
  ++changes_;
  const Node& node = nodes_[run.node.value()];
  TERRACE_CHECK(run.begin >= node.start && run.end <= node.end());
  TERRACE_CHECK(to == CopyState::ready || to == CopyState::busy || to == CopyState::evicting);
  Copy* const row = copies(node, tier);
  const std::span changed{row + (run.begin - node.start), run.size()};
  const auto can_be_ready = [](Copy copy) { return copy.state() == CopyState::filling || copy.state() == CopyState::busy; };
  TERRACE_CHECK(to == CopyState::ready ? std::ranges::all_of(changed, can_be_ready) : terrace::all_usable(changed));
  for (Copy& copy : changed) copy = Copy{to, copy.slot()};
  InTier& here = state(run.node, tier);
  const bool was_any = here.any();
  shrink_to_copies(here, row);
  refresh_leaf(run.node, tier);
  set_subtree_resident(run.node, tier, was_any);
}

void PrefixTree::drop(Run run, Tier tier) {
  TERRACE_CHECK(!flat());
  ++changes_;
  const Node& node = nodes_[run.node.value()];
  InTier& here = state(run.node, tier);
  TERRACE_CHECK(run.begin >= node.start + node.pinned && run.begin < run.end && here.below == 0);
  TERRACE_CHECK(run.end <= node.end() && run.end >= node.start + here.deepest);
  Copy* const row = copies(node, tier);
  const bool was_any = here.any();
  const std::uint32_t begin = run.begin - node.start;
  const std::uint32_t end = run.end - node.start;
  TERRACE_CHECK(lowest_state({row + begin, row + end}) >= CopyState::ready);
  std::fill(row + begin, row + end, Copy{});
  here.resident -= run.size();
  count(node, tier, -std::int64_t{run.size()}, 0);
  here.deepest = std::min(here.deepest, begin);
  if (here.end == end) here.end = begin;
  if (totals_[index(tier)].follower != nullptr) totals_[index(tier)].follower->on_removed(blocks_of(run.node, begin, end));
  shrink_to_copies(here, row);
  refresh_leaf(run.node, tier);
  set_subtree_resident(run.node, tier, was_any);
  prune(run.node);
}

std::span<const Copy> PrefixTree::copies(Run run, Tier tier) const {
  if (flat()) return {flat_->copies(run.node, tier), 1};
  const Node& node = nodes_[run.node.value()];
  return {copies(node, tier) + (run.begin - node.start), run.size()};
}

bool PrefixTree::any_in_node(Run run, Tier tier) const {
  if (flat()) return flat_->copy(run.node, tier).present();
  return state(run.node, tier).resident > 0;
}

void PrefixTree::read(Prefix prefix, Tier tier, std::uint32_t first, std::span<Copy> out) const {
  TERRACE_CHECK(first <= prefix.length && out.size() == prefix.length - first);
  for (Run run = last_run(prefix); run.end > first; run = last_run({run.node, run.begin})) {
    run.begin = std::max(run.begin, first);
    std::ranges::copy(copies(run, tier), out.begin() + (run.begin - first));
  }
}

bool PrefixTree::all_usable(Prefix prefix, Tier tier) const {
  for (Run run = last_run(prefix); run.end > 0; run = last_run({run.node, run.begin})) {
    if (!terrace::all_usable(copies(run, tier))) return false;
  }
  return true;
}

bool PrefixTree::read_slots(Prefix prefix, Tier tier, std::span<SlotId> out) const {
  TERRACE_CHECK(out.size() == prefix.length);
  bool all = true;
  for (Run run = last_run(prefix); run.end > 0; run = last_run({run.node, run.begin})) {
    const std::span<const Copy> of_run = copies(run, tier);
    all &= terrace::all_usable(of_run);
    terrace::read_slots(of_run, out.data() + run.begin);
  }
  return all;
}

/// Updates the ancestors when a subtree gets its first staying copy in a tier, or loses its last one.
void PrefixTree::set_subtree_resident(NodeId id, Tier tier, bool was) {
  while (id != root_node && state(id, tier).any() != was) {
    const NodeId above = parent_of(nodes_[id.value()]);
    InTier& parent = state(above, tier);
    const bool parent_was = parent.any();
    if (was) {
      --parent.below;
    } else {
      ++parent.below;
    }
    refresh_leaf(above, tier);
    id = above;
    was = parent_was;
  }
}

bool PrefixTree::evictable(const Node& node, Tier tier) const {
  const InTier& here = node.in_tiers[index(tier)];
  return here.deepest > node.pinned && here.below == 0 && copies(node, tier)[here.deepest - 1].state() == CopyState::ready;
}

/// Tells the tier's policy whether the node has a candidate for eviction now, and which block it is.
void PrefixTree::refresh_leaf(NodeId id, Tier tier) {
  const Totals& totals = totals_[index(tier)];
  if (totals.policy == nullptr) return;
  const Node& node = nodes_[id.value()];
  InTier& here = state(id, tier);
  if (evictable(node, tier)) {
    here.listed = 1;
    const std::uint32_t last = here.deepest - 1;
    totals.policy->on_evictable(
        {{id, node.start + last}, keys(node)[last], last_use_in(node, last), priority_in(node, last, tier), node.tenant_index});
  } else if (here.listed != 0) {
    // A policy that keeps pinned candidates is informed when it names this candidate, or when the pin ends.
    if (totals.keeps_pinned && node.pinned > 0 && node.pinned >= here.deepest) return;
    here.listed = 0;
    totals.policy->on_unevictable(id);
  }
}

/// Reports the node's blocks in the tier to a new policy.
void PrefixTree::introduce(NodeId id, Tier tier) {
  EvictionPolicy* const follower = totals_[index(tier)].follower;
  const Copy* const row = copies(nodes_[id.value()], tier);
  const std::uint32_t end = state(id, tier).end;
  for (std::uint32_t begin = 0; follower != nullptr && begin < end;) {
    const auto present = [](Copy copy) { return copy.present(); };
    const auto to = static_cast<std::uint32_t>(std::find_if_not(row + begin, row + end, present) - row);
    if (to > begin) follower->on_inserted(blocks_of(id, begin, to));
    begin = static_cast<std::uint32_t>(std::find_if(row + to, row + end, present) - row);
  }
  state(id, tier).listed = 0;
  refresh_leaf(id, tier);
}

std::optional<BlockRef> PrefixTree::victim(Tier tier, std::optional<TenantId> tenant) {
  if (flat()) {
    const std::optional<NodeId> block = tier == Tier::host ? flat_->victim() : std::nullopt;
    return block ? std::optional{BlockRef{*block, 0}} : std::nullopt;
  }
  TERRACE_CHECK(!tenant || follows_tenant(*tenant));
  EvictionPolicy* const policy = totals_[index(tier)].policy;
  if (policy == nullptr) return std::nullopt;
  // Ask until the policy names an unpinned candidate.
  while (const std::optional<NodeId> id = tenant ? policy->victim(tenant_of(*tenant)) : policy->victim()) {
    const Node& node = nodes_[id->value()];
    InTier& here = state(*id, tier);
    if (evictable(node, tier)) return BlockRef{*id, node.start + here.deepest - 1};
    TERRACE_CHECK(totals_[index(tier)].keeps_pinned && here.listed != 0);
    here.listed = 0;
    policy->on_unevictable(*id);
  }
  return std::nullopt;
}

bool PrefixTree::admits(BlockRef block, Tier tier) {
  if (flat() || !victim(tier)) return true;  // afterwards, the policy's victim is not pinned
  const NodeId id = resolve(block.node, block.depth);
  const Node& node = nodes_[id.value()];
  const std::uint32_t at = block.depth - node.start;
  return totals_[index(tier)].policy->admits(
      {{id, block.depth}, keys(node)[at], last_use_in(node, at), priority_in(node, at, tier), node.tenant_index});
}

std::optional<Run> PrefixTree::victims(Tier tier, std::uint32_t blocks_max, std::optional<TenantId> tenant) {
  const std::optional<BlockRef> last = victim(tier, tenant);
  if (!last || blocks_max == 0) return std::nullopt;
  return run_to(*last, tier, blocks_max);
}

/// The run ends at `last`. It begins after the last pinned block, after the last change of use or priority, where the policy
/// begins to treat blocks alike, and after the last copy that is not ready. It has at most blocks_max blocks.
Run PrefixTree::run_to(BlockRef last, Tier tier, std::uint32_t blocks_max) const {
  if (flat()) return {last.node, 0, 1};
  const Node& node = nodes_[last.node.value()];
  const Copy* const row = copies(node, tier);
  const std::uint32_t end = last.depth - node.start + 1;
  const std::uint32_t alike = totals_[index(tier)].policy->alike_from(last.node, last.depth);
  const bool is_marked = node.marks != Node::none || node.in_tiers[index(tier)].companion != Companion::no;
  std::uint32_t least = is_marked ? std::max(node.pinned, marked_alike_from(node, end - 1, tier)) : node.pinned;
  least = std::max({least, end - std::min(end, blocks_max), alike - std::min(alike, node.start)});
  std::uint32_t begin = end - 1;
  while (begin > least && row[begin - 1].state() == CopyState::ready) --begin;
  return {last.node, node.start + begin, node.start + end};
}

std::uint32_t PrefixTree::resident_in(NodeId id, Tier tier, std::uint32_t from, std::uint32_t to) const {
  const InTier& here = state(id, tier);
  const std::uint32_t end = std::min(to, here.end);
  if (end <= from) return 0;
  if (here.resident == here.end) return end - from;  // the usual case: no gaps
  const Copy* const row = copies(nodes_[id.value()], tier);
  return static_cast<std::uint32_t>(std::count_if(row + from, row + end, [](Copy c) { return c.present(); }));
}

}  // namespace terrace
