#pragma once

#include "base/block_key.hpp"
#include "base/chunked_table.hpp"
#include "base/tier.hpp"
#include "radix/eviction/eviction_policy.hpp"
#include "radix/tree/array_pool.hpp"
#include "radix/tree/child_table.hpp"
#include "radix/tree/copy.hpp"

#include <boost/unordered/unordered_flat_map.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace terrace {

/// The first `length` blocks of a sequence. Length 0 is the empty prefix. As the tree returns it, `node` holds the last block, or
/// did before it was split; it is valid while that block exists. `{prefix.node, shorter}` is good for a question while `prefix`
/// itself is valid; to keep it, ask the tree for first(prefix, shorter), and for at(prefix, i) to keep a block.
struct Prefix {
  NodeId node;
  std::uint32_t length = 0;

  [[nodiscard]] BlockRef last() const { return {node, length - 1}; }
};

/// Neighbours of one node, by depth. Valid until the tree changes.
struct Run {
  NodeId node;
  std::uint32_t begin = 0;
  std::uint32_t end = 0;

  [[nodiscard]] std::uint32_t size() const { return end - begin; }
};

/// The current contents of a tree, in numbers.
struct TreeCounts {
  struct InTier {
    std::uint64_t blocks = 0;  ///< copies, whatever their state
    std::uint64_t pinned = 0;  ///< of them; of a tier without a policy 0
    std::uint64_t leaves = 0;  ///< nodes with a copy that stays, below which none does
  };
  std::uint64_t nodes = 0;
  std::uint64_t blocks = 0;
  std::uint64_t references = 0;  ///< pins that hold a prefix
  std::array<InTier, tier_count> tiers{};
};

/// A wish that a prefix be kept with some priority, named by who wishes it.
using RetentionId = StrongId<struct RetentionIdTag, std::uint64_t>;

/// Which prefixes are cached, and where: a path-compressed tree over chained block keys. A node is a run of blocks without a
/// branch, with arrays of keys and, per tier, of copies. Because keys are chained, two runs agree exactly as far
/// as their last equal key: a match costs one hash lookup and O(log n) comparisons a node, not a lookup a block.
///
/// Pins and last uses are kept per node as marks ("the first n blocks"), so that a request touches the nodes of its prefix, not
/// its blocks. A pinned block is no eviction candidate in any tier and stays in the tree.
///
/// A block's *priority* (which orders candidates before their age) is the highest that any retention gives it, the usual
/// one where there is none. A retention holds for the blocks that are there when it is made, for as long as they stay: what
/// comes back comes back without. Ancestors need no care, since a prefix goes from its end.
///
/// A block's *tenant* is the one that its prefix was extended with. Some tenants can be followed: then the tree counts their
/// copies, and answers for the next to go among theirs. The others cost nothing.
///
/// A block leaves the tree when its last copy does, unless it is pinned or others follow it.
///
/// Not here: bytes, slots' owners, clocks, policies' decisions. Keys must come from a KeyChain: others harm no memory, but may
/// miss. Threads: one.
class PrefixTree {
 public:
  PrefixTree();
  ~PrefixTree();
  PrefixTree(const PrefixTree&) = delete;
  PrefixTree& operator=(const PrefixTree&) = delete;

  /// Told of this tier's candidates from now on. Set before the first block; outlives the tree.
  void set_policy(Tier tier, EvictionPolicy& policy);

  /// The longest prefix in the tree that begins `keys`, whatever copies it has.
  [[nodiscard]] Prefix find(std::span<const BlockKey> keys) const;
  /// Hides everything that is in the tree: find() finds none of it any more. A hidden block stays until its last copy and its
  /// last pin are gone, and references to it stay valid. What extend() adds to a hidden prefix is hidden, too.
  void hide_all();
  [[nodiscard]] bool hidden(BlockRef block) const;
  /// Follows `keys` from the end of `at` and adds the blocks that are missing, without copies. Pin the result before anything
  /// else is changed: an unpinned block without copies may go at any time. `tenant` and `group` are remembered with new
  /// prefixes.
  [[nodiscard]] Prefix extend(Prefix at, std::span<const BlockKey> keys, TenantId tenant = {}, GroupId group = {});
  /// How many blocks at the end of the prefix the last extend() added, and no copy has been set of since: one run.
  [[nodiscard]] std::uint32_t added() const { return added_; }

  [[nodiscard]] Copy copy(BlockRef block, Tier tier) const;
  void set_copy(BlockRef block, Tier tier, Copy copy);
  /// Gives the last slots.size() blocks of the prefix, which lie in one node and have no copy in the tier, one each: ready.
  void fill(Prefix prefix, Tier tier, std::span<const SlotId> slots);
  /// Takes the copies of a victims' run away.
  void drop(Run victims, Tier tier);
  /// The copies of a run, in order; gone with the next change.
  [[nodiscard]] std::span<const Copy> copies(Run run, Tier tier) const;
  /// Whether any block of the run's node has a copy in the tier.
  [[nodiscard]] bool any_in_node(Run run, Tier tier) const;
  /// The copies of the prefix's blocks [first, prefix.length), in order. `out` has that size.
  void read(Prefix prefix, Tier tier, std::uint32_t first, std::span<Copy> out) const;

  [[nodiscard]] const BlockKey& key(BlockRef block) const;
  /// The keys of a run, in order; gone with the next change.
  [[nodiscard]] std::span<const BlockKey> keys(Run run) const;
  /// The last `blocks` blocks of a prefix, which lie in one node.
  [[nodiscard]] Run last(Prefix prefix, std::uint32_t blocks) const;
  /// The block before it. Its depth must not be 0.
  [[nodiscard]] BlockRef parent(BlockRef block) const { return {resolve(block.node, block.depth - 1), block.depth - 1}; }
  /// A prefix's first blocks, as a prefix that is valid while they exist.
  [[nodiscard]] Prefix first(Prefix prefix, std::uint32_t length) const;
  /// A prefix's block at this depth, valid while it exists.
  [[nodiscard]] BlockRef at(Prefix prefix, std::uint32_t depth) const { return {resolve(prefix.node, depth), depth}; }
  /// The key before the block's: its parent's, or nothing for a first block (its parent is the root key, which is not kept).
  [[nodiscard]] std::optional<BlockKey> parent_key(BlockRef block) const;
  /// As given when its prefix was first extended.
  [[nodiscard]] TenantId tenant(BlockRef block) const;
  [[nodiscard]] GroupId group(BlockRef block) const;
  /// Whether the two name one block.
  [[nodiscard]] bool same(BlockRef a, BlockRef b) const;
  /// All blocks that follow this one, each after its parent.
  void collect_below(BlockRef block, std::vector<BlockRef>& out) const;
  /// Whether any block that follows this one has a copy in the tier that stays.
  [[nodiscard]] bool any_staying_below(BlockRef block, Tier tier) const;

  /// Each pin wants its unpin with the same length.
  void pin(Prefix prefix);
  void unpin(Prefix prefix);
  [[nodiscard]] bool pinned(BlockRef block) const;

  /// The prefix's blocks were used at `stamp` (a count that only grows; an older stamp changes nothing where a newer one is).
  void touch(Prefix prefix, std::uint64_t stamp);
  [[nodiscard]] std::uint64_t last_use(BlockRef block) const;

  /// The prefix's blocks have this priority, unless another retention gives a higher one. A second call with the id changes it
  /// where it holds. Costs a step a node of the prefix and of retentions it has.
  void retain(Prefix prefix, RetentionId id, Priority priority);
  /// Ends it for the blocks of the prefix; what has left the tree meanwhile has none. `prefix` is what find() says now for the
  /// keys of the prefix that was retained.
  void end_retention(Prefix prefix, RetentionId id);
  [[nodiscard]] Priority priority(BlockRef block) const;

  /// Counts the tenant's copies from now on. An operator's step: where anything is cached it looks at every node. The policies
  /// of all tiers must know tenants.
  void follow_tenant(TenantId tenant);
  void ignore_tenant(TenantId tenant);
  [[nodiscard]] bool follows_tenant(TenantId tenant) const { return tenant_of(tenant) != nobody; }
  /// As resident(tier) and unpinned(tier), of a tenant that is followed.
  [[nodiscard]] std::uint64_t resident(Tier tier, TenantId tenant) const;
  [[nodiscard]] std::uint64_t unpinned(Tier tier, TenantId tenant) const;
  /// As victim(tier) and victims(tier), among the candidates of a tenant that is followed.
  [[nodiscard]] std::optional<BlockRef> victim(Tier tier, TenantId tenant) const;
  [[nodiscard]] std::optional<Run> victims(Tier tier, std::uint32_t blocks_max, TenantId tenant) const;

  /// The block that the tier's policy would give up first.
  [[nodiscard]] std::optional<BlockRef> victim(Tier tier) const;
  /// The victim and the blocks before it in its node that can be evicted together with it: `blocks_max` at most. All are ready
  /// and unpinned, have the same last use and priority, and are alike for the policy (EvictionPolicy::alike_from).
  [[nodiscard]] std::optional<Run> victims(Tier tier, std::uint32_t blocks_max) const;

  [[nodiscard]] std::uint64_t blocks() const { return blocks_; }
  [[nodiscard]] std::uint64_t node_count() const { return node_count_; }
  /// Looks at every node.
  [[nodiscard]] TreeCounts counts() const;
  /// Copies in the tier, whatever their state, and those of them that no pin covers (the latter for tiers with a policy).
  [[nodiscard]] std::uint64_t resident(Tier tier) const { return totals_[index(tier)].count.resident; }
  [[nodiscard]] std::uint64_t unpinned(Tier tier) const {
    return totals_[index(tier)].count.resident - totals_[index(tier)].count.pinned;
  }
  /// Of the tree's own memory, used or held for re-use.
  [[nodiscard]] std::size_t bytes_held() const;

  /// The blocks that two prefixes share from their beginning.
  [[nodiscard]] std::uint32_t common(Prefix a, Prefix b) const;
  /// The first depth from which on the prefix's blocks are nobody else's: not pinned, and without others that follow them. The
  /// prefix's length where its last block is not.
  [[nodiscard]] std::uint32_t unshared_from(Prefix prefix) const;
  /// Every block, each after its parent; hidden ones too, or those alone.
  void for_each(const std::function<void(BlockRef)>& visit) const;
  void for_each_node(const std::function<void(Run)>& visit) const;
  void for_each_hidden(const std::function<void(BlockRef)>& visit) const;
  /// For who looks at the tree bit by bit, while it changes: nodes have numbers below nodes_end(), and keep them while they
  /// exist; splits() tells whether blocks have moved to another node since, without saying where.
  [[nodiscard]] std::uint32_t nodes_end() const { return static_cast<std::uint32_t>(nodes_.size()); }
  /// The blocks of the node; nothing where there is none of this number now.
  [[nodiscard]] std::optional<Run> blocks_in(NodeId node) const;
  [[nodiscard]] std::uint64_t splits() const { return splits_; }
  [[nodiscard]] bool any_hidden() const { return hidden_nodes_ > 0; }
  /// The whole tree against itself; costs time in proportion to it.
  void check_invariants() const;

 private:
  struct Node;
  struct InTier;
  struct Marks;
  struct Count {
    std::uint64_t resident = 0;
    std::uint64_t pinned = 0;
  };
  struct Totals {
    EvictionPolicy* policy = nullptr;
    EvictionPolicy* follower = nullptr;  ///< the same where it wants the events of blocks
    Count count;
  };
  struct Tenant {
    TenantId tenant;
    std::array<Count, tier_count> tiers{};
  };
  [[nodiscard]] NodeId parent_of(const Node& node) const;
  [[nodiscard]] NodeId resolve(NodeId node, std::uint32_t depth) const;
  [[nodiscard]] NodeId child_of(NodeId parent, const BlockKey& first) const;

  [[nodiscard]] BlockKey* keys(const Node& node) const;
  [[nodiscard]] Copy* copies(const Node& node, Tier tier) const;
  [[nodiscard]] InTier& state(NodeId node, Tier tier);
  [[nodiscard]] const InTier& state(NodeId node, Tier tier) const;

  [[nodiscard]] NodeId new_node(NodeId parent, std::uint32_t start, std::uint32_t capacity);
  template <class Visit>
  void walk(NodeId top, Visit&& visit) const;
  [[nodiscard]] bool has_room(const Node& node, std::size_t added) const;
  void fit(Node& node);
  void append(NodeId node, std::span<const BlockKey> keys);
  void split(NodeId node, std::uint32_t at);
  void split_marks(Node& upper, Node& lower, std::uint32_t at);
  void link(NodeId node);
  void unlink(NodeId node);
  void prune(NodeId node);

  void set_subtree_resident(NodeId node, Tier tier, bool was);
  void count(const Node& node, Tier tier, std::int64_t resident, std::int64_t pinned);
  [[nodiscard]] TenantIndex tenant_of(TenantId tenant) const;
  void set_tenant(TenantId tenant, TenantIndex followed);
  [[nodiscard]] Blocks blocks_of(NodeId node, std::uint32_t from, std::uint32_t to) const;
  [[nodiscard]] BlockRef candidate(NodeId node, Tier tier) const;
  [[nodiscard]] Run run_to(BlockRef last, Tier tier, std::uint32_t blocks_max) const;
  void refresh_leaf(NodeId node, Tier tier);
  void refresh_leaves(NodeId node);
  void set_pinned(NodeId node, std::uint32_t pinned);
  [[nodiscard]] std::uint32_t pinned_from_marks(const Node& node) const;
  [[nodiscard]] std::uint32_t resident_in(NodeId node, Tier tier, std::uint32_t from, std::uint32_t to) const;
  [[nodiscard]] std::uint64_t last_use_in(const Node& node, std::uint32_t offset) const;
  [[nodiscard]] Priority priority_in(const Node& node, std::uint32_t offset) const;
  [[nodiscard]] std::uint32_t marked_alike_from(const Node& node, std::uint32_t offset) const;
  [[nodiscard]] std::uint32_t used_since(const Node& node, std::uint64_t stamp) const;
  void shrink_to_copies(InTier& here, const Copy* row) const;
  void touch_node(NodeId node, std::uint32_t blocks, std::uint64_t stamp);
  [[nodiscard]] Marks& marks(Node& node);
  void drop_empty_marks(Node& node);
  void cut_marks(Node& node);
  void check_node(NodeId node) const;

  ArrayPool arrays_;
  ChunkedTable<Node> nodes_;
  ChunkedTable<NodeId> owners_;  ///< by branch
  std::vector<std::uint32_t> free_nodes_;
  std::vector<Marks> marks_;
  std::unique_ptr<Marks> split_marks_;  ///< scratch
  std::vector<std::uint32_t> free_marks_;
  std::array<Totals, tier_count> totals_{};
  std::vector<EvictionPolicy*> followers_;
  std::vector<Tenant> tenants_;  ///< by TenantIndex; the first stands for all that are not followed, and counts nothing
  std::vector<TenantIndex> free_tenants_;
  boost::unordered_flat_map<TenantId, TenantIndex, std::hash<TenantId>> followed_;  ///< by tenant
  /// By their first key. Children name their parent's branch, not the parent, so that all of them get another parent at once when
  /// a hub with thousands is split.
  ChildTable children_;
  std::uint64_t blocks_ = 0;
  std::uint64_t node_count_ = 0;
  std::uint32_t hidden_nodes_ = 0;  ///< nodes without blocks that stand over what is hidden
  std::uint32_t added_ = 0;
  std::uint64_t splits_ = 0;
};

}  // namespace terrace
