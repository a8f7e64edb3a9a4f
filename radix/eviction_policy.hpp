#pragma once

#include "base/strong_id.hpp"

#include <cstdint>
#include <optional>

namespace terrace {

/// A vertex of the prefix tree: a run of blocks without a branch.
using NodeId = StrongId<struct NodeIdTag>;

/// One block: the one at index `depth` of its path (0 is the first), in `node` or, where that has been split since, in the part
/// below it. Stays valid through splits for as long as the block exists.
struct BlockRef {
  NodeId node;
  std::uint32_t depth = 0;

  friend bool operator==(const BlockRef&, const BlockRef&) = default;
};

/// Decides which block of one tier is given up next. The tree tells it what happens and asks one question.
///
/// A node has at most one candidate in a tier: its deepest block there, when no block below it stays there too (those that are
/// leaving do not count). So candidates are known by their node. A policy may keep more than it is told of (ghosts,
/// frequencies), within a budget of its own. Threads: the tree's.
class EvictionPolicy {
 public:
  virtual ~EvictionPolicy() = default;

  /// A copy of the block became resident in this tier.
  virtual void on_inserted(BlockRef) {}
  /// A request used the path that ends with this block.
  virtual void on_hit(BlockRef) {}
  /// `leaf` may be given up: a new candidate, or a candidate with another depth or last use.
  virtual void on_evictable(BlockRef leaf, std::uint64_t last_use) = 0;
  /// The node's candidate may not be given up any more.
  virtual void on_unevictable(NodeId node) = 0;
  /// The copy left this tier.
  virtual void on_removed(BlockRef) {}

  /// The candidate to give up first. Stays a candidate until the tree says otherwise.
  [[nodiscard]] virtual std::optional<NodeId> victim() const = 0;
  [[nodiscard]] virtual std::size_t candidates() const = 0;
  /// Memory of the policy's own books.
  [[nodiscard]] virtual std::size_t bytes_held() const = 0;
  virtual void check_invariants() const = 0;
};

}  // namespace terrace
