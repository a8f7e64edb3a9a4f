#include "base/indexed_heap.hpp"
#include "lab/policies/block_records.hpp"
#include "lab/policies/policies.hpp"
#include "radix/eviction/leaf_heaps.hpp"

namespace terrace::tools {
namespace {

struct LastUses {
  std::uint64_t last = 0;  ///< 0: it was never used
  std::uint64_t previous = 0;
};

/// Evicts the leaf whose second-to-last use is longest ago. Leaves that were used only once go first, least recently used first.
/// After O'Neil, O'Neil and Weikum, "The LRU-K page replacement algorithm for database disk buffering" (SIGMOD 1993), with K = 2.
/// It keeps records of blocks that have left (the paper's "retained information"), four times as many as the tier holds, so it
/// recognises a block that is computed a second time. O(log n) for each event.
///
/// A parent is used whenever its child is used, so its second-to-last use is never older. So a prefix is evicted from its end.
class Lru2Policy final : public RecordPolicy<LastUses> {
 public:
  explicit Lru2Policy(std::uint32_t capacity)
      : RecordPolicy{(ghosts_per_block + 1) * std::size_t{capacity} + 1}, ghosts_max_{ghosts_per_block * std::size_t{capacity}} {}

  void on_used(const BlockRun& blocks, std::uint64_t stamp, std::uint32_t /*known*/) override {
    for (const BlockKey& key : blocks.keys) {
      const Index index = records_.find_or_add(key);
      LastUses& uses = records_[index];
      if (stamp > uses.last) {
        uses.previous = uses.last;
        uses.last = stamp;
      }
      // The block was used in another tier. Its uses are recorded, because they count when it comes into this tier.
      if (!records_.resident(index)) remove(index);
    }
  }
  void on_evictable(const Leaf& leaf) override {
    heap_.set(leaf.block.node.value(), Age{records_[records_.find(leaf.key)].previous, LeafAge{leaf}});
  }
  void on_unevictable(NodeId node) override { heap_.erase(node.value()); }
  [[nodiscard]] std::optional<NodeId> victim() const override {
    if (heap_.empty()) return std::nullopt;
    return NodeId{heap_.top().handle};
  }
  [[nodiscard]] std::size_t candidates() const override { return heap_.size(); }
  [[nodiscard]] std::size_t bytes_held() const override { return records_.bytes_held() + heap_.bytes_held(); }
  void check_invariants() const override {
    RecordPolicy::check_invariants();
    heap_.check_invariants();
    TERRACE_CHECK(records_.ghosts() <= ghosts_max_);
  }

 private:
  static constexpr std::size_t ghosts_per_block = 4;

  struct Age {
    std::uint64_t previous_use;
    LeafAge age;

    friend bool operator<(const Age& a, const Age& b) {
      return a.previous_use != b.previous_use ? a.previous_use < b.previous_use : a.age < b.age;
    }
  };

  void insert(Index index) override { records_.enter(index); }
  /// Remembers the block as a ghost.
  void remove(Index index) override {
    records_.make_newest(index, 0);
    if (records_.ghosts() > ghosts_max_) records_.forget_oldest(0);
  }

  std::size_t ghosts_max_;
  IndexedHeap<Age> heap_;
};

}  // namespace

std::unique_ptr<EvictionPolicy> lru2_policy(std::uint32_t capacity) { return std::make_unique<Lru2Policy>(capacity); }

}  // namespace terrace::tools
