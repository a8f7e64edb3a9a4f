#pragma once

#include "base/indexed_heap.hpp"
#include "radix/eviction_policy.hpp"

namespace terrace {

/// Least recently used leaf first; of equal age the deepest first, so that a path is given up from its end. The leaf heap: an
/// indexed heap of candidates, O(log n) per event and O(1) per question.
class LruPolicy final : public EvictionPolicy {
 public:
  void on_evictable(BlockRef leaf, const BlockKey& key, std::uint64_t last_use) override;
  void on_unevictable(NodeId node) override;
  [[nodiscard]] std::optional<NodeId> victim() const override;
  [[nodiscard]] std::size_t candidates() const override { return heap_.size(); }
  [[nodiscard]] std::size_t bytes_held() const override { return heap_.bytes_held(); }
  void check_invariants() const override { heap_.check_invariants(); }

 private:
  struct Age {
    std::uint64_t last_use;
    std::uint32_t depth;
    std::uint32_t node;  // two leaves of one age and depth: any fixed order, so that runs repeat

    friend bool operator<(const Age& a, const Age& b) {
      if (a.last_use != b.last_use) return a.last_use < b.last_use;
      if (a.depth != b.depth) return a.depth > b.depth;
      return a.node < b.node;
    }
  };

  IndexedHeap<Age> heap_;
};

}  // namespace terrace
