#pragma once

#include "terrace/export.hpp"
#include "terrace/types.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace terrace {

/// How the device copy and the host copy of a block relate.
enum class InclusionPolicy : unsigned char {
  non_inclusive,  ///< the host copy stays after a swap-in, and can be dropped at any time
  exclusive,      ///< a block has a copy in one of the two tiers; a swap-in frees the host slot
  inclusive,      ///< every computed block is copied to the host at once
  /// A host copy stays after a swap-in until the host needs its slot, and is evicted before all other host copies. The tiers
  /// together hold as many different blocks as with `exclusive`, and no more blocks are copied down.
  lazy_exclusive,
};

/// Which blocks are written to storage, and when.
enum class WritePolicy : unsigned char {
  none,
  write_through,  ///< when a request commits the block
  selective,      ///< when it is hit for the n-th time: CacheSystemOptions::selective_hits
  write_back,     ///< when the last copy in device and host is evicted
};

/// How the keys in a call of OffloadCache relate to each other (docs/design/offload-cache.md).
enum class KeyOrder : unsigned char {
  prefix,  ///< the keys form a prefix, starting with its first block
  flat,    ///< the keys have no order: every block is unchained
};

/// Which hits in the tiers below the device are used.
enum class LoadPolicy : unsigned char {
  /// Only hits that are expected to load faster than they can be computed again (runtime/cache/measure/load_costs.hpp). Host hits
  /// are always used if the prefill speed is not stated. A read from storage also has a deadline: if the read is late, the block
  /// is computed.
  measured,
  always,
};

/// An eviction policy that a cache can have while it serves (CacheSettings).
enum class EvictionPolicyName : unsigned char {
  adaptive,
  lru,
  own,  ///< the policy of CacheSystemOptions::policy, if that is neither adaptive nor lru
};

[[nodiscard]] constexpr std::string_view to_string(EvictionPolicyName p) {
  switch (p) {
    case EvictionPolicyName::adaptive: return "adaptive";
    case EvictionPolicyName::lru: return "lru";
    case EvictionPolicyName::own: return "own";
  }
  return "?";
}

[[nodiscard]] constexpr std::string_view to_string(InclusionPolicy r) {
  switch (r) {
    case InclusionPolicy::non_inclusive: return "non-inclusive";
    case InclusionPolicy::exclusive: return "exclusive";
    case InclusionPolicy::inclusive: return "inclusive";
    case InclusionPolicy::lazy_exclusive: return "lazy-exclusive";
  }
  return "?";
}

[[nodiscard]] constexpr std::string_view to_string(WritePolicy p) {
  switch (p) {
    case WritePolicy::none: return "none";
    case WritePolicy::write_through: return "write-through";
    case WritePolicy::selective: return "selective";
    case WritePolicy::write_back: return "write-back";
  }
  return "?";
}

/// Background eviction in one pool, given as shares of its slots. When fewer than `low` of the slots are free, the cache evicts
/// until `high` of them are free, in poll(). If `low` is 0, there is no background eviction. On the device there is also none if
/// blocks need not be copied down before they are evicted: without a host tier and without write policy write_back.
struct Watermarks {
  double low = 0;
  double high = 0;
};

/// A vertex of the prefix tree: a run of blocks without a branch.
using NodeId = StrongId<struct NodeIdTag>;

/// Names one block. `depth` is its index in its prefix; the first block has 0. `node` is the node that holds the block, or that
/// held it before a split moved it to a lower node. A BlockRef stays valid while the block exists, also after splits.
struct BlockRef {
  NodeId node{};
  std::uint32_t depth = 0;

  friend bool operator==(const BlockRef&, const BlockRef&) = default;
};

/// The tree's own small number for a tenant that it follows (PrefixTree::follow_tenant).
using TenantIndex = std::uint32_t;
inline constexpr TenantIndex other_tenants{0};  ///< all tenants that the tree does not follow, together

/// Adjacent blocks in one node. The first is at depth `begin`. `keys` has one key for each block. Do not keep the span after the
/// call, because the tree may move its keys.
struct TERRACE_API BlockRun {
  NodeId node{};
  std::uint32_t begin = 0;
  std::span<const BlockKey> keys{};

  [[nodiscard]] std::uint32_t end() const { return begin + static_cast<std::uint32_t>(keys.size()); }
};

/// When blocks are expected to be used next, as a caller has told (Lease::expect_use). In stamps of uses.
struct ExpectedUse {
  static constexpr std::uint64_t never = UINT64_MAX;  ///< for `at`: nobody uses the blocks again

  std::uint64_t at = never;
  std::uint64_t until = never;  ///< a use with a later stamp is late: nothing is expected any more
};

/// Blocks that a policy treats alike.
struct EvictionClass {
  std::string_view uses;   ///< how often a request has used them again since they entered the tree: "0", "1" or "2+"
  std::string_view kind;   ///< the kind of their last request, for example "soon" (docs/design/eviction-policies.md)
  double share = 0;        ///< of the blocks that the policy plans for
  std::uint64_t hits = 0;  ///< uses that found such a block in the tier, since the policy was set
};

/// The outcomes of expected uses that a policy was told of (EvictionPolicy::on_expected), counted by node.
struct ExpectedUses {
  std::uint64_t waiting = 0;       ///< told, and not used since
  std::uint64_t met = 0;           ///< the blocks were used, but not later than expected
  std::uint64_t late = 0;          ///< the blocks were used later than that
  std::uint64_t not_expected = 0;  ///< the blocks were used, though it was said that they never would be
};

/// How a policy decides now, and which blocks its tier has. Shares and hits are estimated from a sample.
struct EvictionView {
  bool by_rank = false;                     ///< by what the policy has learned; false: the least recently used leaf first
  std::vector<EvictionClass> classes = {};  ///< those with blocks or hits; empty if the policy has no classes
  ExpectedUses expected = {};
};

/// Decides which block of one tier is evicted next. The prefix tree reports what happens, and asks victim().
///
/// A node has at most one candidate in a tier: its deepest block with a copy there, not counting copies that are being evicted.
/// The copy must be ready, the block must not be pinned, and no node below may have a copy in the tier that is not being evicted.
/// So the number of the node is enough to name the candidate.
///
/// A policy whose follows_blocks() is true also gets reports about blocks, in one call for each run of adjacent blocks. It may
/// keep its records by node: on_split() and on_gone() report changes of nodes. After a block has left the tree, only its key
/// names it. A policy must limit how many such blocks it remembers.
///
/// A policy may be given to a tree that has blocks already (PrefixTree::set_policy). Then it gets on_inserted() and
/// on_evictable() for all existing blocks. Earlier uses are not reported to it.
///
/// Ownership: Residency makes one policy for the device tier and one for the host tier (PolicyFactory), and destroys them after
/// its tree, or when other policies replace them. The storage tier has no policy: a store evicts by age (StoreIndex). Threads:
/// one, the thread that uses the tree. A policy decides only by these calls. It reads no clock and draws no random number, so
/// that the same calls give the same decisions. Experimental.
class TERRACE_API EvictionPolicy {
 public:
  /// A candidate for eviction (both words mean the same), and the properties by which a policy compares candidates.
  struct Leaf {
    BlockRef block{};
    const BlockKey& key;         ///< valid only during the call
    std::uint64_t last_use = 0;  ///< the stamp of the last use: a counter, not a time
    Priority priority = usual_priority;
    TenantIndex tenant = other_tenants;
  };

  virtual ~EvictionPolicy() = default;

  /// Returns true if the tree must call on_inserted(), on_used(), on_removed(), on_split() and on_gone().
  /// PrefixTree::set_policy() asks once. For one node the order of calls is: first on_inserted(), on_used(), on_removed() and
  /// on_split(), then on_evictable() and on_unevictable(), then on_gone(). A change of several nodes repeats this for each node.
  [[nodiscard]] virtual bool follows_blocks() const { return false; }
  /// Returns true if the tree may leave out on_unevictable() when the node's candidate is pinned. victim() may then name a node
  /// whose candidate is pinned; the tree answers with on_unevictable() and asks again. Otherwise on_evictable() follows when the
  /// pin ends. This saves two calls for each request that hits. PrefixTree::set_policy() asks once.
  [[nodiscard]] virtual bool keeps_pinned() const { return false; }
  /// These blocks have got copies in this tier; their bytes may not have arrived yet. on_used() for these blocks may come before
  /// or after this call.
  virtual void on_inserted(const BlockRun&) {}
  /// A request used these blocks, which are the first blocks of their node. They may be in this tier, in another tier, or newly
  /// computed. The blocks before depth `known` have been reported with this stamp or a later one, so this call is not a further
  /// use of them. Exception: a block that was added to the node after that report is new to this policy. A policy that counts
  /// uses must therefore keep a depth for each node itself. A request may report a block twice with the same stamp: when it finds
  /// the block, and when it adds blocks after it. If the node has a candidate and this use is newer than its last one,
  /// on_evictable() follows.
  virtual void on_used(const BlockRun&, std::uint64_t /*stamp*/, std::uint32_t /*known*/) {}
  /// The request with this stamp continues what the request `last` was the last to use: its deepest cached block was the end of a
  /// prefix of the tree. Comes before on_used(), at most once for each time that a request finds blocks.
  virtual void on_continued(std::uint64_t /*stamp*/, std::uint64_t /*last*/) {}
  /// The request with this stamp has ended after it wrote this many output tokens. The call comes before its blocks are unpinned:
  /// on_evictable() follows for those that become candidates. It comes at most once for a request, and only if the engine tells
  /// the number.
  virtual void on_ended(std::uint64_t /*stamp*/, std::uint64_t /*output_tokens*/) {}
  /// A caller has told when these blocks, which are all blocks of their node, are expected to be used next. It is true until the
  /// next on_used() for blocks of the node. on_evictable() follows if the node has a candidate that is not pinned. A policy may
  /// ignore it.
  virtual void on_expected(const BlockRun&, const ExpectedUse&) {}
  /// The copies of these blocks have left this tier.
  virtual void on_removed(const BlockRun&) {}
  /// A node was split: its blocks from this depth on now belong to `lower`. After this call, on_evictable() follows for each of
  /// the two nodes that has a candidate now, and on_unevictable() for `upper` if it had a candidate and has none now. A policy
  /// that does not follow blocks gets only these later calls.
  virtual void on_split(NodeId /*upper*/, NodeId /*lower*/, std::uint32_t /*depth*/) {}
  /// The node's blocks from this depth on have left the tree. If the depth is 0, the node has also left it, and its number may be
  /// used again. The node may be one that the policy does not know (PrefixTree::hide_all makes nodes without blocks).
  virtual void on_gone(NodeId, std::uint32_t /*depth*/) {}

  /// `leaf` is the node's candidate from now on, in place of an earlier one. Also called when its properties may have changed.
  virtual void on_evictable(const Leaf& leaf) = 0;
  /// The node has no candidate any more. It had one: on_evictable() came before.
  virtual void on_unevictable(NodeId node) = 0;

  /// Returns the node whose candidate is to be evicted first, or nothing if there is no candidate. The call changes nothing: the
  /// node keeps its candidate until on_unevictable(), or on_evictable() with another block. It costs at most O(log candidates).
  [[nodiscard]] virtual std::optional<NodeId> victim() const = 0;
  /// The same as victim(), but only among the candidates of one tenant. The tree calls it only if knows_tenants() returns true.
  [[nodiscard]] virtual std::optional<NodeId> victim(TenantIndex) const { return std::nullopt; }
  /// Returns false if the tier should do without this block rather than evict its next victim for it. The block is not in the
  /// tier; `leaf` has the properties that it would have there. Only for a tier that must evict a block to take one.
  [[nodiscard]] virtual bool admits(const Leaf& /*leaf*/) const { return true; }
  /// Returns true if the policy has an order for each tenant. PrefixTree::follow_tenant() stops the process if it has none.
  [[nodiscard]] virtual bool knows_tenants() const { return false; }
  /// Returns a depth d: the policy treats the node's blocks from d up to and including `depth` alike. It ignores last use,
  /// priority and tenant here, because the tree compares these itself. The tree may evict these blocks together, as one run. d
  /// may be less than the depth of the node's first block. The default allows one block at a time.
  [[nodiscard]] virtual std::uint32_t alike_from(NodeId, std::uint32_t depth) const { return depth; }
  /// Does the work that the policy has deferred. The cache calls it in each poll(), so that no request waits for this work. It
  /// must not change decisions: victim() and alike_from() answer as if no work had been deferred.
  virtual void catch_up() {}
  /// Returns the number of nodes that have a candidate. Pinned candidates are included if keeps_pinned() is true.
  [[nodiscard]] virtual std::size_t candidates() const = 0;
  /// Bytes of memory that the policy uses for itself.
  [[nodiscard]] virtual std::size_t bytes_held() const = 0;
  /// Returns how the policy decides now, for operators. The call costs about as much as a few hundred uses.
  [[nodiscard]] virtual EvictionView view() const { return {}; }
  /// Returns the number of blocks that have left the tier and that the policy remembers.
  [[nodiscard]] virtual std::size_t ghosts() const { return 0; }
  /// Stops the process if an invariant does not hold. For tests: it checks all data.
  virtual void check_invariants() const = 0;
};

/// Makes the eviction policy of one tier. `capacity` is the number of blocks that it plans for: the blocks of the tier, and for
/// the host tier under InclusionPolicy::exclusive and lazy_exclusive also the blocks of the device. Never returns null. A policy
/// that remembers evicted blocks takes the memory for them when it is made, in proportion to `capacity`.
using PolicyFactory = std::function<std::unique_ptr<EvictionPolicy>(std::uint32_t capacity)>;

/// Makes an LruPolicy, which evicts the least recently used leaf first.
[[nodiscard]] TERRACE_API std::unique_ptr<EvictionPolicy> lru_policy(std::uint32_t capacity);
/// Makes an AdaptivePolicy, which evicts the leaf from which it expects the fewest hits for each request that it would be kept.
[[nodiscard]] TERRACE_API std::unique_ptr<EvictionPolicy> adaptive_policy(std::uint32_t capacity);

}  // namespace terrace
