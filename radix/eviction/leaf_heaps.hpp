#pragma once

#include "base/chunked_table.hpp"
#include "base/indexed_heap.hpp"
#include "terrace/policies.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace terrace {

/// The order in which leaves are evicted, smallest first: by priority, then by last use, then by depth. The deepest leaf goes
/// first, so that a prefix is evicted from its end. Two leaves that are equal in all of these are ordered by the number of their
/// node, so that runs repeat.
struct LeafAge {
  std::uint64_t rank = 0;  ///< the priority in the upper bits, the last use in the lower bits
  std::uint32_t depth = 0;
  NodeId node;

  LeafAge() = default;
  explicit LeafAge(const EvictionPolicy::Leaf& leaf)
      : rank{std::uint64_t{leaf.priority} << use_bits | leaf.last_use}, depth{leaf.block.depth}, node{leaf.block.node} {}

  [[nodiscard]] Priority priority() const { return static_cast<Priority>(rank >> use_bits); }
  [[nodiscard]] std::uint64_t last_use() const { return rank & ((std::uint64_t{1} << use_bits) - 1); }

  friend bool operator<(const LeafAge& a, const LeafAge& b) {
    if (a.rank != b.rank) return a.rank < b.rank;
    if (a.depth != b.depth) return a.depth > b.depth;
    return a.node < b.node;
  }

 private:
  static constexpr unsigned use_bits = 60;  ///< the last use is a counter, which never needs more bits
};

/// Heaps of leaves. Each leaf is in one heap: the one for its line and its tenant. A line is one kind of leaf that a policy keeps
/// apart from the others; AdaptivePolicy has a line for each ReuseClass. oldest(line) answers for all tenants, by a second heap
/// that holds the tops of the tenants' heaps. If the tree follows no tenant, there is one heap for each line, and no second heap.
/// One table says where the leaf of each node is, so that a further heap needs memory only for its leaves.
///
/// Threads: one. A change costs O(log n), a query O(1).
class LeafHeaps {
 public:
  explicit LeafHeaps(std::size_t lines = 1) : lines_{lines}, heaps_(lines), tops_(lines) {}

  /// Inserts the node's leaf, or moves it to its new place.
  void set(std::size_t line, TenantIndex tenant, const LeafAge& age);
  /// Removes the node's leaf. Does nothing if the node has none.
  void erase(NodeId node);

  /// Returns the leaf of this line, and of this tenant if one is given, that is evicted first. Returns nullptr if there is none.
  [[nodiscard]] const LeafAge* oldest(std::size_t line) const;
  [[nodiscard]] const LeafAge* oldest(std::size_t line, TenantIndex tenant) const;
  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] std::size_t bytes_held() const;
  void check_invariants() const;

 private:
  struct Place {
    std::uint32_t heap = nowhere;
    std::uint32_t at = 0;
  };
  static constexpr std::uint32_t nowhere = 0xFFFF'FFFF;

  [[nodiscard]] auto placed(std::uint32_t heap) {
    return [this, heap](std::size_t at) { where_[heaps_[heap][at].node.value()].at = static_cast<std::uint32_t>(at); };
  }
  [[nodiscard]] bool has_tenants() const { return heaps_.size() > lines_; }
  void make_heap(std::uint32_t heap);
  void refresh_top(std::uint32_t heap);

  std::size_t lines_;
  std::vector<ChunkedTable<LeafAge>> heaps_;  ///< by tenant, then by line
  std::vector<IndexedHeap<LeafAge>> tops_;    ///< by line: the tops of its heaps, by tenant; empty while there is only one tenant
  ChunkedTable<Place> where_;                 ///< by node
  std::size_t size_ = 0;
};

}  // namespace terrace
