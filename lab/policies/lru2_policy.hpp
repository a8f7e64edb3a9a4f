#pragma once

#include "base/indexed_heap.hpp"
#include "lab/policies/block_records.hpp"
#include "radix/eviction/leaf_heaps.hpp"

namespace terrace::tools {

/// Evicts the leaf whose second-to-last use is longest ago. Leaves that were used only once go first, least recently used first.
/// After O'Neil, O'Neil and Weikum, "The LRU-K page replacement algorithm for database disk buffering" (SIGMOD 1993), with K = 2.
/// It keeps records of blocks that have left (the paper's "retained information"), four times as many as the tier holds, so it
/// recognises a block that is computed a second time. O(log n) for each event.
///
/// A parent is used whenever its child is used, so its second-to-last use is never older. So a prefix is evicted from its end.
class Lru2Policy final : public EvictionPolicy {
 public:
  static constexpr std::size_t ghosts_per_block = 4;

  explicit Lru2Policy(std::uint32_t capacity);

  [[nodiscard]] bool follows_blocks() const override { return true; }
  void on_inserted(const BlockRun& blocks) override;
  void on_used(const BlockRun& blocks, std::uint64_t stamp, std::uint32_t known) override;
  void on_removed(const BlockRun& blocks) override;
  void on_evictable(const Leaf& leaf) override;
  void on_unevictable(NodeId node) override;
  [[nodiscard]] std::optional<NodeId> victim() const override;
  [[nodiscard]] std::size_t candidates() const override { return heap_.size(); }
  [[nodiscard]] std::size_t bytes_held() const override { return records_.bytes_held() + heap_.bytes_held(); }
  [[nodiscard]] std::size_t ghosts() const override { return records_.ghosts(); }
  void check_invariants() const override;

 private:
  struct Uses {
    std::uint64_t last = 0;  ///< 0: it was never used
    std::uint64_t previous = 0;
  };
  struct Age {
    std::uint64_t previous_use;
    LeafAge age;

    friend bool operator<(const Age& a, const Age& b) {
      return a.previous_use != b.previous_use ? a.previous_use < b.previous_use : a.age < b.age;
    }
  };
  using Records = BlockRecords<Uses>;

  void remember_as_ghost(Records::Index index);

  std::size_t ghosts_max_;
  Records records_;
  IndexedHeap<Age> heap_;
};

}  // namespace terrace::tools
