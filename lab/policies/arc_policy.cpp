#include "lab/policies/block_records.hpp"
#include "lab/policies/policies.hpp"
#include "radix/eviction/leaf_heaps.hpp"

#include <algorithm>
#include <array>

namespace terrace::tools {
namespace {

constexpr std::size_t once = 0;   ///< lists T1 and B1 of the paper
constexpr std::size_t again = 1;  ///< lists T2 and B2 of the paper

struct ArcBlock {
  std::uint64_t last = 0;
  std::uint8_t kind = once;
};

/// An eviction policy that keeps blocks used once apart from blocks used again, each in order of use. Hits on ghosts of the two
/// kinds decide how much space the first kind may take. After Megiddo and Modha, "ARC: a self-tuning, low overhead replacement
/// cache" (FAST 2003). O(log n) for each event.
///
/// Two differences follow from the prefix tree. Only leaves can be evicted, so each kind has a heap of its leaves in place of a
/// list of its blocks. And space is made before a block comes, so a hit on its ghost is seen only afterwards. The number of
/// ghosts is at most the number of blocks that the tier holds.
class ArcPolicy final : public RecordPolicy<ArcBlock, 2> {
 public:
  explicit ArcPolicy(std::uint32_t capacity) : RecordPolicy{2 * std::size_t{capacity} + 1}, capacity_{capacity} {}

  void on_evictable(const Leaf& leaf) override {
    leaves_.set(records_[records_.find(leaf.key)].kind, other_tenants, LeafAge{leaf});
  }
  void on_unevictable(NodeId node) override { leaves_.erase(node); }
  [[nodiscard]] std::optional<NodeId> victim() const override {
    const std::optional<LeafAge> first = leaves_.oldest(once);
    const std::optional<LeafAge> second = leaves_.oldest(again);
    if (!first && !second) return std::nullopt;
    const bool takes_once = !second.has_value() || (first.has_value() && resident_[once] > target_);
    return (takes_once ? first : second)->node;
  }
  [[nodiscard]] std::size_t candidates() const override { return leaves_.size(); }
  [[nodiscard]] std::size_t bytes_held() const override { return records_.bytes_held() + leaves_.bytes_held(); }
  [[nodiscard]] std::size_t ghosts() const override { return records_.ghosts(once) + records_.ghosts(again); }
  void check_invariants() const override {
    RecordPolicy::check_invariants();
    leaves_.check_invariants();
    TERRACE_CHECK(resident_[once] + resident_[again] == records_.residents());
    TERRACE_CHECK(ghosts() <= capacity_);
    TERRACE_CHECK(target_ <= capacity_);
  }

 private:
  void insert(Index index) override {
    ArcBlock& block = records_[index];
    const bool is_ghost = !records_.resident(index) && block.last != 0;
    if (is_ghost) {
      // With more space for its kind, the block would have been a hit.
      const std::size_t b1 = std::max<std::size_t>(records_.ghosts(once), 1);
      const std::size_t b2 = std::max<std::size_t>(records_.ghosts(again), 1);
      if (block.kind == once) {
        target_ = std::min(capacity_, target_ + std::max<std::size_t>(b2 / b1, 1));
      } else {
        target_ -= std::min(target_, std::max<std::size_t>(b1 / b2, 1));
      }
      block.kind = again;
    }
    if (records_.enter(index)) ++resident_[block.kind];
  }

  void use(ArcBlock& block) override {
    if (block.last == 0 || block.kind == again) return;
    block.kind = again;
    --resident_[once];
    ++resident_[again];
  }

  void remove(Index index) override {
    ArcBlock& block = records_[index];
    --resident_[block.kind];
    block.last = std::max<std::uint64_t>(block.last, 1);  // marks it as a ghost even if it was never used here
    records_.make_newest(index, block.kind);
    // The blocks and ghosts of kind `once` together are at most as many as the tier holds. All ghosts together are too.
    while (records_.ghosts(once) > 0 && resident_[once] + records_.ghosts(once) > capacity_) records_.forget_oldest(once);
    while (ghosts() > capacity_) records_.forget_oldest(records_.ghosts(again) > 0 ? again : once);
  }

  std::size_t capacity_;
  std::size_t target_ = 0;                 ///< p of the paper: the space for blocks used once
  std::array<std::size_t, 2> resident_{};  ///< |T1| and |T2| of the paper
  LeafHeaps leaves_{2};                    ///< by kind
};

}  // namespace

std::unique_ptr<EvictionPolicy> arc_policy(std::uint32_t capacity) { return std::make_unique<ArcPolicy>(capacity); }

}  // namespace terrace::tools
