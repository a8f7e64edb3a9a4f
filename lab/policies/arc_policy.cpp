#include "lab/policies/arc_policy.hpp"

#include <algorithm>

namespace terrace::tools {

ArcPolicy::ArcPolicy(std::uint32_t capacity) : capacity_{capacity}, records_{2 * std::size_t{capacity} + 1} {}

void ArcPolicy::on_inserted(const BlockRun& blocks) {
  for (const BlockKey& key : blocks.keys) insert(key);
}

void ArcPolicy::insert(const BlockKey& key) {
  const Records::Index index = records_.find_or_add(key);
  Block& block = records_[index];
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

void ArcPolicy::on_used(const BlockRun& blocks, std::uint64_t stamp, std::uint32_t) {
  for (const BlockKey& key : blocks.keys) {
    const Records::Index index = records_.find(key);
    if (index == Records::none || !records_.resident(index)) continue;
    Block& block = records_[index];
    if (stamp <= block.last) continue;
    if (block.last != 0 && block.kind == once) {
      block.kind = again;
      --resident_[once];
      ++resident_[again];
    }
    block.last = stamp;
  }
}

void ArcPolicy::on_removed(const BlockRun& blocks) {
  for (std::size_t i = blocks.keys.size(); i-- > 0;) remove(blocks.keys[i]);
}

void ArcPolicy::remove(const BlockKey& key) {
  const Records::Index index = records_.find(key);
  if (!records_.leave(index)) return;
  Block& block = records_[index];
  --resident_[block.kind];
  block.last = std::max<std::uint64_t>(block.last, 1);  // marks it as a ghost even if it was never used here
  records_.make_newest(index, block.kind);
  // The blocks and ghosts of kind `once` together are at most as many as the tier holds. All ghosts together are too.
  while (records_.ghosts(once) > 0 && resident_[once] + records_.ghosts(once) > capacity_) records_.forget_oldest(once);
  while (ghosts() > capacity_) records_.forget_oldest(records_.ghosts(again) > 0 ? again : once);
}

void ArcPolicy::on_evictable(const Leaf& leaf) {
  leaves_.set(records_[records_.find(leaf.key)].kind, other_tenants, LeafAge{leaf});
}

void ArcPolicy::on_unevictable(NodeId node) { leaves_.erase(node); }

std::optional<NodeId> ArcPolicy::victim() const {
  const std::optional<LeafAge> first = leaves_.oldest(once);
  const std::optional<LeafAge> second = leaves_.oldest(again);
  if (!first && !second) return std::nullopt;
  const bool takes_once = !second.has_value() || (first.has_value() && resident_[once] > target_);
  return (takes_once ? first : second)->node;
}

void ArcPolicy::check_invariants() const {
  leaves_.check_invariants();
  records_.check_invariants();
  TERRACE_CHECK(resident_[once] + resident_[again] == records_.residents());
  TERRACE_CHECK(candidates() <= records_.blocks());
  TERRACE_CHECK(ghosts() <= capacity_);
  TERRACE_CHECK(target_ <= capacity_);
}

}  // namespace terrace::tools
