#include "radix/adaptive_policy.hpp"

#include <algorithm>
#include <cmath>

namespace terrace {
namespace {

constexpr std::size_t sample_blocks = 2048;
/// So many turnovers are as good as for ever: what is proven goes only when nothing else is left.
constexpr double always = 32;

/// From the one that protects most.
constexpr std::array<Favour, AdaptivePolicy::rule_count> favours{
    Favour{{0, always, always}}, Favour{{0, 0, always}}, Favour{{0, 1, 1}}, Favour{{0, 0, 0}}};

/// What was hit so many uses of the sample ago counts half: four capacities, but no fewer than tell the rules apart by more
/// than chance.
constexpr double half_life_capacities = 4;
constexpr double half_life_min = 16'384;
/// Lately is shorter than that.
constexpr double lately_per_half_life = 8;
constexpr double dispute_that_is_none = 0.002;  ///< of the uses
constexpr std::size_t choices_per_capacity = 8;
constexpr double lead_to_switch = 0.001;  ///< of hit rate: a tenth of a point
constexpr double lead_that_is_none = 0.0005;
constexpr std::size_t measurements_per_turnover = 8;

}  // namespace

AdaptivePolicy::AdaptivePolicy(std::uint32_t capacity)
    : capacity_{capacity},
      ghosts_max_{ghosts_per_block * std::size_t{capacity}},
      sample_every_{std::max<std::size_t>(capacity / sample_blocks, 1)},
      sample_capacity_{std::max<std::size_t>(capacity / sample_every_, 1)},
      records_{(ghosts_per_block + 1) * std::size_t{capacity} + 1} {
  for (const Favour& favour : favours) rules_.push_back({ShadowCache{sample_capacity_, favour}});
  uses_until_choice_ = sample_capacity_ / choices_per_capacity + 1;
}

// ---- blocks --------------------------------------------------------------------------------------------------------------

void AdaptivePolicy::on_inserted(const BlockKey& key) {
  const Records::Index index = records_.find_or_add(key);
  if (!records_.enter(index)) return;
  Block& block = records_[index];
  // Computed, it comes before the use that brought it. From another tier, it comes after: then its return is known already.
  block.awaits_use = block.departure != 0 || block.last == 0;
  come_back(block);
  ++inserted_since_;
  measure_turnover();
}

void AdaptivePolicy::on_used(std::span<const BlockKey> keys, std::uint64_t stamp) {
  now_ = std::max(now_, stamp);
  for (const BlockKey& key : keys) {
    const Records::Index index = records_.find_or_add(key);
    Block& block = records_[index];
    const bool is_there = records_.resident(index);
    if (stamp > block.last) {
      if (is_there) {
        if (!block.awaits_use) block.standing = Standing::near;
      } else if (block.departure != 0) {
        come_back(block);
      } else if (block.last != 0) {
        block.standing = Standing::near;  // in the tier above
      }
      block.last = stamp;
      if (sampled(key)) use_in_shadows(key, stamp);
    }
    block.awaits_use = false;
    if (!is_there) remember_as_ghost(index);
  }
}

void AdaptivePolicy::come_back(Block& block) const {
  if (block.departure != 0) block.standing = standing_on_return(departures_ - block.departure, capacity_);
  block.departure = 0;
}

void AdaptivePolicy::on_removed(const BlockKey& key) {
  const Records::Index index = records_.find(key);
  if (!records_.leave(index)) return;
  records_[index].departure = ++departures_;
  remember_as_ghost(index);
}

void AdaptivePolicy::remember_as_ghost(Records::Index index) {
  records_.make_newest(index, 0);
  if (records_.ghosts() > ghosts_max_) records_.forget_oldest(0);
}

/// How many stamps go by while the tier takes in as many blocks as it holds.
void AdaptivePolicy::measure_turnover() {
  if (inserted_since_ * measurements_per_turnover < capacity_) return;
  const double turnovers = static_cast<double>(inserted_since_) / static_cast<double>(capacity_);
  const double measured = static_cast<double>(now_ - measured_at_) / turnovers;
  turnover_ = measured_at_ == 0 ? measured : 0.75 * turnover_ + 0.25 * measured;
  measured_at_ = now_;
  inserted_since_ = 0;
}

// ---- rules ---------------------------------------------------------------------------------------------------------------

void AdaptivePolicy::use_in_shadows(const BlockKey& key, std::uint64_t stamp) {
  std::size_t hit_by = 0;
  for (Rule& rule : rules_) {
    if (!rule.shadow.use(key, stamp, turnover_)) continue;
    rule.hits += 1;
    ++hit_by;
  }
  uses_ += 1;
  lately_ += 1;
  if (hit_by != 0 && hit_by != rule_count) disputed_ += 1;
  if (--uses_until_choice_ == 0) choose_rule();
}

void AdaptivePolicy::choose_rule() {
  uses_until_choice_ = sample_capacity_ / choices_per_capacity + 1;
  double most = 0;
  for (const Rule& rule : rules_) most = std::max(most, rule.hits);
  const auto keeps_up = [&](const Rule& rule, double lead) { return rule.hits + lead * uses_ >= most; };
  // Where it makes no difference, the most careful.
  const auto careful = std::ranges::find_if(rules_, [&](const Rule& rule) { return keeps_up(rule, lead_that_is_none); });
  if (disputed_ < dispute_that_is_none * lately_) {
    rule_ = 0;
  } else if (careful - rules_.begin() < static_cast<std::ptrdiff_t>(rule_) || !keeps_up(rules_[rule_], lead_to_switch)) {
    rule_ = static_cast<std::size_t>(careful - rules_.begin());
  }
  const double half_life = std::max(half_life_capacities * static_cast<double>(sample_capacity_), half_life_min);
  const double kept = std::exp2(-static_cast<double>(uses_until_choice_) / half_life);
  for (Rule& rule : rules_) rule.hits *= kept;
  uses_ *= kept;
  const double kept_lately = std::pow(kept, lately_per_half_life);
  disputed_ *= kept_lately;
  lately_ *= kept_lately;
}

// ---- leaves --------------------------------------------------------------------------------------------------------------

void AdaptivePolicy::on_evictable(BlockRef leaf, const BlockKey& key, std::uint64_t last_use) {
  const auto standing = static_cast<std::size_t>(records_[records_.find(key)].standing);
  for (std::size_t other = 0; other < standing_count; ++other) {
    if (other != standing) leaves_[other].erase(leaf.node.value());
  }
  leaves_[standing].set(leaf.node.value(), Age{last_use, leaf.depth, leaf.node.value()});
}

void AdaptivePolicy::on_unevictable(NodeId node) {
  for (IndexedHeap<Age>& leaves : leaves_) leaves.erase(node.value());
}

std::optional<NodeId> AdaptivePolicy::victim() const {
  std::optional<NodeId> oldest;
  double oldest_age = 0;
  for (std::size_t standing = 0; standing < standing_count; ++standing) {
    if (leaves_[standing].empty()) continue;
    const Age& top = leaves_[standing].top().priority;
    const double age = favours[rule_].age(static_cast<Standing>(standing), top.last_use, turnover_);
    if (oldest && age >= oldest_age) continue;
    oldest = NodeId{top.node};
    oldest_age = age;
  }
  return oldest;
}

std::size_t AdaptivePolicy::bytes_held() const {
  std::size_t bytes = records_.bytes_held();
  for (const Rule& rule : rules_) bytes += rule.shadow.bytes_held();
  for (const IndexedHeap<Age>& leaves : leaves_) bytes += leaves.bytes_held();
  return bytes;
}

std::size_t AdaptivePolicy::candidates() const {
  std::size_t all = 0;
  for (const IndexedHeap<Age>& leaves : leaves_) all += leaves.size();
  return all;
}

void AdaptivePolicy::check_invariants() const {
  for (const IndexedHeap<Age>& leaves : leaves_) leaves.check_invariants();
  for (const Rule& rule : rules_) rule.shadow.check_invariants();
  records_.check_invariants();
  TERRACE_CHECK(records_.ghosts() <= ghosts_max_);
  TERRACE_CHECK(candidates() <= records_.residents());
  TERRACE_CHECK(rule_ < rule_count);
}

}  // namespace terrace
