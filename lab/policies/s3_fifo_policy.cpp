#include "base/indexed_heap.hpp"
#include "lab/policies/block_records.hpp"
#include "lab/policies/policies.hpp"

#include <algorithm>
#include <utility>

namespace terrace::tools {
namespace {

struct FifoBlock {
  std::uint64_t order = 0;  ///< position in its queue
  std::uint64_t last = 0;   ///< time stamp of its last use; 0: none yet
  std::uint8_t uses = 0;    ///< uses after the first one that have not been consumed
  bool is_main = false;
};

/// An eviction policy with three queues. New blocks wait in a small queue, a tenth of the tier, and move to the main queue only
/// if they are used twice more. A block that comes back soon after its eviction goes to the main queue at once (the third queue
/// records such ghosts). In the main queue each use gives a block one more round. After Yang, Zhang, Qiu, Yue and Rashmi, "FIFO
/// queues are all you need for cache eviction" (SOSP 2023). Amortised O(log n) for each event.
///
/// One difference follows from the prefix tree: only leaves can be evicted, so each queue is a heap of its leaves, in the order
/// in which their blocks came. The number of ghosts is at most nine tenths of the blocks that the tier holds.
class S3FifoPolicy final : public RecordPolicy<FifoBlock> {
 public:
  explicit S3FifoPolicy(std::uint32_t capacity)
      : RecordPolicy{std::size_t{capacity} + ghosts_for(capacity) + 1},
        small_max_{std::max<std::size_t>(capacity / 10, 1)},
        ghosts_max_{ghosts_for(capacity)} {}

  void on_removed(const BlockRun& blocks) override {
    RecordPolicy::on_removed(blocks);
    settle();
  }
  void on_evictable(const Leaf& leaf) override {
    const Index index = records_.find(leaf.key);
    const FifoBlock& block = records_[index];
    const std::uint32_t node = leaf.block.node.value();
    (block.is_main ? small_ : main_).erase(node);
    (block.is_main ? main_ : small_).set(node, Place{block.order, leaf.block.depth, node, index});
    settle();
  }
  void on_unevictable(NodeId node) override {
    if (!small_.erase(node.value())) main_.erase(node.value());
    settle();
  }
  [[nodiscard]] std::optional<NodeId> victim() const override {
    if (candidates() == 0) return std::nullopt;
    return NodeId{(takes_small() ? small_ : main_).top().handle};
  }
  [[nodiscard]] std::size_t candidates() const override { return small_.size() + main_.size(); }
  [[nodiscard]] std::size_t bytes_held() const override {
    return records_.bytes_held() + small_.bytes_held() + main_.bytes_held();
  }
  void check_invariants() const override {
    RecordPolicy::check_invariants();
    small_.check_invariants();
    main_.check_invariants();
    TERRACE_CHECK(records_.ghosts() <= ghosts_max_);
    TERRACE_CHECK(small_blocks_ == records_.count_residents([](const FifoBlock& block) { return !block.is_main; }));
  }

 private:
  static constexpr std::uint8_t uses_max = 3;
  static constexpr std::uint8_t uses_that_prove = 2;

  struct Place {
    std::uint64_t order;
    std::uint32_t depth;
    std::uint32_t node;
    Index record;

    friend bool operator<(const Place& a, const Place& b) {
      if (a.order != b.order) return a.order < b.order;
      if (a.depth != b.depth) return a.depth > b.depth;
      return a.node < b.node;
    }
  };

  static std::size_t ghosts_for(std::uint32_t capacity) { return std::max<std::size_t>(capacity - capacity / 10, 1); }

  void insert(Index index) override {
    FifoBlock& block = records_[index];
    const bool is_ghost = !records_.resident(index) && block.order != 0;
    if (!records_.enter(index)) return;
    block = {.order = ++last_order_, .is_main = is_ghost};
    if (!is_ghost) ++small_blocks_;
  }

  void use(FifoBlock& block) override {
    if (block.last != 0 && block.uses < uses_max) ++block.uses;
  }

  void remove(Index index) override {
    if (records_[index].is_main) {
      records_.forget(index);
    } else {
      --small_blocks_;
      records_.make_newest(index, 0);
      if (records_.ghosts() > ghosts_max_) records_.forget_oldest(0);
    }
  }

  [[nodiscard]] bool takes_small() const { return main_.empty() || (!small_.empty() && small_blocks_ >= small_max_); }

  /// Moves leaves from the head of their queue as their uses require, until the leaf at the head may be evicted. Each step costs
  /// O(log n) and consumes a use.
  void settle() {
    while (candidates() > 0) {
      const bool from_small = takes_small();
      IndexedHeap<Place>& queue = from_small ? small_ : main_;
      Place place = queue.top().priority;
      // The leaf's block has just been removed, so its record is no longer valid. The tree reports next which block is the leaf
      // now.
      if (!records_.resident(place.record)) return;
      FifoBlock& block = records_[place.record];
      if (block.uses < (from_small ? uses_that_prove : 1)) return;
      if (from_small) {
        block.uses = 0;
        if (!std::exchange(block.is_main, true)) --small_blocks_;  // a block that shares the record may have moved it already
        small_.erase(place.node);
      } else {
        --block.uses;
      }
      block.order = ++last_order_;
      place.order = block.order;
      main_.set(place.node, place);
    }
  }

  std::size_t small_max_;
  std::size_t ghosts_max_;
  std::size_t small_blocks_ = 0;
  std::uint64_t last_order_ = 0;
  IndexedHeap<Place> small_;
  IndexedHeap<Place> main_;
};

}  // namespace

std::unique_ptr<EvictionPolicy> s3_fifo_policy(std::uint32_t capacity) { return std::make_unique<S3FifoPolicy>(capacity); }

}  // namespace terrace::tools
