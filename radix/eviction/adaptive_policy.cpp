#include "radix/eviction/adaptive_policy.hpp"

#include "base/check.hpp"
#include "radix/eviction/landmarks.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

namespace terrace {
namespace {

constexpr std::size_t shadow_blocks = 512;
/// A lead of one rule counts half after this many uses of blocks, or after eight times as many as the tier has blocks.
constexpr double half_life_min = 16'384;
/// Blocks are remembered until eight times as many blocks as the tier has were used. An eighth of them are in the sample, but not
/// more than records_max.
constexpr std::size_t history = 8;
constexpr std::size_t records_max = 8192;

/// In requests.
constexpr std::uint64_t first_read = 200;
constexpr std::uint64_t read_interval = 100;
constexpr std::uint64_t valid_after = 50;
/// Each reading lets the counts fade by this factor.
constexpr float fading = 0.96F;

std::uint64_t share_of_keys(std::size_t part, std::size_t of) {
  return (static_cast<std::uint64_t>(part) << 32U) / std::max<std::size_t>(of, 1);
}

}  // namespace

AdaptivePolicy::AdaptivePolicy(std::uint32_t capacity)
    : capacity_{std::max<std::size_t>(capacity, 1)},
      shadow_capacity_{std::min(capacity_, shadow_blocks)},
      records_max_{std::min(capacity_ * history, records_max)},
      shadow_below_{share_of_keys(shadow_capacity_, capacity_)},
      reuse_below_{share_of_keys(records_max_, history * capacity_)},
      kinds_(kinds_kept),
      shadows_{shadow_capacity_, std::max(half_life_min, 8.0 * static_cast<double>(capacity_)) *
                                     static_cast<double>(shadow_capacity_) / static_cast<double>(capacity_)},
      intervals_{records_max_} {}

// ---- blocks --------------------------------------------------------------------------------------------------------------

void AdaptivePolicy::Depths::cut(std::uint32_t depth) {
  used = std::min(used, depth);
  once = std::min(once, depth);
  twice = std::min(twice, depth);
}

AdaptivePolicy::Depths& AdaptivePolicy::depths_of(NodeId node) {
  depths_.extend_to(std::size_t{node.value()} + 1);
  return depths_[node.value()];
}

std::size_t AdaptivePolicy::uses_of(NodeId node, std::uint32_t depth) const {
  if (node.value() >= depths_.size()) return 0;
  return depths_[node.value()].uses_at(depth);
}

std::uint32_t AdaptivePolicy::alike_from(NodeId node, std::uint32_t depth) const {
  switch (uses_of(node, depth)) {
    case 0: return node.value() < depths_.size() ? depths_[node.value()].once : 0;
    case 1: return depths_[node.value()].twice;
    default: return 0;
  }
}

void AdaptivePolicy::on_used(const BlockRun& blocks, std::uint64_t stamp, std::uint32_t known) {
  if (stamp > now_) begin_request(stamp);
  if (!expected_.empty()) end_expected(blocks.node, stamp);
  Depths& depths = depths_of(blocks.node);
  const std::uint32_t again = std::min(blocks.end(), depths.used);
  if (known < again) {
    if (const std::uint32_t twice = std::min(depths.once, again); twice > known) depths.twice = std::max(depths.twice, twice);
    depths.once = std::max(depths.once, again);
  }
  const std::uint32_t from = std::max(blocks.begin, std::min(known, depths.used));
  if (from >= blocks.end()) return;
  find_sampled(blocks, from);
  if (const std::uint64_t last = recall(blocks.end(), depths); last != 0) on_continued(stamp, last);
  depths.used = std::max(depths.used, blocks.end());
  for (const Sampled& block : sampled_) note({block.name, stamp, static_cast<std::uint8_t>(depths.uses_at(block.depth)), true});
}

/// Finds the blocks from depth `from` on that are in one of the samples.
void AdaptivePolicy::find_sampled(const BlockRun& blocks, std::uint32_t from) {
  sampled_.clear();
  const std::uint64_t below = std::max(shadow_below_, reuse_below_);
  Landmarks::for_each_sampled(blocks, from, below, [&](std::uint32_t depth, std::uint32_t stands_for) {
    sampled_.push_back({blocks.keys[depth - blocks.begin].prefix64() / stands_for, depth});
  });
}

/// Finds out which of the blocks that are new to the tree were there before: they have been used once already. Returns when the
/// deepest of them was last used, or 0 if there is none. A block that is not sampled is taken to be like the sampled one before
/// it. `end`: the depth after the last block.
std::uint64_t AdaptivePolicy::recall(std::uint32_t end, Depths& depths) const {
  if (sampled_.empty() || sampled_.back().depth < depths.used) return 0;
  learn();  // the sample knows which blocks have returned
  for (std::size_t i = sampled_.size(); i-- > 0 && sampled_[i].depth >= depths.used; end = sampled_[i].depth) {
    if (const std::optional<std::uint64_t> last = intervals_.last_use(sampled_[i].name)) {
      depths.once = std::max(depths.once, end);
      return *last;
    }
  }
  return 0;
}

void AdaptivePolicy::on_split(NodeId upper, NodeId lower, std::uint32_t depth) {
  const Depths whole = depths_of(upper);
  depths_of(lower) = whole;
  depths_of(upper).cut(depth);
  if (const Told* const told = expected(upper)) expected_.insert_or_assign(lower.value(), Told{told->use});
}

void AdaptivePolicy::on_gone(NodeId node, std::uint32_t depth) {
  if (node.value() < depths_.size()) depths_[node.value()].cut(depth);
  if (depth == 0) expected_.erase(node.value());
}

// ---- expected uses -------------------------------------------------------------------------------------------------------

AdaptivePolicy::Told* AdaptivePolicy::expected(NodeId node) const {
  if (expected_.empty()) return nullptr;
  const auto found = expected_.find(node.value());
  return found == expected_.end() ? nullptr : &found->second;
}

void AdaptivePolicy::on_expected(const BlockRun& blocks, const ExpectedUse& use) {
  expected_[blocks.node.value()].use = use;  // a pinned candidate keeps its place, and its leaf must stay known
}

/// A request has used blocks of the node.
void AdaptivePolicy::end_expected(NodeId node, std::uint64_t stamp) {
  const Told* const told = expected(node);
  if (told == nullptr) return;
  const ExpectedUse use = told->use;
  expected_.erase(node.value());
  if (use.at == ExpectedUse::never) ++expected_uses_.not_expected;
  else ++(stamp <= use.until ? expected_uses_.met : expected_uses_.late);
}

/// Leaves that were not used when it was expected are like others from now on.
void AdaptivePolicy::end_late() const {
  while (const std::optional<LeafAge> last = leaves_.oldest(expected_line)) {
    const LeafAge next = *leaves_.newest(expected_line, last->priority());
    const Told* const told = expected(next.node);
    // A pinned leaf may have been used, and told of again, since it came to this line (keeps_pinned): it waits for its unpin.
    const bool is_known = told != nullptr && told->leaf.node == next.node;
    if (!is_known || told->use.until >= now_) return;
    ++expected_uses_.late;
    const Told late = *told;
    expected_.erase(next.node.value());
    const std::size_t reuse_class = class_of(late.leaf);
    leaves_.set(reuse_class, late.tenant, late.leaf);
    changed_ |= Classes{1} << expected_line | Classes{1} << reuse_class;
  }
}

// ---- requests ------------------------------------------------------------------------------------------------------------

void AdaptivePolicy::begin_request(std::uint64_t stamp) {
  if (now_ == 0) read_at_ = stamp + first_read;  // there may have been uses before this policy was set
  for (std::uint64_t next = std::max(now_ + 1, stamp - std::min(stamp, kinds_kept - 1)); next <= stamp; ++next)
    kinds_[next % kinds_kept] = 0;
  now_ = stamp;
}

/// The first report of a request counts, because the deepest blocks are reported first.
void AdaptivePolicy::on_continued(std::uint64_t stamp, std::uint64_t last) {
  if (stamp > now_) begin_request(stamp);
  if (last >= stamp || kind_of(stamp) != ReuseClass::fresh) return;
  const double gap = std::log2(1.0 + static_cast<double>(stamp - last));
  tell(stamp, gap < gap_.value() ? ReuseClass::soon : ReuseClass::late);
  gap_.add(gap);
}

void AdaptivePolicy::on_ended(std::uint64_t stamp, std::uint64_t output_tokens) {
  const double length = std::log2(1.0 + static_cast<double>(output_tokens));
  tell(stamp, length < short_output_.value()  ? ReuseClass::short_output
              : length < long_output_.value() ? ReuseClass::medium_output
                                              : ReuseClass::long_output);
  short_output_.add(length);
  long_output_.add(length);
}

std::size_t AdaptivePolicy::kind_of(std::uint64_t stamp) const {
  return stamp + kinds_kept > now_ ? kinds_[stamp % kinds_kept] : std::uint8_t{ReuseClass::fresh};
}

void AdaptivePolicy::tell(std::uint64_t stamp, ReuseClass::Kind kind) {
  if (stamp + kinds_kept <= now_) return;
  kinds_[stamp % kinds_kept] = kind;
  note({.stamp = stamp, .uses_or_kind = kind, .is_use = false});
}

// ---- learning ------------------------------------------------------------------------------------------------------------

void AdaptivePolicy::note(const Noted& noted) {
  if (noted_.full()) learn_first();  // catch_up() is not called, or a step has very many uses
  noted_.push_back(noted);
}

void AdaptivePolicy::learn_first() const {
  const Noted noted = noted_.front();
  noted_.pop_front();
  if (noted.stamp > learned_) {
    learned_ = noted.stamp;
    make_valid(learned_);
    if (learned_ >= read_at_) {
      intervals_.read(seen_, fading);
      next_ranks_.begin(seen_);
      valid_at_ = learned_ + valid_after;
      read_at_ = learned_ + read_interval;
    }
  }
  if (valid_at_ != 0 && !next_ranks_.done()) next_ranks_.step(seen_);
  if (!noted.is_use) {
    shadows_.tell(noted.stamp, intervals_.kind(noted.stamp), noted.uses_or_kind);
    return intervals_.tell(noted.stamp, noted.uses_or_kind);
  }
  const std::uint64_t place = noted.name >> 32U;
  if (place < reuse_below_) intervals_.use(noted.name, noted.stamp, noted.uses_or_kind);
  if (place < shadow_below_) {
    const std::size_t reuse_class = ReuseClass::of(noted.uses_or_kind, intervals_.kind(noted.stamp));
    shadows_.use(noted.name, noted.stamp, reuse_class, has_ranks_ ? &ranks_ : nullptr);
  }
}

void AdaptivePolicy::learn() const {
  while (!noted_.empty()) learn_first();
}

/// From this request on, the next ranks count, if they are due.
void AdaptivePolicy::make_valid(std::uint64_t stamp) const {
  if (valid_at_ == 0 || stamp < valid_at_) return;
  while (!next_ranks_.done()) next_ranks_.step(seen_);
  std::swap(ranks_, next_ranks_);
  has_ranks_ = true;
  valid_at_ = 0;
  ranked_at_ = 0;
}

bool AdaptivePolicy::follows_ranks() const {
  learn();
  make_valid(now_);
  return has_ranks_ && shadows_.ranks_lead();
}

// ---- leaves --------------------------------------------------------------------------------------------------------------

std::size_t AdaptivePolicy::class_of(const LeafAge& leaf) const {
  return ReuseClass::of(uses_of(leaf.node, leaf.depth), kind_of(leaf.last_use()));
}

void AdaptivePolicy::on_evictable(const Leaf& leaf) {
  const LeafAge age{leaf};
  Told* const told = expected(age.node);
  const std::size_t line = told == nullptr ? class_of(age) : expected_line;
  has_changed(leaves_.line_of(age.node));
  has_changed(line);
  if (told == nullptr) return leaves_.set(line, leaf.tenant, age);
  told->leaf = age;
  told->tenant = leaf.tenant;
  leaves_.set(line, leaf.tenant, age.ordered_by(LeafAge::use_max - std::min(told->use.at, LeafAge::use_max)));
}

void AdaptivePolicy::on_unevictable(NodeId node) {
  has_changed(leaves_.line_of(node));
  leaves_.erase(node);
}

/// By LRU, all leaves of which nothing is expected have the same rank. A leaf that will be used after n requests brings one hit
/// for n requests; one that never will be goes first.
float AdaptivePolicy::rank_of(std::size_t line, const LeafAge& leaf) const {
  if (line != expected_line) return by_rank_ ? ranks_.rank(line, now_ - std::min(now_, leaf.last_use())) : 0;
  const Told* const told = expected(leaf.node);
  // Without it, the leaf was used just now, and is pinned (keeps_pinned).
  if (told == nullptr || told->use.at == ExpectedUse::never) return -1;
  return 1 / static_cast<float>(std::max(told->use.at, now_ + 1) - now_);
}

void AdaptivePolicy::give_ranks(Candidate& candidate, std::size_t line) const {
  candidate.rank_of_oldest = rank_of(line, candidate.oldest);
  candidate.rank_of_newest = rank_of(line, candidate.newest);
}

/// The leaf of the lowest priority is evicted first. Of equal priorities: by LRU the oldest one, otherwise the one of the lowest
/// rank; the older one of two with equal rank.
const AdaptivePolicy::Candidate* AdaptivePolicy::first_of(const Candidates& candidates, Classes there) {
  const Candidate* first = nullptr;
  for (; there != 0; there &= there - 1) {
    const Candidate& next = candidates[static_cast<std::size_t>(std::countr_zero(there))];
    const bool goes_first = first == nullptr || next.first().priority() < first->first().priority() ||
                            (next.first().priority() == first->first().priority() &&
                             (next.rank() < first->rank() || (next.rank() == first->rank() && next.first() < first->first())));
    if (goes_first) first = &next;
  }
  return first;
}

/// Several victims may follow each other, with few changes between them. Only the lists that have changed are looked at again.
const AdaptivePolicy::Candidate* AdaptivePolicy::next_victim() const {
  const bool by_rank = follows_ranks();
  if (!expected_.empty()) end_late();
  Classes stale = changed_;
  for (; changed_ != 0; changed_ &= changed_ - 1) {
    const auto line = static_cast<std::size_t>(std::countr_zero(changed_));
    there_ &= ~(Classes{1} << line);
    const std::optional<LeafAge> oldest = leaves_.oldest(line);
    if (!oldest) continue;
    there_ |= Classes{1} << line;
    candidates_[line] = {*oldest, *leaves_.newest(line, oldest->priority())};
  }
  if (by_rank != by_rank_ || now_ != ranked_at_) stale = there_;
  by_rank_ = by_rank;
  ranked_at_ = now_;
  for (stale &= there_; stale != 0; stale &= stale - 1) {
    const auto line = static_cast<std::size_t>(std::countr_zero(stale));
    give_ranks(candidates_[line], line);
  }
  return first_of(candidates_, there_);
}

std::optional<NodeId> AdaptivePolicy::victim() const {
  const Candidate* const next = next_victim();
  return next == nullptr ? std::nullopt : std::optional{next->first().node};
}

bool AdaptivePolicy::admits(const Leaf& leaf) const {
  const Candidate* const next = next_victim();
  if (next == nullptr) return true;
  const LeafAge age{leaf};
  Candidate block{age, age};
  give_ranks(block, class_of(age));
  if (age.priority() != next->first().priority()) return age.priority() > next->first().priority();
  return block.rank() >= next->rank();
}

std::optional<NodeId> AdaptivePolicy::victim(TenantIndex tenant) const {
  by_rank_ = follows_ranks();
  if (!expected_.empty()) end_late();
  ranked_at_ = 0;
  Candidates candidates;
  Classes there = 0;
  for (std::size_t line = 0; line < lines; ++line) {
    const std::optional<LeafAge> oldest = leaves_.oldest(line, tenant);
    if (!oldest) continue;
    there |= Classes{1} << line;
    candidates[line] = {*oldest, *leaves_.newest(line, oldest->priority(), tenant)};
    give_ranks(candidates[line], line);
  }
  const Candidate* const first = first_of(candidates, there);
  return first == nullptr ? std::nullopt : std::optional{first->first().node};
}

/// The simulated cache whose rule is followed has the same shares of each class as the tier.
EvictionView AdaptivePolicy::view() const {
  EvictionView view{.by_rank = follows_ranks(), .expected = expected_uses_};
  view.expected.waiting = expected_.size();
  const auto classes = shadows_.by_class();
  std::uint64_t blocks = 0;
  for (const auto& of_class : classes) blocks += of_class.blocks;
  for (std::size_t reuse_class = 0; reuse_class < ReuseClass::count; ++reuse_class) {
    const auto& [held, hits] = classes[reuse_class];
    if (held == 0 && hits == 0) continue;
    view.classes.push_back({.uses = ReuseClass::use_names[reuse_class / ReuseClass::kinds],
                            .kind = ReuseClass::kind_names[reuse_class % ReuseClass::kinds],
                            .share = blocks == 0 ? 0 : static_cast<double>(held) / static_cast<double>(blocks),
                            .hits = hits * capacity_ / shadow_capacity_});
  }
  return view;
}

std::size_t AdaptivePolicy::bytes_held() const {
  return shadows_.bytes_held() + intervals_.bytes_held() + leaves_.bytes_held() + depths_.bytes_held() + kinds_.capacity() +
         noted_.capacity() * sizeof(Noted) + expected_.bucket_count() * (sizeof(decltype(expected_)::value_type) + 1);
}

void AdaptivePolicy::check_invariants() const {
  leaves_.check_invariants();
  shadows_.check_invariants();
  intervals_.check_invariants();
  for (std::size_t node = 0; node < depths_.size(); ++node) TERRACE_CHECK(depths_[node].twice <= depths_[node].once);
}

}  // namespace terrace
