#include "lab/policies/lru2_policy.hpp"

namespace terrace::tools {

Lru2Policy::Lru2Policy(std::uint32_t capacity)
    : ghosts_max_{ghosts_per_block * std::size_t{capacity}}, records_{(ghosts_per_block + 1) * std::size_t{capacity} + 1} {}

void Lru2Policy::on_inserted(const BlockRun& blocks) {
  for (const BlockKey& key : blocks.keys) records_.enter(records_.find_or_add(key));
}

void Lru2Policy::on_used(const BlockRun& blocks, std::uint64_t stamp, std::uint32_t) {
  for (const BlockKey& key : blocks.keys) {
    const Records::Index index = records_.find_or_add(key);
    Uses& uses = records_[index];
    if (stamp > uses.last) {
      uses.previous = uses.last;
      uses.last = stamp;
    }
    // The block was used in another tier. Its uses are recorded, because they count when it comes into this tier.
    if (!records_.resident(index)) remember_as_ghost(index);
  }
}

void Lru2Policy::on_removed(const BlockRun& blocks) {
  for (std::size_t i = blocks.keys.size(); i-- > 0;) {
    const Records::Index index = records_.find(blocks.keys[i]);
    if (records_.leave(index)) remember_as_ghost(index);
  }
}

void Lru2Policy::remember_as_ghost(Records::Index index) {
  records_.make_newest(index, 0);
  if (records_.ghosts() > ghosts_max_) records_.forget_oldest(0);
}

void Lru2Policy::on_evictable(const Leaf& leaf) {
  heap_.set(leaf.block.node.value(), Age{records_[records_.find(leaf.key)].previous, LeafAge{leaf}});
}

void Lru2Policy::on_unevictable(NodeId node) { heap_.erase(node.value()); }

std::optional<NodeId> Lru2Policy::victim() const {
  if (heap_.empty()) return std::nullopt;
  return NodeId{heap_.top().handle};
}

void Lru2Policy::check_invariants() const {
  heap_.check_invariants();
  records_.check_invariants();
  TERRACE_CHECK(records_.ghosts() <= ghosts_max_);
  TERRACE_CHECK(heap_.size() <= records_.blocks());
}

}  // namespace terrace::tools
