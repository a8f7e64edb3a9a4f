#include "radix/eviction/adaptive_policy.hpp"

#include "base/check.hpp"
#include "radix/eviction/landmarks.hpp"

#include <algorithm>
#include <array>
#include <bit>

namespace terrace {
namespace {

constexpr std::size_t sample_blocks = 768;
/// A boost of this many residence times is effectively infinite: a reused block is evicted only if there is no other block.
constexpr double always = 32;

/// The rules, from the one that protects reused blocks most to LRU.
constexpr std::array<RecencyBoost, AdaptivePolicy::rule_count> boosts{
    RecencyBoost{{0, always, always}}, RecencyBoost{{0, 0, always}}, RecencyBoost{{0, 1, 1}}, RecencyBoost{{0, 0, 0}}};

constexpr std::size_t measurements_per_residence_time = 8;

/// Ages of ghosts are measured in steps of about 1/256 of the capacity. A GhostTable keeps 16 bits of them, so they wrap around
/// after 2^16 steps.
constexpr std::uint32_t ghost_grains_per_capacity = 256;
/// Ghosts are landmarks, so in long prefixes each represents eight blocks.
constexpr std::size_t ghosts_per_block = 2;

}  // namespace

AdaptivePolicy::AdaptivePolicy(std::uint32_t capacity)
    : capacity_{capacity},
      sample_capacity_{std::clamp<std::size_t>(capacity, 1, sample_blocks)},
      sample_below_{(sample_capacity_ << 32U) / std::max<std::size_t>(capacity, 1)},
      shadows_{sample_capacity_, boosts},
      selector_{capacity, sample_capacity_},
      ghosts_{ghosts_per_block * std::size_t{capacity},
              static_cast<unsigned>(std::bit_width(capacity / ghost_grains_per_capacity))} {}

// ---- blocks --------------------------------------------------------------------------------------------------------------

void AdaptivePolicy::Depths::cut(std::uint32_t depth) {
  near = std::min(near, depth);
  far = std::min(far, depth);
  used = std::min(used, depth);
}

AdaptivePolicy::Depths& AdaptivePolicy::depths_of(NodeId node) {
  depths_.extend_to(std::size_t{node.value()} + 1);
  return depths_[node.value()];
}

ReuseClass AdaptivePolicy::reuse_class(NodeId node, std::uint32_t depth) const {
  if (node.value() >= depths_.size()) return ReuseClass::fresh;
  const Depths& depths = depths_[node.value()];
  return depth < depths.near ? ReuseClass::near : depth < depths.far ? ReuseClass::far : ReuseClass::fresh;
}

std::uint32_t AdaptivePolicy::alike_from(NodeId node, std::uint32_t depth) const {
  switch (reuse_class(node, depth)) {
    case ReuseClass::fresh: return node.value() < depths_.size() ? depths_[node.value()].far : 0;
    case ReuseClass::far: return depths_[node.value()].near;
    case ReuseClass::near: return 0;
  }
  TERRACE_CHECK(false);
}

void AdaptivePolicy::on_inserted(const BlockRun& blocks) {
  const std::uint32_t first = Landmarks::before(blocks.begin);
  const std::uint32_t last = Landmarks::before(blocks.end());
  // A request uses the blocks that it finds before it loads them, and the blocks that it computes after it commits them.
  const bool loaded = blocks.node.value() < depths_.size() && blocks.end() <= depths_[blocks.node.value()].used;
  if (loaded) {
    recall_loaded(blocks, first, last);
    count_loaded(blocks.keys.size());
    return;
  }
  if (first < last) recall(blocks, first, last);
  count_inserted(blocks.keys.size());
}

void AdaptivePolicy::count_inserted(std::size_t blocks) {
  inserted_since_ += blocks;
  if (inserted_since_ * measurements_per_residence_time >= capacity_) measure_residence_time();
}

/// Counts loaded blocks as if they arrived one by one, so that the residence time is measured in equal steps, even for a long
/// run.
void AdaptivePolicy::count_loaded(std::size_t blocks) {
  // The number of blocks until the next measurement.
  const std::size_t step = (std::max<std::size_t>(capacity_, 1) - 1) / measurements_per_residence_time + 1;
  while (blocks > 0) {
    const std::size_t some = std::min(blocks, step - inserted_since_);
    count_inserted(some);
    blocks -= some;
  }
}

/// Sets the reuse classes of returned blocks from the ghosts of their landmarks [first, last).
void AdaptivePolicy::recall(const BlockRun& blocks, std::uint32_t first, std::uint32_t last) {
  if (!ghosts_.age(blocks.keys[Landmarks::depth(first) - blocks.begin], evictions_)) return;
  // Deeper blocks are evicted before the blocks above them. So the ages of ghosts increase along the prefix, and forgotten ghosts
  // are at its end. This allows a binary search.
  const auto depth_until = [&](std::uint64_t longest) {
    std::uint32_t low = first;
    std::uint32_t high = last;
    while (low < high) {
      const std::uint32_t middle = low + (high - low) / 2;
      const auto age = ghosts_.age(blocks.keys[Landmarks::depth(middle) - blocks.begin], evictions_);
      if (age && *age <= longest) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    return low == first ? blocks.begin : low == last ? blocks.end() : Landmarks::depth(low);
  };
  const std::uint32_t far = depth_until(~std::uint64_t{0});
  const std::uint32_t near = depth_until(capacity_);
  Depths& depths = depths_of(blocks.node);
  if (near > blocks.begin) depths.near = std::max(depths.near, near);
  depths.far = std::max({depths.far, depths.near, far});
}

/// Does the same for blocks of a load. Each landmark with a ghost determines the class of itself and the blocks before it,
/// because the blocks of a load may have been evicted at different times.
void AdaptivePolicy::recall_loaded(const BlockRun& blocks, std::uint32_t first, std::uint32_t last) {
  const auto key = [&](std::uint32_t i) -> const BlockKey& { return blocks.keys[Landmarks::depth(i) - blocks.begin]; };
  for (std::uint32_t i = first; i < last; ++i) ghosts_.prefetch(key(i));
  std::uint32_t near = 0;
  std::uint32_t far = 0;
  for (std::uint32_t i = first; i < last; ++i) {
    const auto age = ghosts_.age(key(i), evictions_);
    if (!age) continue;
    far = Landmarks::depth(i) + 1;
    if (*age <= capacity_) near = far;
  }
  if (far == 0) return;
  Depths& depths = depths_of(blocks.node);
  depths.near = std::max(depths.near, near);
  depths.far = std::max({depths.far, depths.near, far});
}

void AdaptivePolicy::on_used(const BlockRun& blocks, std::uint64_t stamp, std::uint32_t known) {
  if (now_ == 0 && stamp > 0) measured_at_ = stamp - 1;  // there may have been uses before this policy was set
  now_ = std::max(now_, stamp);
  Depths& depths = depths_of(blocks.node);
  const std::uint32_t again = std::min(blocks.end(), depths.used);
  if (known < again) {
    depths.near = std::max(depths.near, again);
    depths.far = std::max(depths.far, again);
  }
  const std::uint32_t from = std::max(blocks.begin, std::min(known, depths.used));
  depths.used = std::max(depths.used, blocks.end());
  if (from < blocks.end()) sample(blocks, from, stamp);
}

void AdaptivePolicy::on_removed(const BlockRun& blocks) {
  evictions_ += blocks.keys.size();
  const std::uint32_t first = Landmarks::before(blocks.begin);
  const std::uint32_t last = Landmarks::before(blocks.end());
  for (std::uint32_t i = first; i < last; ++i) ghosts_.prefetch(blocks.keys[Landmarks::depth(i) - blocks.begin]);
  for (std::uint32_t i = last; i-- > first;) {
    const std::uint32_t depth = Landmarks::depth(i);
    ghosts_.insert(blocks.keys[depth - blocks.begin], evictions_ - (depth - blocks.begin));
  }
  depths_of(blocks.node).cut(blocks.begin);
}

void AdaptivePolicy::on_split(NodeId upper, NodeId lower, std::uint32_t depth) {
  const Depths whole = depths_of(upper);
  depths_of(lower) = whole;
  depths_of(upper).cut(depth);
}

void AdaptivePolicy::on_gone(NodeId node, std::uint32_t depth) {
  if (node.value() < depths_.size()) depths_[node.value()].cut(depth);
}

/// Measures the cache residence time: the number of stamps that pass while the tier takes in as many blocks as it holds.
void AdaptivePolicy::measure_residence_time() {
  const double residence_times = static_cast<double>(inserted_since_) / static_cast<double>(capacity_);
  const double measured = static_cast<double>(now_ - measured_at_) / residence_times;
  residence_time_ = residence_time_ == 0 ? measured : 0.75 * residence_time_ + 0.25 * measured;
  measured_at_ = now_;
  inserted_since_ = 0;
}

// ---- rules ---------------------------------------------------------------------------------------------------------------

void AdaptivePolicy::sample(const BlockRun& blocks, std::uint32_t from, std::uint64_t stamp) {
  Landmarks::for_each_sampled(blocks, from, sample_below_, [&](std::uint32_t depth, std::uint32_t) {
    put_off({blocks.keys[depth - blocks.begin].prefix64(), stamp, residence_time_});
  });
}

void AdaptivePolicy::put_off(const SampledUse& use) {
  if (put_off_.full()) learn_first();  // catch_up() is not called, or a step has very many uses
  put_off_.push_back(use);
}

void AdaptivePolicy::learn_first() const {
  const SampledUse use = put_off_.front();
  put_off_.pop_front();
  selector_.add(shadows_.use(use.name, use.stamp, use.residence_time), use.stamp);
}

void AdaptivePolicy::learn() const {
  while (!put_off_.empty()) {
    if (put_off_.size() > 1) shadows_.prefetch(put_off_[1].name);
    learn_first();
  }
}

std::size_t AdaptivePolicy::rule() const {
  learn();
  return selector_.rule();
}

// ---- leaves --------------------------------------------------------------------------------------------------------------

void AdaptivePolicy::on_evictable(const Leaf& leaf) {
  leaves_.set(static_cast<std::size_t>(reuse_class(leaf.block.node, leaf.block.depth)), leaf.tenant, LeafAge{leaf});
}

/// Compares the oldest leaf of each reuse class. The leaf of the lowest priority is evicted first; of equal priorities, the one
/// whose last use, plus the time that the rule adds for its class, is the earliest.
template <class OldestOf>
std::optional<NodeId> AdaptivePolicy::next_victim(OldestOf oldest_of) const {
  const RecencyBoost& boost = boosts[rule()];
  std::optional<LeafAge> first;
  double first_age = 0;
  for (std::size_t reuse_class = 0; reuse_class < reuse_class_count; ++reuse_class) {
    const std::optional<LeafAge> leaf = oldest_of(reuse_class);
    if (!leaf) continue;
    const double age = boost.age(static_cast<ReuseClass>(reuse_class), leaf->last_use(), residence_time_);
    const bool goes_first =
        !first || leaf->priority() < first->priority() || (leaf->priority() == first->priority() && age < first_age);
    if (!goes_first) continue;
    first = leaf;
    first_age = age;
  }
  if (!first) return std::nullopt;
  return first->node;
}

std::optional<NodeId> AdaptivePolicy::victim() const {
  return next_victim([&](std::size_t reuse_class) { return leaves_.oldest(reuse_class); });
}

std::optional<NodeId> AdaptivePolicy::victim(TenantIndex tenant) const {
  return next_victim([&](std::size_t reuse_class) { return leaves_.oldest(reuse_class, tenant); });
}

std::size_t AdaptivePolicy::bytes_held() const {
  return shadows_.bytes_held() + ghosts_.bytes_held() + leaves_.bytes_held() + depths_.bytes_held() +
         put_off_.capacity() * sizeof(SampledUse);
}

void AdaptivePolicy::check_invariants() const {
  leaves_.check_invariants();
  shadows_.check_invariants();
  for (std::size_t node = 0; node < depths_.size(); ++node) TERRACE_CHECK(depths_[node].near <= depths_[node].far);
  TERRACE_CHECK(rule() < rule_count);
}

}  // namespace terrace
