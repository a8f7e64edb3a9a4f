#pragma once

#include "lab/policies/block_records.hpp"
#include "radix/eviction/leaf_heaps.hpp"

#include <array>

namespace terrace::tools {

/// An eviction policy that keeps blocks used once apart from blocks used again, each in order of use. Hits on ghosts of the two
/// kinds decide how much space the first kind may take. After Megiddo and Modha, "ARC: a self-tuning, low overhead replacement
/// cache" (FAST 2003). O(log n) for each event.
///
/// Two differences follow from the prefix tree. Only leaves can be evicted, so each kind has a heap of its leaves in place of a
/// list of its blocks. And space is made before a block comes, so a hit on its ghost is seen only afterwards. The number of
/// ghosts is at most the number of blocks that the tier holds.
class ArcPolicy final : public EvictionPolicy {
 public:
  explicit ArcPolicy(std::uint32_t capacity);

  [[nodiscard]] bool follows_blocks() const override { return true; }
  void on_inserted(const BlockRun& blocks) override;
  void on_used(const BlockRun& blocks, std::uint64_t stamp, std::uint32_t known) override;
  void on_removed(const BlockRun& blocks) override;
  void on_evictable(const Leaf& leaf) override;
  void on_unevictable(NodeId node) override;
  [[nodiscard]] std::optional<NodeId> victim() const override;
  [[nodiscard]] std::size_t candidates() const override { return leaves_.size(); }
  [[nodiscard]] std::size_t bytes_held() const override { return records_.bytes_held() + leaves_.bytes_held(); }
  [[nodiscard]] std::size_t ghosts() const override { return records_.ghosts(once) + records_.ghosts(again); }
  void check_invariants() const override;

 private:
  static constexpr std::size_t once = 0;   ///< lists T1 and B1 of the paper
  static constexpr std::size_t again = 1;  ///< lists T2 and B2 of the paper

  struct Block {
    std::uint64_t last = 0;
    std::uint8_t kind = once;
  };
  using Records = BlockRecords<Block, 2>;

  void insert(const BlockKey& key);
  void remove(const BlockKey& key);

  std::size_t capacity_;
  std::size_t target_ = 0;                 ///< p of the paper: the space for blocks used once
  std::array<std::size_t, 2> resident_{};  ///< |T1| and |T2| of the paper
  Records records_;
  LeafHeaps leaves_{2};  ///< by kind
};

}  // namespace terrace::tools
