// When AdaptivePolicy learns, and from what: neither may change a decision.

#include "base/random.hpp"
#include "radix/eviction/adaptive_policy.hpp"
#include "tests/radix/cheap_keys.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <vector>

namespace terrace {
namespace {

/// A tier of prompts that come and go as a whole, above another tier that has all of them. It tells the policy all that a tree
/// would.
class PromptTier {
 public:
  enum class Learns : std::uint8_t { when_it_must, at_once };

  PromptTier(std::uint32_t prompt_blocks, Learns learns) : prompt_blocks_{prompt_blocks}, learns_{learns} {}

  void serve(std::uint32_t prompt) {
    ++stamp_;
    const BlockRun all = run(prompt);
    const bool is_here = here_.contains(prompt);
    if (!is_here) make_room();
    policy_.on_used(all, stamp_, 0);
    if (learns_ == Learns::at_once) policy_.catch_up();
    if (!is_here) policy_.on_inserted(all);
    if (stamp_ % 3 != 0) policy_.on_ended(stamp_, 10 + 100 * (prompt % 5));
    here_.insert(prompt);
    policy_.on_evictable({.block = {all.node, all.end() - 1}, .key = all.keys.back(), .last_use = stamp_});
  }

  /// Whether the policy would take a prompt that was used this long ago, and whether the prompt would be the next victim then.
  struct Offered {
    bool admitted = false;
    bool goes_first = false;
  };
  Offered offer(std::uint32_t prompt, std::uint64_t age, Priority priority = usual_priority) {
    const BlockRun all = run(prompt);
    const EvictionPolicy::Leaf leaf{.block = {all.node, all.end() - 1},
                                    .key = all.keys.back(),
                                    .last_use = stamp_ - std::min(stamp_, age),
                                    .priority = priority};
    Offered offered{.admitted = policy_.admits(leaf)};
    policy_.on_evictable(leaf);
    offered.goes_first = policy_.victim() == all.node;
    policy_.on_unevictable(all.node);
    return offered;
  }

  [[nodiscard]] const std::vector<NodeId>& victims() const { return victims_; }
  [[nodiscard]] EvictionView view() const { return policy_.view(); }
  [[nodiscard]] bool follows_ranks() const { return policy_.follows_ranks(); }
  /// Whether victims were chosen by rank, by LRU, or by both in turn.
  [[nodiscard]] const std::set<bool>& by_rank() const { return by_rank_; }

 private:
  static constexpr std::uint32_t capacity = 1000;

  void make_room() {
    while ((here_.size() + 1) * prompt_blocks_ > capacity) {
      by_rank_.insert(policy_.follows_ranks());
      const NodeId victim = policy_.victim().value();
      victims_.push_back(victim);
      policy_.on_unevictable(victim);
      policy_.on_removed(run(victim.value()));
      here_.erase(victim.value());
    }
  }
  [[nodiscard]] BlockRun run(std::uint32_t prompt) {
    std::vector<BlockKey>& keys = keys_[prompt];
    if (keys.empty()) {
      CheapKeys names;
      const auto made = names.of(std::vector<std::uint64_t>(prompt_blocks_, prompt));
      keys.assign(made.begin(), made.end());
    }
    return {NodeId{prompt}, 0, keys};
  }

  using CheapKeys = test::CheapKeys;

  std::uint32_t prompt_blocks_;
  Learns learns_;
  AdaptivePolicy policy_{capacity};
  std::uint64_t stamp_ = 0;
  std::set<std::uint32_t> here_;
  std::map<std::uint32_t, std::vector<BlockKey>> keys_;
  std::vector<NodeId> victims_;
  std::set<bool> by_rank_;
};

/// Prompts that come again, sooner or later, beside bursts of others that come once. So what is best changes all the time.
void serve_in_bursts(PromptTier& tier, std::uint64_t seed) {
  Random random{seed};
  std::uint32_t once = 100'000;
  std::vector<std::uint32_t> shared;
  for (std::uint32_t i = 0; i < 2000; ++i) {
    const std::uint64_t burst = random.below(12) == 0 ? random.between(5, 30) : random.below(3);
    for (std::uint64_t n = 0; n < burst; ++n) tier.serve(once++);
    if (shared.empty() || random.chance(0.3)) shared.push_back(i);
    const std::uint64_t back = random.below(random.chance(0.5) ? 6 : 40);
    tier.serve(shared[shared.size() - 1 - std::min<std::uint64_t>(shared.size() - 1, back)]);
  }
}

constexpr std::uint64_t seeds = 8;
constexpr std::uint32_t prompt_blocks = 40;

TEST(AdaptiveLearning, decides_the_same_whether_it_learns_at_once_or_later) {
  std::set<bool> by_rank;
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    PromptTier later{prompt_blocks, PromptTier::Learns::when_it_must};
    PromptTier at_once{prompt_blocks, PromptTier::Learns::at_once};
    for (PromptTier* const tier : {&later, &at_once}) serve_in_bursts(*tier, seed);
    EXPECT_EQ(later.victims(), at_once.victims()) << seed;
    EXPECT_EQ(later.by_rank(), at_once.by_rank()) << seed;
    by_rank.insert(later.by_rank().begin(), later.by_rank().end());
  }
  EXPECT_EQ(by_rank.size(), 2U);
}

TEST(AdaptiveLearning, loses_no_use_though_one_prompt_has_more_than_can_be_put_off) {
  PromptTier later{400, PromptTier::Learns::when_it_must};
  PromptTier at_once{400, PromptTier::Learns::at_once};
  for (PromptTier* const tier : {&later, &at_once}) {
    // Two prompts fit. One comes every third time, the others once.
    for (std::uint32_t i = 0; i < 900; ++i) tier->serve(i % 3 == 0 ? 0 : i);
  }
  EXPECT_EQ(later.victims(), at_once.victims());
  EXPECT_GT(later.by_rank().size(), 1U);
}

/// A tier does without a block only if it would be its next victim. Of equal ranks it takes it, as LRU always does.
TEST(AdaptiveLearning, admits_what_would_not_be_the_next_victim) {
  PromptTier tier{prompt_blocks, PromptTier::Learns::at_once};
  EXPECT_TRUE(tier.offer(0, 0).admitted) << "an empty tier";
  Random random{7};
  std::map<bool, int> by_rank;
  std::uint32_t once = 100'000;
  for (std::uint32_t i = 0; i < 3000; ++i) {
    // Half of the prompts come again after some twenty requests, or not at all.
    tier.serve(random.chance(0.5) ? once++ : i - std::min<std::uint32_t>(i, static_cast<std::uint32_t>(random.below(20))));
    const auto [admitted, goes_first] = tier.offer(1'000'000 + i, random.below(200));
    ASSERT_TRUE(admitted || goes_first) << i;
    if (!tier.follows_ranks()) ASSERT_TRUE(admitted) << i;
    else ++by_rank[admitted];
    if (i < 100) continue;  // the tier is not full yet
    ASSERT_FALSE(tier.offer(1'000'000 + i, 0, usual_priority - 1).admitted) << i;
    ASSERT_TRUE(tier.offer(1'000'000 + i, 1000, usual_priority + 1).admitted) << i;
  }
  EXPECT_GT(by_rank[true], 30);
  EXPECT_GT(by_rank[false], 30);
}

/// One prompt comes every third time, and the others once. Two requests of three tell at their end how long their output is.
TEST(AdaptiveLearning, says_which_classes_the_tier_has_and_which_hit) {
  PromptTier tier{prompt_blocks, PromptTier::Learns::at_once};
  EXPECT_TRUE(tier.view().classes.empty());
  for (std::uint32_t i = 0; i < 3000; ++i) tier.serve(i % 3 == 0 ? 0 : i);
  const EvictionView view = tier.view();
  EXPECT_EQ(view.by_rank, tier.follows_ranks());
  double shares = 0;
  double never_used = 0;
  double told = 0;
  std::uint64_t hits = 0;
  std::uint64_t hits_of_the_one = 0;
  for (const EvictionClass& each : view.classes) {
    shares += each.share;
    hits += each.hits;
    if (each.uses == "0") never_used += each.share;
    if (each.kind.ends_with("output")) told += each.share;
    if (each.uses == "2+") hits_of_the_one += each.hits;
  }
  EXPECT_NEAR(shares, 1, 1e-9);
  EXPECT_GT(never_used, 0.9) << "25 prompts fit, of which one is used again";
  EXPECT_NEAR(told, 2.0 / 3, 0.15);
  EXPECT_NEAR(static_cast<double>(hits), 999.0 * prompt_blocks, 999.0 * prompt_blocks / 4) << "estimated from a sample";
  EXPECT_GT(hits_of_the_one, hits * 9 / 10);
}

}  // namespace
}  // namespace terrace
