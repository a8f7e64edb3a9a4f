#pragma once

#include "base/chunked_table.hpp"
#include "base/indexed_heap.hpp"
#include "terrace/policies.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <memory_resource>
#include <optional>
#include <set>
#include <vector>

namespace terrace {

/// The order in which leaves are evicted, smallest first: by priority, then by last use, then by depth. The deepest leaf goes
/// first, so that a prefix is evicted from its end. Leaves that are equal in all of these are ordered by the number of their
/// node, so that runs are reproducible.
struct LeafAge {
  std::uint64_t rank = 0;  ///< the priority in the upper bits, the last use in the lower bits
  std::uint32_t depth = 0;
  NodeId node;

  LeafAge() = default;
  LeafAge(std::uint64_t rank_of_leaf, std::uint32_t depth_of_leaf, NodeId of)
      : rank{rank_of_leaf}, depth{depth_of_leaf}, node{of} {}
  explicit LeafAge(const EvictionPolicy::Leaf& leaf)
      : rank{std::uint64_t{leaf.priority} << use_bits | leaf.last_use}, depth{leaf.block.depth}, node{leaf.block.node} {}

  static constexpr unsigned use_bits = 60;  ///< the last use is a counter, which never needs more bits
  static constexpr std::uint64_t use_max = (std::uint64_t{1} << use_bits) - 1;
  /// The same leaf, ordered by this number, at most use_max, and not by its last use.
  [[nodiscard]] LeafAge ordered_by(std::uint64_t number) const { return {rank >> use_bits << use_bits | number, depth, node}; }
  /// No leaf of this priority is evicted later.
  [[nodiscard]] static LeafAge last_of(Priority priority) {
    return {std::uint64_t{priority} << use_bits | use_max, 0, NodeId{0xFFFF'FFFF}};
  }
  [[nodiscard]] Priority priority() const { return static_cast<Priority>(rank >> use_bits); }
  [[nodiscard]] std::uint64_t last_use() const { return rank & use_max; }

  friend bool operator==(const LeafAge&, const LeafAge&) = default;
  friend bool operator<(const LeafAge& a, const LeafAge& b) {
    if (a.rank != b.rank) return a.rank < b.rank;
    if (a.depth != b.depth) return a.depth > b.depth;
    return a.node < b.node;
  }
};

/// Keeps leaves in the order of their ages. Each leaf is in one order, which belongs to its line and its tenant. A line is a kind
/// of leaf that a policy handles separately, for example a reuse class. oldest(line) covers all tenants, by a heap that holds the
/// oldest leaf of each tenant. If the tree follows no tenant, there is one order for each line, and no such heap.
///
/// An order is a list from the oldest leaf to the newest, and a sorted set. A leaf that is newer than all or almost all others
/// goes to the end of the list; this is the usual case, because a use makes a leaf the newest. Other leaves go to the set: a
/// parent whose last child was evicted, or a leaf with another priority than the usual one. One table has the position of each
/// node's leaf.
///
/// Threads: one. A change costs O(log n), and O(1) for a leaf in the list. oldest() costs O(1); newest() costs O(log n), and over
/// all tenants that for each followed tenant.
class LeafHeaps {
 public:
  explicit LeafHeaps(std::size_t lines = 1) : lines_{lines}, tops_(lines) { make_orders(lines); }

  /// Inserts the node's leaf, or moves it to its new position.
  void set(std::size_t line, TenantIndex tenant, const LeafAge& age);
  /// Removes the node's leaf. Does nothing if the node has none.
  void erase(NodeId node);

  /// Returns the leaf of this line, and of this tenant if one is given, that is evicted first. Returns nothing if there is none.
  [[nodiscard]] std::optional<LeafAge> oldest(std::size_t line) const;
  [[nodiscard]] std::optional<LeafAge> oldest(std::size_t line, TenantIndex tenant) const;
  /// The same for the leaf that is evicted last of those with this priority.
  [[nodiscard]] std::optional<LeafAge> newest(std::size_t line, Priority priority) const;
  [[nodiscard]] std::optional<LeafAge> newest(std::size_t line, Priority priority, TenantIndex tenant) const;
  /// The line of the node's leaf; nothing if it has none.
  [[nodiscard]] std::optional<std::size_t> line_of(NodeId node) const;
  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] std::size_t bytes_held() const;
  void check_invariants() const;

 private:
  static constexpr std::uint32_t none = 0xFFFF'FFFF;
  static constexpr std::uint32_t in_others = none - 1;
  struct Order {
    explicit Order(std::pmr::memory_resource* memory) : others{memory} {}

    std::pmr::set<LeafAge> others;  ///< the leaves that are not in the list
    std::uint32_t oldest = none;    ///< oldest leaf of the list, whose leaves all have the usual priority
    std::uint32_t newest = none;
  };
  /// A node's leaf, and its neighbours if it is in a list.
  struct Place {
    std::uint64_t rank = 0;
    std::uint32_t depth = 0;
    std::uint32_t order = none;  ///< none: the node has no leaf
    std::uint32_t newer = none;  ///< in_others: the leaf is not in the list
    std::uint32_t older = none;
  };

  [[nodiscard]] LeafAge age_of(std::uint32_t node) const { return {where_[node].rank, where_[node].depth, NodeId{node}}; }
  [[nodiscard]] std::optional<LeafAge> oldest_of(const Order& order) const;
  [[nodiscard]] std::optional<LeafAge> newest_of(const Order& order, Priority priority) const;
  [[nodiscard]] bool has_tenants() const { return orders_.size() > lines_; }
  [[nodiscard]] bool stays_in_place(const Place& place, const LeafAge& age) const;
  void insert(std::uint32_t order, const LeafAge& age);
  void take_out(const Place& place, NodeId node);
  void make_order(std::uint32_t order);
  void make_orders(std::size_t count) {
    while (orders_.size() < count) orders_.emplace_back(memory_.get());
  }
  void refresh_top(std::uint32_t order);

  std::size_t lines_;
  /// Keeps the memory of leaves that have left a set, so that a change rarely allocates.
  std::unique_ptr<std::pmr::unsynchronized_pool_resource> memory_ = std::make_unique<std::pmr::unsynchronized_pool_resource>();
  std::vector<Order> orders_;               ///< by tenant, then by line
  std::vector<IndexedHeap<LeafAge>> tops_;  ///< by line: the oldest of its orders, by tenant; empty while there is one tenant
  ChunkedTable<Place> where_;               ///< by node
  std::size_t size_ = 0;
};

}  // namespace terrace
