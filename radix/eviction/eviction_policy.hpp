#pragma once

#include "base/block_key.hpp"
#include "base/strong_id.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace terrace {

/// A vertex of the prefix tree: a run of blocks without a branch.
using NodeId = StrongId<struct NodeIdTag>;

/// One block: the one at index `depth` of its prefix (0 is the first), in `node` or, where that has been split since, in the part
/// below it. Stays valid through splits for as long as the block exists.
struct BlockRef {
  NodeId node;
  std::uint32_t depth = 0;

  friend bool operator==(const BlockRef&, const BlockRef&) = default;
};

/// How long a block is kept beside others: those of a lower priority are given up first, whatever their age.
using Priority = std::uint8_t;
inline constexpr Priority usual_priority = 7;
inline constexpr Priority highest_priority = 14;  ///< 0 is the lowest

/// A tenant that the tree follows, by a small number of the tree's own; 0 stands for all that it does not.
using TenantIndex = std::uint32_t;
inline constexpr TenantIndex nobody{0};

/// Neighbours of one node, from the one at depth `begin`, and their keys.
struct Blocks {
  NodeId node;
  std::uint32_t begin = 0;
  std::span<const BlockKey> keys;

  [[nodiscard]] std::uint32_t end() const { return begin + static_cast<std::uint32_t>(keys.size()); }
};

/// Decides which block of one tier is given up next. The tree tells it what happens and asks one question.
///
/// A node has at most one candidate in a tier: its deepest block there, when no block below it stays there too (those that are
/// being evicted do not count). So candidates are known by their node.
///
/// A policy that follows blocks is told what becomes of them, too, in runs, so that it can do its work once a run. It may keep
/// what it knows by the node (and hears when one is split or ends) as long as blocks are in the tree; what outlives that is a
/// block's key. What it remembers of blocks that have left has a bound of its own. Decides by what it is told alone: no clock, no
/// chance, so that runs repeat. Threads: the tree's.
class EvictionPolicy {
 public:
  /// A candidate, with what it is judged by.
  struct Leaf {
    BlockRef block;
    const BlockKey& key;
    std::uint64_t last_use = 0;
    Priority priority = usual_priority;
    TenantIndex tenant = nobody;
  };

  virtual ~EvictionPolicy() = default;

  /// Whether it wants the events of blocks. Asked once; the tree spares itself the work for one that does not.
  [[nodiscard]] virtual bool follows_blocks() const { return false; }
  /// Copies of the blocks came into this tier. Their first use may be told before or after.
  virtual void on_inserted(const Blocks&) {}
  /// A request used these blocks, which begin their node, wherever they are: found in this tier, in another, or computed. One
  /// request tells it more than once, by one stamp: when it finds them, and with the blocks that it has added. Those before
  /// depth `known` have been told by this stamp, or a later one (of blocks that were added since, they may be more than were
  /// told). Comes before the candidates' new places.
  virtual void on_used(const Blocks&, std::uint64_t /*stamp*/, std::uint32_t /*known*/) {}
  /// The copies left this tier.
  virtual void on_removed(const Blocks&) {}
  /// The upper node's blocks from this depth on are the lower's now.
  virtual void on_split(NodeId /*upper*/, NodeId /*lower*/, std::uint32_t /*depth*/) {}
  /// The node's blocks from this depth on are in the tree no more; from depth 0 on: nor is the node.
  virtual void on_gone(NodeId, std::uint32_t /*depth*/) {}

  /// A new candidate, or one that is judged anew.
  virtual void on_evictable(const Leaf& leaf) = 0;
  /// The node's candidate may not be given up any more.
  virtual void on_unevictable(NodeId node) = 0;

  /// The candidate to give up first. Stays a candidate until the tree says otherwise.
  [[nodiscard]] virtual std::optional<NodeId> victim() const = 0;
  /// The same among a tenant's. For a policy that knows tenants.
  [[nodiscard]] virtual std::optional<NodeId> victim(TenantIndex) const { return std::nullopt; }
  [[nodiscard]] virtual bool knows_tenants() const { return false; }
  /// The first depth from which on the node's blocks, as far as `depth`, differ in nothing that it judges by but what the tree
  /// tells it of leaves: given up one after the other from the end, nothing else would come between.
  [[nodiscard]] virtual std::uint32_t alike_from(NodeId, std::uint32_t depth) const { return depth; }
  [[nodiscard]] virtual std::size_t candidates() const = 0;
  /// Memory of the policy's own books.
  [[nodiscard]] virtual std::size_t bytes_held() const = 0;
  /// Blocks it remembers that are not in its tier.
  [[nodiscard]] virtual std::size_t ghosts() const { return 0; }
  virtual void check_invariants() const = 0;
};

}  // namespace terrace
