#pragma once

#include "base/indexed_heap.hpp"
#include "radix/block_records.hpp"
#include "radix/eviction_policy.hpp"

#include <array>

namespace terrace {

/// Keeps blocks used once apart from those used again, each in order of use, and lets the hits on what it has lately given up
/// of either say how much room the first may take. After Megiddo and Modha, "ARC: a self-tuning, low overhead replacement
/// cache" (FAST 2003). O(log n) an event.
///
/// What the tree changes: only leaves can go, so that each kind has a heap of its leaves for a list of its blocks; and room is
/// made before a block comes, so that the hit on its ghost is heard after. Ghosts: as many as the tier holds.
class ArcPolicy final : public EvictionPolicy {
 public:
  explicit ArcPolicy(std::uint32_t capacity);

  [[nodiscard]] bool follows_blocks() const override { return true; }
  void on_inserted(const BlockKey& key) override;
  void on_used(std::span<const BlockKey> keys, std::uint64_t stamp) override;
  void on_removed(const BlockKey& key) override;
  void on_evictable(BlockRef leaf, const BlockKey& key, std::uint64_t last_use) override;
  void on_unevictable(NodeId node) override;
  [[nodiscard]] std::optional<NodeId> victim() const override;
  [[nodiscard]] std::size_t candidates() const override { return leaves_[once].size() + leaves_[again].size(); }
  [[nodiscard]] std::size_t bytes_held() const override {
    return records_.bytes_held() + leaves_[once].bytes_held() + leaves_[again].bytes_held();
  }
  [[nodiscard]] std::size_t ghosts() const override { return records_.ghosts(once) + records_.ghosts(again); }
  void check_invariants() const override;

 private:
  static constexpr std::size_t once = 0;   ///< T1, B1
  static constexpr std::size_t again = 1;  ///< T2, B2

  struct Block {
    std::uint64_t last = 0;
    std::uint8_t kind = once;
  };
  struct Age {
    std::uint64_t last_use;
    std::uint32_t depth;
    std::uint32_t node;

    friend bool operator<(const Age& a, const Age& b) {
      if (a.last_use != b.last_use) return a.last_use < b.last_use;
      if (a.depth != b.depth) return a.depth > b.depth;
      return a.node < b.node;
    }
  };
  using Records = BlockRecords<Block, 2>;

  std::size_t capacity_;
  std::size_t target_ = 0;                  ///< p: room for what was used once
  std::array<std::size_t, 2> resident_{};   ///< |T1|, |T2|
  Records records_;
  std::array<IndexedHeap<Age>, 2> leaves_;
};

}  // namespace terrace
