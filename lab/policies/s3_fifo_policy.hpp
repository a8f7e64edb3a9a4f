#pragma once

#include "base/indexed_heap.hpp"
#include "lab/policies/block_records.hpp"
#include "terrace/policies.hpp"

namespace terrace::tools {

/// An eviction policy with three queues. New blocks wait in a small queue, a tenth of the tier, and move to the main queue only
/// if they are used twice more. A block that comes back soon after its eviction goes to the main queue at once (the third queue
/// records such ghosts). In the main queue each use gives a block one more round. After Yang, Zhang, Qiu, Yue and Rashmi, "FIFO
/// queues are all you need for cache eviction" (SOSP 2023). Amortised O(log n) for each event.
///
/// One difference follows from the prefix tree: only leaves can be evicted, so each queue is a heap of its leaves, in the order
/// in which their blocks came. The number of ghosts is at most nine tenths of the blocks that the tier holds.
class S3FifoPolicy final : public EvictionPolicy {
 public:
  explicit S3FifoPolicy(std::uint32_t capacity);

  [[nodiscard]] bool follows_blocks() const override { return true; }
  void on_inserted(const BlockRun& blocks) override;
  void on_used(const BlockRun& blocks, std::uint64_t stamp, std::uint32_t known) override;
  void on_removed(const BlockRun& blocks) override;
  void on_evictable(const Leaf& leaf) override;
  void on_unevictable(NodeId node) override;
  [[nodiscard]] std::optional<NodeId> victim() const override;
  [[nodiscard]] std::size_t candidates() const override { return small_.size() + main_.size(); }
  [[nodiscard]] std::size_t bytes_held() const override {
    return records_.bytes_held() + small_.bytes_held() + main_.bytes_held();
  }
  [[nodiscard]] std::size_t ghosts() const override { return records_.ghosts(); }
  void check_invariants() const override;

 private:
  static constexpr std::uint8_t uses_max = 3;
  static constexpr std::uint8_t uses_that_prove = 2;

  struct Block {
    std::uint64_t order = 0;  ///< position in its queue
    std::uint64_t last = 0;   ///< time stamp of its last use; 0: none yet
    std::uint8_t uses = 0;    ///< uses after the first one that have not been consumed
    bool is_main = false;
  };
  using Records = BlockRecords<Block>;
  struct Place {
    std::uint64_t order;
    std::uint32_t depth;
    std::uint32_t node;
    Records::Index record;

    friend bool operator<(const Place& a, const Place& b) {
      if (a.order != b.order) return a.order < b.order;
      if (a.depth != b.depth) return a.depth > b.depth;
      return a.node < b.node;
    }
  };

  void insert(const BlockKey& key);
  void remove(const BlockKey& key);
  [[nodiscard]] bool takes_small() const;
  void settle();

  std::size_t small_max_;
  std::size_t ghosts_max_;
  std::size_t small_blocks_ = 0;
  std::uint64_t last_order_ = 0;
  Records records_;
  IndexedHeap<Place> small_;
  IndexedHeap<Place> main_;
};

}  // namespace terrace::tools
