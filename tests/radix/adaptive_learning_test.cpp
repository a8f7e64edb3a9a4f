// When AdaptivePolicy learns, and from what: neither may change a decision.

#include "base/random.hpp"
#include "radix/eviction/adaptive_policy.hpp"
#include "tests/radix/cheap_keys.hpp"

#include <gtest/gtest.h>

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
  enum class Learns : std::uint8_t { when_a_rule_is_needed, after_each_request };
  enum class Loads : std::uint8_t { at_once, block_by_block };

  PromptTier(std::uint32_t prompt_blocks, Learns learns, Loads loads)
      : prompt_blocks_{prompt_blocks}, learns_{learns}, loads_{loads} {}

  void serve(std::uint32_t prompt) {
    ++stamp_;
    const BlockRun all = run(prompt);
    const bool is_here = here_.contains(prompt);
    if (!is_here) make_room();
    policy_.on_used(all, stamp_, 0);
    if (!is_here) come(all);
    here_.insert(prompt);
    policy_.on_evictable({.block = {all.node, all.end() - 1}, .key = all.keys.back(), .last_use = stamp_});
    if (learns_ == Learns::after_each_request) policy_.catch_up();
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

/// Shared prompts beside such as come once, then only prompts that come again and again, and so on: different rules are best.
void serve_phases(PromptTier& tier, std::uint32_t prompts_that_fit) {
  Random random{11};
  std::uint32_t once = 100'000;
  for (std::uint32_t i = 0; i < 6000; ++i) {
    const bool mixed = i / 1500 % 2 == 0;
    const auto shared = static_cast<std::uint32_t>(random.below(mixed ? prompts_that_fit : prompts_that_fit * 2));
    tier.serve(mixed && random.chance(0.6) ? once++ : shared);
  }
}

TEST(AdaptiveLearning, decides_the_same_whether_it_learns_at_once_or_later) {
  // Prompts of 400 blocks have more sampled uses than can be put off.
  for (const std::uint32_t prompt_blocks : {20U, 400U}) {
    PromptTier later{prompt_blocks, PromptTier::Learns::when_a_rule_is_needed, PromptTier::Loads::at_once};
    PromptTier at_once{prompt_blocks, PromptTier::Learns::after_each_request, PromptTier::Loads::at_once};
    for (PromptTier* const tier : {&later, &at_once}) serve_phases(*tier, 1000 / prompt_blocks);
    EXPECT_EQ(later.victims(), at_once.victims());
    EXPECT_GT(later.victims().size(), 1000U);
    EXPECT_EQ(later.rules(), at_once.rules());
    if (prompt_blocks == 20) {
      EXPECT_GT(later.rules().size(), 1U);
    }
  }
}

TEST(AdaptiveLearning, counts_a_loaded_run_as_if_its_blocks_came_one_by_one) {
  PromptTier in_runs{70, PromptTier::Learns::when_a_rule_is_needed, PromptTier::Loads::at_once};
  PromptTier block_by_block{70, PromptTier::Learns::when_a_rule_is_needed, PromptTier::Loads::block_by_block};
  for (PromptTier* const tier : {&in_runs, &block_by_block}) serve_phases(*tier, 14);
  EXPECT_EQ(in_runs.victims(), block_by_block.victims());
  EXPECT_GT(in_runs.rules().size(), 1U);
}

}  // namespace
}  // namespace terrace
