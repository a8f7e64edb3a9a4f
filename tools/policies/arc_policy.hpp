#pragma once

#include "radix/eviction/leaf_heaps.hpp"
#include "tools/policies/block_records.hpp"

#include <array>

namespace terrace::tools {

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
  void on_inserted(const Blocks& blocks) override;
  void on_used(const Blocks& blocks, std::uint64_t stamp, std::uint32_t known) override;
  void on_removed(const Blocks& blocks) override;
  void on_evictable(const Leaf& leaf) override;
  void on_unevictable(NodeId node) override;
  [[nodiscard]] std::optional<NodeId> victim() const override;
  [[nodiscard]] std::size_t candidates() const override { return leaves_.size(); }
  [[nodiscard]] std::size_t bytes_held() const override { return records_.bytes_held() + leaves_.bytes_held(); }
  [[nodiscard]] std::size_t ghosts() const override { return records_.ghosts(once) + records_.ghosts(again); }
  void check_invariants() const override;

 private:
  static constexpr std::size_t once = 0;   ///< T1, B1
  static constexpr std::size_t again = 1;  ///< T2, B2

  struct Block {
    std::uint64_t last = 0;
    std::uint8_t kind = once;
  };
  using Records = BlockRecords<Block, 2>;

  void insert(const BlockKey& key);
  void remove(const BlockKey& key);

  std::size_t capacity_;
  std::size_t target_ = 0;                 ///< p: room for what was used once
  std::array<std::size_t, 2> resident_{};  ///< |T1|, |T2|
  Records records_;
  LeafHeaps leaves_{2};  ///< by kind
};

}  // namespace terrace::tools
