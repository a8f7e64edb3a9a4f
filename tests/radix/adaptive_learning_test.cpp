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
  enum class Learns : std::uint8_t { when_a_rule_is_needed, at_once };
  enum class Loads : std::uint8_t { at_once, block_by_block };

  PromptTier(std::uint32_t prompt_blocks, Learns learns, Loads loads)
      : prompt_blocks_{prompt_blocks}, learns_{learns}, loads_{loads} {}

  void serve(std::uint32_t prompt) {
    ++stamp_;
    const BlockRun all = run(prompt);
    const bool is_here = here_.contains(prompt);
    if (!is_here) make_room();
    policy_.on_used(all, stamp_, 0);
    if (learns_ == Learns::at_once) policy_.catch_up();
    if (!is_here) come(all);
    here_.insert(prompt);
    policy_.on_evictable({.block = {all.node, all.end() - 1}, .key = all.keys.back(), .last_use = stamp_});
  }

  [[nodiscard]] const std::vector<NodeId>& victims() const { return victims_; }
  [[nodiscard]] const std::set<std::size_t>& rules() const { return rules_; }

 private:
  static constexpr std::uint32_t capacity = 1000;

  void make_room() {
    while ((here_.size() + 1) * prompt_blocks_ > capacity) {
      rules_.insert(policy_.rule());
      const NodeId victim = policy_.victim().value();
      victims_.push_back(victim);
      policy_.on_unevictable(victim);
      policy_.on_removed(run(victim.value()));
      here_.erase(victim.value());
    }
  }
  void come(const BlockRun& all) {
    if (loads_ == Loads::at_once) return policy_.on_inserted(all);
    for (std::uint32_t i = 0; i < prompt_blocks_; ++i) policy_.on_inserted({all.node, i, all.keys.subspan(i, 1)});
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
  Loads loads_;
  AdaptivePolicy policy_{capacity};
  std::uint64_t stamp_ = 0;
  std::set<std::uint32_t> here_;
  std::map<std::uint32_t, std::vector<BlockKey>> keys_;
  std::vector<NodeId> victims_;
  std::set<std::size_t> rules_;
};

/// Prompts that come again, sooner or later, beside bursts of others that come once. So the residence time changes all the time,
/// and with it the rule that is best.
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
  std::set<std::size_t> rules;
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    PromptTier later{prompt_blocks, PromptTier::Learns::when_a_rule_is_needed, PromptTier::Loads::at_once};
    PromptTier at_once{prompt_blocks, PromptTier::Learns::at_once, PromptTier::Loads::at_once};
    for (PromptTier* const tier : {&later, &at_once}) serve_in_bursts(*tier, seed);
    EXPECT_EQ(later.victims(), at_once.victims()) << seed;
    EXPECT_EQ(later.rules(), at_once.rules()) << seed;
    rules.insert(later.rules().begin(), later.rules().end());
  }
  EXPECT_TRUE(rules.contains(2)) << "the rule that depends on the residence time";
}

TEST(AdaptiveLearning, loses_no_use_though_one_prompt_has_more_than_can_be_put_off) {
  PromptTier later{400, PromptTier::Learns::when_a_rule_is_needed, PromptTier::Loads::at_once};
  PromptTier at_once{400, PromptTier::Learns::at_once, PromptTier::Loads::at_once};
  for (PromptTier* const tier : {&later, &at_once}) {
    // Two prompts fit. One comes every third time, the others once.
    for (std::uint32_t i = 0; i < 900; ++i) tier->serve(i % 3 == 0 ? 0 : i);
  }
  EXPECT_EQ(later.victims(), at_once.victims());
  EXPECT_GT(later.rules().size(), 1U);
}

TEST(AdaptiveLearning, counts_a_loaded_run_as_if_its_blocks_came_one_by_one) {
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    PromptTier in_runs{prompt_blocks, PromptTier::Learns::when_a_rule_is_needed, PromptTier::Loads::at_once};
    PromptTier block_by_block{prompt_blocks, PromptTier::Learns::when_a_rule_is_needed, PromptTier::Loads::block_by_block};
    for (PromptTier* const tier : {&in_runs, &block_by_block}) serve_in_bursts(*tier, seed);
    EXPECT_EQ(in_runs.victims(), block_by_block.victims()) << seed;
  }
}

}  // namespace
}  // namespace terrace
