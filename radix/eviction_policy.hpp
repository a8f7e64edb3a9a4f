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
/// leaving do not count). So candidates are known by their node, and change their node when it is split. What lasts is a block's
/// key: a policy that remembers blocks (frequencies, ghosts) knows them by it, and hears of each if it says so. What it
/// remembers of blocks that have left has a bound of its own. Decides by what it is told alone: no clock, no chance, so that
/// runs repeat. Threads: the tree's.
class EvictionPolicy {
 public:
  virtual ~EvictionPolicy() = default;

  /// Whether it wants the three events of single blocks. Asked once; the tree spares itself the work for one that does not.
  [[nodiscard]] virtual bool follows_blocks() const { return false; }
  /// A copy of the block came into this tier; its first use is still to be told.
  virtual void on_inserted(const BlockKey&) {}
  /// A request used these blocks, which follow one another, wherever they are: found in this tier, in another, or computed. One
  /// request tells it more than once, by one stamp: when it finds them, and with the blocks that it has added. Comes before the
  /// candidates' new places.
  virtual void on_used(std::span<const BlockKey>, std::uint64_t /*stamp*/) {}
  /// The copy left this tier.
  virtual void on_removed(const BlockKey&) {}

  /// `leaf` may be given up: a new candidate, or a candidate with another depth or last use.
  virtual void on_evictable(BlockRef leaf, const BlockKey& key, std::uint64_t last_use) = 0;
  /// The node's candidate may not be given up any more.
  virtual void on_unevictable(NodeId node) = 0;

  /// The candidate to give up first. Stays a candidate until the tree says otherwise.
  [[nodiscard]] virtual std::optional<NodeId> victim() const = 0;
  [[nodiscard]] virtual std::size_t candidates() const = 0;
  /// Memory of the policy's own books.
  [[nodiscard]] virtual std::size_t bytes_held() const = 0;
  /// Blocks it remembers that are not in its tier.
  [[nodiscard]] virtual std::size_t ghosts() const { return 0; }
  virtual void check_invariants() const = 0;
};

}  // namespace terrace
