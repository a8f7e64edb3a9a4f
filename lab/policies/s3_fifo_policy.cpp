#include "lab/policies/s3_fifo_policy.hpp"

#include <algorithm>
#include <utility>

namespace terrace::tools {

S3FifoPolicy::S3FifoPolicy(std::uint32_t capacity)
    : small_max_{std::max<std::size_t>(capacity / 10, 1)},
      ghosts_max_{std::max<std::size_t>(capacity - capacity / 10, 1)},
      records_{std::size_t{capacity} + ghosts_max_ + 1} {}

void S3FifoPolicy::on_inserted(const BlockRun& blocks) {
  for (const BlockKey& key : blocks.keys) insert(key);
}

void S3FifoPolicy::insert(const BlockKey& key) {
  const Records::Index index = records_.find_or_add(key);
  Block& block = records_[index];
  const bool is_ghost = !records_.resident(index) && block.order != 0;
  if (!records_.enter(index)) return;
  block.is_main = is_ghost;
  block.uses = 0;
  block.last = 0;
  block.order = ++last_order_;
  if (!block.is_main) ++small_blocks_;
}

void S3FifoPolicy::on_used(const BlockRun& blocks, std::uint64_t stamp, std::uint32_t) {
  for (const BlockKey& key : blocks.keys) {
    const Records::Index index = records_.find(key);
    if (index == Records::none || !records_.resident(index)) continue;
    Block& block = records_[index];
    if (stamp <= block.last) continue;
    if (block.last != 0 && block.uses < uses_max) ++block.uses;
    block.last = stamp;
  }
}

void S3FifoPolicy::on_removed(const BlockRun& blocks) {
  for (std::size_t i = blocks.keys.size(); i-- > 0;) remove(blocks.keys[i]);
  settle();
}

void S3FifoPolicy::remove(const BlockKey& key) {
  const Records::Index index = records_.find(key);
  if (!records_.leave(index)) return;
  if (records_[index].is_main) {
    records_.forget(index);
  } else {
    --small_blocks_;
    records_.make_newest(index, 0);
    if (records_.ghosts() > ghosts_max_) records_.forget_oldest(0);
  }
}

void S3FifoPolicy::on_evictable(const Leaf& leaf) {
  const Records::Index index = records_.find(leaf.key);
  const Block& block = records_[index];
  const std::uint32_t node = leaf.block.node.value();
  (block.is_main ? small_ : main_).erase(node);
  (block.is_main ? main_ : small_).set(node, Place{block.order, leaf.block.depth, node, index});
  settle();
}

void S3FifoPolicy::on_unevictable(NodeId node) {
  if (!small_.erase(node.value())) main_.erase(node.value());
  settle();
}

bool S3FifoPolicy::takes_small() const { return main_.empty() || (!small_.empty() && small_blocks_ >= small_max_); }

/// Moves leaves from the head of their queue as their uses require, until the leaf at the head may be evicted. Each step costs
/// O(log n) and consumes a use.
void S3FifoPolicy::settle() {
  while (candidates() > 0) {
    const bool from_small = takes_small();
    IndexedHeap<Place>& queue = from_small ? small_ : main_;
    Place place = queue.top().priority;
    // The leaf's block has just been removed, so its record is no longer valid. The tree reports next which block is the leaf
    // now.
    if (!records_.resident(place.record)) return;
    Block& block = records_[place.record];
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

std::optional<NodeId> S3FifoPolicy::victim() const {
  if (candidates() == 0) return std::nullopt;
  return NodeId{(takes_small() ? small_ : main_).top().handle};
}

void S3FifoPolicy::check_invariants() const {
  small_.check_invariants();
  main_.check_invariants();
  records_.check_invariants();
  TERRACE_CHECK(records_.ghosts() <= ghosts_max_);
  TERRACE_CHECK(small_blocks_ == records_.count_residents([](const Block& block) { return !block.is_main; }));
  TERRACE_CHECK(candidates() <= records_.blocks());
}

}  // namespace terrace::tools
