#include "radix/lru2_policy.hpp"

namespace terrace {

Lru2Policy::Lru2Policy(std::uint32_t capacity)
    : ghosts_max_{ghosts_per_block * std::size_t{capacity}}, records_{(ghosts_per_block + 1) * std::size_t{capacity} + 1} {}

void Lru2Policy::on_inserted(const BlockKey& key) { records_.enter(records_.find_or_add(key)); }

void Lru2Policy::on_used(std::span<const BlockKey> keys, std::uint64_t stamp) {
  for (const BlockKey& key : keys) {
    const Records::Index index = records_.find_or_add(key);
    Uses& uses = records_[index];
    if (stamp > uses.last) {
      uses.previous = uses.last;
      uses.last = stamp;
    }
    // Used where it lies in another tier: what is known of it is wanted when it comes.
    if (!records_.resident(index)) remember_as_ghost(index);
  }
}

void Lru2Policy::on_removed(const BlockKey& key) {
  const Records::Index index = records_.find(key);
  if (records_.leave(index)) remember_as_ghost(index);
}

void Lru2Policy::remember_as_ghost(Records::Index index) {
  records_.make_newest(index, 0);
  if (records_.ghosts() > ghosts_max_) records_.forget_oldest(0);
}

void Lru2Policy::on_evictable(BlockRef leaf, const BlockKey& key, std::uint64_t last_use) {
  const Uses& uses = records_[records_.find(key)];
  heap_.set(leaf.node.value(), Age{uses.previous, last_use, leaf.depth, leaf.node.value()});
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
  TERRACE_CHECK(heap_.size() <= records_.residents());
}

}  // namespace terrace
