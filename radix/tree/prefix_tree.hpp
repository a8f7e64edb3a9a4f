#pragma once

#include "base/chunked_table.hpp"
#include "base/key_table.hpp"
#include "radix/tree/array_pool.hpp"
#include "radix/tree/copy.hpp"
#include "radix/tree/flat_index.hpp"
#include "terrace/policies.hpp"
#include "terrace/statistics.hpp"
#include "terrace/types.hpp"

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

/// The first `length` blocks of a sequence. Length 0 is the empty prefix. `node` holds the last block, or held it before a split.
/// A prefix that the tree returns is valid while its last block exists.
///
/// While `prefix` is valid, `{prefix.node, shorter}` names its first blocks in a call to the tree. To keep a shorter prefix or a
/// block for longer, ask the tree for first(prefix, shorter) or at(prefix, depth).
struct Prefix {
  NodeId node;
  std::uint32_t length = 0;

  [[nodiscard]] BlockRef last() const { return {node, length - 1}; }
};

/// Adjacent blocks of one node, at depths [begin, end). Valid until the tree changes.
struct Run {
  NodeId node;
  std::uint32_t begin = 0;
  std::uint32_t end = 0;

  [[nodiscard]] std::uint32_t size() const { return end - begin; }
};

/// A *companion* is a block that stands alone and is of use only together with another block, its owner. It is wanted in a tier
/// while the tier has its owner.
enum class Companion : std::uint8_t { no, unwanted, wanted };

/// The index of cached prefixes and of the slots of their blocks in each tier. It is a compressed tree over chained block keys: a
/// node is a run of blocks without a branch, and has one array of keys and, for each tier, one array of copies.
///
/// The tree holds no bytes, frees no slots, reads no clock, and leaves the choice of victims to the policies. A block is removed
/// from the tree when it has lost its last copy, unless it is pinned or another block follows it.
///
/// Cost: find() needs one hash look-up and O(log n) key comparisons for each node, not a look-up for each block. This works
/// because keys are chained: if the keys of two runs are equal at some index, all keys before it are equal, too. Keys must come
/// from a KeyChain. Other keys do not corrupt memory, but find() may miss blocks.
///
/// Pins, last uses and retentions are kept in marks of the node ("the first n blocks"). So a request accesses the nodes of its
/// prefix, not each block. A pinned block is not a candidate for eviction in any tier.
///
/// A block's *priority* is the highest priority of its retentions, and usual_priority without a retention. A companion has the
/// highest priority in a tier where it is wanted, and otherwise the lowest, if no retention gives it a higher one. Candidates are
/// compared by priority first, and by age only if the priorities are equal. A retention covers the blocks that are in the tree
/// when it is made. A block that leaves the tree and comes back later has no retention. Blocks before a retained one need no
/// retention, because a prefix is evicted from its end.
///
/// A block's *tenant* is the tenant with which its prefix was extended first. For a followed tenant (follow_tenant()), the tree
/// counts copies, and can choose victims among them. Other tenants cost nothing.
///
/// Threads: one.
class PrefixTree {
 public:
  /// `flat`: every prefix has one block, and no block depends on another (FlatIndex). Then only host and storage have copies, the
  /// policies are not used, and there are neither retentions nor followed tenants. A function that serves both shapes
  /// begins with the flat case.
  enum class Shape : bool { tree, flat };
  explicit PrefixTree(Shape shape = Shape::tree);
  ~PrefixTree();
  PrefixTree(const PrefixTree&) = delete;
  PrefixTree& operator=(const PrefixTree&) = delete;

  [[nodiscard]] bool flat() const { return flat_ != nullptr; }
  /// Sets the policy of a tier, in place of an earlier one, and reports the candidates of the tier to it. Set the first policy of
  /// a tier before the first block; for a later policy, the call visits every node. The policy must support tenants if any is
  /// followed. It must outlive the tree, or stay valid until another policy replaces it.
  void set_policy(Tier tier, EvictionPolicy& policy);

  /// Returns the longest prefix of `keys` that is in the tree, in any tier.
  [[nodiscard]] Prefix find(std::span<const BlockKey> keys) const;
  /// Hides all blocks that are in the tree now: find() does not return them any more. A hidden block stays until its last copy
  /// and its last pin are gone. References to it stay valid. Blocks that extend() adds after a hidden block are hidden, too.
  void hide_all();
  [[nodiscard]] bool hidden(BlockRef block) const;
  /// Follows `keys` from the end of `at`, adds missing blocks without copies, and returns the whole prefix. The caller must pin
  /// it, or give its blocks copies, before it changes anything else, because any change may remove an unpinned block without
  /// copies. New blocks get the tenant and the group of the block before them; the first block of a prefix gets `tenant` and
  /// `group`.
  [[nodiscard]] Prefix extend(Prefix at, std::span<const BlockKey> keys, TenantId tenant = {}, GroupId group = {});
  /// Returns the number of blocks that the last extend() added. They are at the end of the prefix, in one node.
  [[nodiscard]] std::uint32_t added() const { return added_; }

  [[nodiscard]] Copy copy(BlockRef block, Tier tier) const;
  void set_copy(BlockRef block, Tier tier, Copy copy);
  /// Gives each of the last slots.size() blocks of the prefix a copy in state ready or filling. The blocks must be in one node,
  /// and must have no copy in the tier.
  void fill(Prefix prefix, Tier tier, std::span<const SlotId> slots, CopyState state = CopyState::ready);
  /// Changes the copies of the run, whose blocks must be in one node: to busy or evicting if they are ready or busy, or to ready
  /// if they are filling or busy.
  void change(Run run, Tier tier, CopyState to);
  /// Removes the copies of the run. The blocks must be in one node, and unpinned, and no staying copy in the tier may follow
  /// them.
  void drop(Run run, Tier tier);
  /// Returns the copies of a run, in order. The span is valid until the tree changes.
  [[nodiscard]] std::span<const Copy> copies(Run run, Tier tier) const;
  /// Returns true if any block of the run's node has a copy in the tier.
  [[nodiscard]] bool any_in_node(Run run, Tier tier) const;
  /// Writes the copies of the prefix's blocks [first, prefix.length) to `out`, which has that size.
  void read(Prefix prefix, Tier tier, std::uint32_t first, std::span<Copy> out) const;

  /// Returns true if each block of the prefix has a copy that is ready or busy.
  [[nodiscard]] bool all_usable(Prefix prefix, Tier tier) const;
  /// Does the same, and writes the slots of the prefix's copies to `out`, which has the prefix's length. The slot of a block
  /// without a copy is 0.
  [[nodiscard]] bool read_slots(Prefix prefix, Tier tier, std::span<SlotId> out) const;

  [[nodiscard]] const BlockKey& key(BlockRef block) const;
  /// Returns the keys of a run, in order. The span is valid until the tree changes.
  [[nodiscard]] std::span<const BlockKey> keys(Run run) const;
  /// Returns the last `blocks` blocks of a prefix. They must be in one node.
  [[nodiscard]] Run last(Prefix prefix, std::uint32_t blocks) const;
  /// Returns the block before this one, whose depth must not be 0.
  [[nodiscard]] BlockRef parent(BlockRef block) const { return at({block.node, block.depth + 1}, block.depth - 1); }
  /// Returns the first `length` blocks of a prefix, as a prefix that is valid while its own last block exists.
  [[nodiscard]] Prefix first(Prefix prefix, std::uint32_t length) const;
  /// Returns the prefix's block at this depth, as a reference that is valid while the block exists.
  [[nodiscard]] BlockRef at(Prefix prefix, std::uint32_t depth) const;
  /// Returns the key of the block before this one; nothing for the first block of a prefix, because its parent key is the root
  /// key, which the tree does not keep.
  [[nodiscard]] std::optional<BlockKey> parent_key(BlockRef block) const;
  /// Return the tenant and the group with which the prefix was extended first.
  [[nodiscard]] TenantId tenant(BlockRef block) const;
  [[nodiscard]] GroupId group(BlockRef block) const;
  /// Returns true if both references name one block.
  [[nodiscard]] bool same(BlockRef a, BlockRef b) const;
  /// Appends all descendants of this block, each after its parent.
  void collect_below(BlockRef block, std::vector<BlockRef>& out) const;
  /// Returns true if any descendant of this block has a staying copy in the tier (Copy::stays).
  [[nodiscard]] bool any_staying_below(BlockRef block, Tier tier) const;

  /// Each pin() needs one unpin() with the same length.
  void pin(Prefix prefix);
  void unpin(Prefix prefix);
  [[nodiscard]] bool pinned(BlockRef block) const;
  /// Returns a number that increases whenever a block loses its last pin.
  [[nodiscard]] std::uint64_t unpins() const { return unpins_; }

  /// Records that the prefix's blocks were used at `stamp`. Stamps are a counter of the caller. A stamp that is older than a
  /// block's last use does not change it.
  void touch(Prefix prefix, std::uint64_t stamp);
  [[nodiscard]] std::uint64_t last_use(BlockRef block) const;
  /// Tells the policies that the request with this stamp has written so many output tokens. Call it before its blocks are
  /// unpinned.
  void end_request(std::uint64_t stamp, std::uint64_t output_tokens);

  /// Tells the policies when the prefix is expected to be used next. Only its last blocks count, from the last branch on: other
  /// prefixes use the blocks before them, too. Returns the number of these blocks; 0 if a longer prefix uses them all.
  std::uint32_t expect(Prefix prefix, const ExpectedUse& use);
  /// Gives the prefix's blocks this priority, unless another retention gives them a higher one. A second call with the same id
  /// replaces its priority. Cost: the nodes of the prefix, times their retentions.
  void retain(Prefix prefix, RetentionId id, Priority priority);
  /// Ends the retention for the blocks of the prefix. `prefix` is the current result of find() for the retained keys: blocks that
  /// have left the tree since have no retention any more.
  void end_retention(Prefix prefix, RetentionId id);
  [[nodiscard]] Priority priority(BlockRef block, Tier tier) const;
  /// Only for the first block of a prefix. A block that leaves the tree and comes back later is no companion.
  void set_companion(BlockRef block, Tier tier, Companion companion);
  [[nodiscard]] Companion companion(BlockRef block, Tier tier) const;

  /// Counts the tenant's copies from now on. The call visits every node, so use it only for commands of operators. The policies
  /// of all tiers must support tenants.
  void follow_tenant(TenantId tenant);
  void ignore_tenant(TenantId tenant);
  /// Sets how many copies a followed tenant may have in the tier before over_limit() lists it. Until then it has no limit.
  void limit_tenant(TenantId tenant, Tier tier, std::uint64_t most);
  /// The followed tenants that have more copies in the tier than their limit. Valid until the next change.
  [[nodiscard]] std::span<const TenantId> over_limit(Tier tier) const { return over_limit_[index(tier)]; }
  [[nodiscard]] bool follows_tenant(TenantId tenant) const { return tenant_of(tenant) != other_tenants; }
  /// The same as resident(tier) and unpinned(tier), for one followed tenant.
  [[nodiscard]] std::uint64_t resident(Tier tier, TenantId tenant) const;
  [[nodiscard]] std::uint64_t unpinned(Tier tier, TenantId tenant) const;

  /// Returns the block that the tier's policy would evict first: of all blocks, or of those of a followed tenant. The call may
  /// report pinned candidates to the policy (EvictionPolicy::keeps_pinned); it changes nothing else.
  [[nodiscard]] std::optional<BlockRef> victim(Tier tier, std::optional<TenantId> tenant = {});
  /// Returns false if the tier's policy would rather keep its next victim than take this block (EvictionPolicy::admits). The tier
  /// has no copy of it.
  [[nodiscard]] bool admits(BlockRef block, Tier tier);
  /// Returns the victim together with the blocks before it in its node that can be evicted with it: at most `blocks_max` blocks.
  /// All are ready and unpinned, have the same last use and priority, and are equal for the policy (EvictionPolicy::alike_from).
  [[nodiscard]] std::optional<Run> victims(Tier tier, std::uint32_t blocks_max, std::optional<TenantId> tenant = {});

  [[nodiscard]] std::uint64_t blocks() const { return blocks_; }
  [[nodiscard]] std::uint64_t node_count() const { return node_count_; }
  /// Visits every node.
  [[nodiscard]] TreeCounts counts() const;
  /// Return the number of copies in the tier, in any state, and the number of copies of unpinned blocks. The latter is only
  /// counted for tiers with a policy.
  [[nodiscard]] std::uint64_t resident(Tier tier) const { return totals_[index(tier)].count.resident; }
  [[nodiscard]] std::uint64_t unpinned(Tier tier) const {
    return totals_[index(tier)].count.resident - totals_[index(tier)].count.pinned;
  }
  /// Bytes of memory of the tree itself, in use or kept for reuse.
  [[nodiscard]] std::size_t bytes_held() const;

  /// Returns the number of leading blocks that two prefixes share.
  [[nodiscard]] std::uint32_t common(Prefix a, Prefix b) const;
  /// Returns the first depth from which on no block of the prefix is pinned or followed by a block outside the prefix. This is
  /// the prefix's length if its last block is pinned or followed.
  [[nodiscard]] std::uint32_t unshared_from(Prefix prefix) const;
  /// Visit every block (or node) after its parent. for_each() and for_each_node() include hidden blocks; for_each_hidden() visits
  /// only hidden blocks.
  void for_each(const std::function<void(BlockRef)>& visit) const;
  void for_each_node(const std::function<void(Run)>& visit) const;
  void for_each_hidden(const std::function<void(BlockRef)>& visit) const;
  /// For a scan of the tree in several steps, while the tree changes: all nodes have numbers below nodes_end(), and a node keeps
  /// its number. splits() counts splits: if it has increased, blocks have moved to other nodes.
  [[nodiscard]] std::uint32_t nodes_end() const;
  /// Returns the blocks of the node, or nothing if no node has this number now.
  [[nodiscard]] std::optional<Run> blocks_in(NodeId node) const;
  [[nodiscard]] std::uint64_t splits() const { return splits_; }
  /// Returns a number that increases whenever a block or a copy is added, removed or changes its state. While it does not change,
  /// the results of find() and the copies of these blocks do not change.
  [[nodiscard]] std::uint64_t changes() const { return changes_; }
  [[nodiscard]] bool any_hidden() const { return hidden_nodes_ > 0; }
  /// Checks the whole tree, in time proportional to its size.
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
    EvictionPolicy* follower = nullptr;  ///< the same policy if it follows blocks (EvictionPolicy::follows_blocks), else null
    bool keeps_pinned = false;           ///< EvictionPolicy::keeps_pinned
    Count count;
  };
  struct Tenant {
    TenantId tenant;
    std::array<Count, tier_count> tiers{};
    std::array<std::optional<std::uint64_t>, tier_count> limits{};

    [[nodiscard]] bool is_over(Tier tier) const {
      return limits[index(tier)] && tiers[index(tier)].resident > *limits[index(tier)];
    }
  };
  [[nodiscard]] NodeId parent_of(const Node& node) const;
  [[nodiscard]] NodeId resolve(NodeId node, std::uint32_t depth) const;
  [[nodiscard]] Run last_run(Prefix prefix) const;
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
  void list_over_limit(const Tenant& tenant, Tier tier);
  [[nodiscard]] BlockRun blocks_of(NodeId node, std::uint32_t from, std::uint32_t to) const;
  [[nodiscard]] Run run_to(BlockRef last, Tier tier, std::uint32_t blocks_max) const;
  [[nodiscard]] bool evictable(const Node& node, Tier tier) const;
  void refresh_leaf(NodeId node, Tier tier);
  void refresh_leaves(NodeId node);
  void introduce(NodeId node, Tier tier);
  void set_pinned(NodeId node, std::uint32_t pinned);
  [[nodiscard]] bool has_plain_pin(const Node& node) const;
  [[nodiscard]] std::uint32_t pinned_from_marks(const Node& node) const;
  [[nodiscard]] std::uint32_t resident_in(NodeId node, Tier tier, std::uint32_t from, std::uint32_t to) const;
  [[nodiscard]] std::uint64_t last_use_in(const Node& node, std::uint32_t offset) const;
  [[nodiscard]] Priority priority_in(const Node& node, std::uint32_t offset, Tier tier) const;
  [[nodiscard]] Priority marked_priority(const Node& node, std::uint32_t offset, Tier tier) const;
  [[nodiscard]] std::uint32_t marked_alike_from(const Node& node, std::uint32_t offset, Tier tier) const;
  [[nodiscard]] std::uint32_t used_since(const Node& node, std::uint64_t stamp) const;
  void shrink_to_copies(InTier& here, const Copy* row) const;
  void touch_node(NodeId node, std::uint32_t blocks, std::uint64_t stamp);
  void tell_continued(Run last_run, std::uint64_t stamp) const;
  [[nodiscard]] Marks& marks(Node& node);
  [[nodiscard]] Marks& bare_marks(Node& node);
  void drop_empty_marks(Node& node);
  void cut_marks(Node& node);
  void check_node(NodeId node) const;

  void sync_flat();

  std::unique_ptr<FlatIndex> flat_;  ///< null: it is a tree. Otherwise the counts below are the index's counts
  ArrayPool arrays_;
  ChunkedTable<Node> nodes_;
  ChunkedTable<NodeId> owners_;  ///< by branch: the node from which it grows
  std::vector<std::uint32_t> free_nodes_;
  std::vector<Marks> marks_;
  std::unique_ptr<Marks> split_marks_;  ///< scratch
  std::vector<std::uint32_t> free_marks_;
  std::array<Totals, tier_count> totals_{};
  std::vector<EvictionPolicy*> followers_;
  std::vector<Tenant> tenants_;  ///< by TenantIndex; the first represents all tenants that are not followed, and counts nothing
  std::vector<TenantIndex> free_tenants_;
  std::array<std::vector<TenantId>, tier_count> over_limit_;
  boost::unordered_flat_map<TenantId, TenantIndex, std::hash<TenantId>> followed_;  ///< by tenant
  /// The nodes by their first key. A child refers to the branch of its parent, not to the parent itself. So when a node with
  /// thousands of children is split, all of them get the new parent in one step.
  KeyTable<NodeId> children_;
  std::uint64_t blocks_ = 0;
  std::uint64_t node_count_ = 0;
  std::uint32_t hidden_nodes_ = 0;  ///< nodes without blocks, above hidden nodes: one for each hide_all() that still has nodes
  std::uint32_t added_ = 0;
  std::uint64_t splits_ = 0;
  std::uint64_t changes_ = 0;
  std::uint64_t unpins_ = 0;
};

}  // namespace terrace
