#include "terrace/policies.hpp"
#include "tests/seed.hpp"
#include "tests/tools/plan/logs.hpp"
#include "tools/plan/cache_simulator.hpp"
#include "tools/plan/hit_counts.hpp"
#include "tools/plan/lru_curve.hpp"
#include "tools/plan/opt_cache.hpp"
#include "tools/plan/request_log.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>

namespace terrace::tools {
namespace {

using test::log_of;
using test::Prompt;
using test::Prompts;

/// A cache with the rules of a reference run, written down as they are stated: no tree and no stack. A block is named by the
/// prefix that it ends.
class PlainLru {
 public:
  explicit PlainLru(std::size_t capacity) : capacity_{capacity} {}

  std::size_t serve(Prompt prompt) {
    prompt.resize(std::min(prompt.size(), capacity_));
    ++now_;
    std::size_t hits = 0;
    while (hits < prompt.size() && last_use_.contains(prefix_of(prompt, hits + 1))) ++hits;
    for (std::size_t n = 1; n <= hits; ++n) last_use_[prefix_of(prompt, n)] = now_;
    while (last_use_.size() + prompt.size() - hits > capacity_) evict();
    for (std::size_t n = hits + 1; n <= prompt.size(); ++n) last_use_[prefix_of(prompt, n)] = now_;
    return hits;
  }

 private:
  static Prompt prefix_of(const Prompt& prompt, std::size_t length) {
    return {prompt.begin(), prompt.begin() + static_cast<std::ptrdiff_t>(length)};
  }
  /// The order of the map puts what follows a block directly behind it.
  bool is_leaf(std::map<Prompt, std::uint64_t>::const_iterator block) const {
    const auto next = std::next(block);
    return next == last_use_.end() || next->first.size() <= block->first.size() ||
           !std::equal(block->first.begin(), block->first.end(), next->first.begin());
  }
  void evict() {
    auto victim = last_use_.end();
    for (auto block = last_use_.begin(); block != last_use_.end(); ++block) {
      if (block->second == now_ || !is_leaf(block)) continue;
      const bool is_first = victim == last_use_.end();
      if (is_first || block->second < victim->second) victim = block;
    }
    ASSERT_NE(victim, last_use_.end());
    last_use_.erase(victim);
  }

  const std::size_t capacity_;
  std::map<Prompt, std::uint64_t> last_use_;
  std::uint64_t now_ = 0;
};

TEST(LruCurve, equals_a_plain_simulation_of_every_size) {
  const std::uint64_t seed = test::seed_from_env_or(1);
  SCOPED_TRACE("TERRACE_SEED=" + std::to_string(seed));
  struct Shape {
    std::size_t longest;
    std::uint64_t ids;
  };
  for (const Shape shape : {Shape{3, 4}, Shape{8, 2}, Shape{20, 2}, Shape{40, 1}, Shape{1, 30}}) {
    for (std::uint64_t run = 0; run < 4; ++run) {
      const Prompts prompts = test::random_prompts(seed + run, 120, shape.longest, shape.ids);
      const RequestLog log = log_of(prompts);
      const LruCurve curve{log, test::always};
      for (std::size_t capacity = 1; capacity <= log.different_blocks() + 2; capacity += 1 + capacity / 12) {
        PlainLru plain{capacity};
        std::size_t hits = 0;
        for (const Prompt& prompt : prompts) hits += plain.serve(prompt);
        ASSERT_EQ(curve.hits(capacity), hits) << "capacity " << capacity << ", " << shape.longest << " blocks";
      }
    }
  }
}

TEST(LruCurve, begins_at_nothing_and_ends_at_all_blocks_that_were_there_before) {
  const RequestLog log = log_of({{1, 2, 3}, {4, 5}, {1, 2, 6}, {1, 2, 3}});
  const LruCurve curve{log, test::always};
  EXPECT_EQ(curve.hits(0), 0U);
  EXPECT_EQ(curve.hits(log.different_blocks()), 5U);
  EXPECT_EQ(curve.hits(1'000'000), 5U);
}

/// The most hits of any cache that evicts only leaves, by trying every choice. A block is named by the prefix that it ends.
class EveryChoice {
 public:
  EveryChoice(Prompts prompts, std::size_t capacity) : prompts_{std::move(prompts)} {
    for (Prompt& prompt : prompts_) prompt.resize(std::min(prompt.size(), capacity));
    capacity_ = capacity;
  }

  std::size_t best(std::size_t request = 0, const std::set<Prompt>& cached = {}) {
    if (request == prompts_.size()) return 0;
    const auto known = best_.find({request, cached});
    if (known != best_.end()) return known->second;
    const Prompt& prompt = prompts_[request];
    std::size_t hits = 0;
    while (hits < prompt.size() && cached.contains(prefix_of(prompt, hits + 1))) ++hits;
    const std::size_t result = hits + best_after_room(request, cached, prompt.size() - hits);
    best_[{request, cached}] = result;
    return result;
  }

 private:
  static Prompt prefix_of(const Prompt& prompt, std::size_t length) {
    return {prompt.begin(), prompt.begin() + static_cast<std::ptrdiff_t>(length)};
  }
  static bool begins_with(const Prompt& prompt, const Prompt& prefix) {
    return prompt.size() >= prefix.size() && std::equal(prefix.begin(), prefix.end(), prompt.begin());
  }

  std::size_t best_after_room(std::size_t request, const std::set<Prompt>& cached, std::size_t missing) {
    const Prompt& prompt = prompts_[request];
    if (cached.size() + missing <= capacity_) {
      std::set<Prompt> after = cached;
      for (std::size_t n = 1; n <= prompt.size(); ++n) after.insert(prefix_of(prompt, n));
      return best(request + 1, after);
    }
    std::size_t most = 0;
    for (const Prompt& block : cached) {
      const bool is_inner = std::ranges::any_of(
          cached, [&](const Prompt& other) { return other.size() > block.size() && begins_with(other, block); });
      if (is_inner || begins_with(prompt, block)) continue;
      std::set<Prompt> without = cached;
      without.erase(block);
      most = std::max(most, best_after_room(request, without, missing));
    }
    return most;
  }

  Prompts prompts_;
  std::size_t capacity_;
  std::map<std::pair<std::size_t, std::set<Prompt>>, std::size_t> best_;
};

std::uint64_t opt_of(const RequestLog& log, std::uint64_t capacity) {
  return opt_hits(log, NextUses{log, test::always}, capacity, test::always);
}

TEST(OptCache, hits_as_much_as_the_best_of_all_choices) {
  const std::uint64_t seed = test::seed_from_env_or(1);
  SCOPED_TRACE("TERRACE_SEED=" + std::to_string(seed));
  for (std::uint64_t run = 0; run < 60; ++run) {
    const Prompts prompts = test::random_prompts(seed + run, 9, 1 + run % 4, run % 4 == 0 ? 6 : 2);
    const RequestLog log = log_of(prompts);
    for (std::size_t capacity = 1; capacity <= 5; ++capacity) {
      ASSERT_EQ(opt_of(log, capacity), (EveryChoice{prompts, capacity}.best())) << "run " << run << ", capacity " << capacity;
    }
  }
}

TEST(OptCache, never_hits_less_than_lru_or_a_smaller_one) {
  const std::uint64_t seed = test::seed_from_env_or(1);
  SCOPED_TRACE("TERRACE_SEED=" + std::to_string(seed));
  const RequestLog log = log_of(test::random_prompts(seed, 2000, 9, 2));
  const LruCurve lru{log, test::always};
  std::uint64_t before = 0;
  for (std::uint64_t capacity = 1; capacity <= log.different_blocks(); capacity += 7) {
    const std::uint64_t hits = opt_of(log, capacity);
    EXPECT_GE(hits, lru.hits(capacity));
    EXPECT_GE(hits, before);
    before = hits;
  }
  EXPECT_EQ(opt_of(log, log.different_blocks()), log.blocks() - log.different_blocks());
}

TEST(OptCache, keeps_the_block_that_comes_back_first) {
  // One of 1 and 2 has to leave for 3. LRU evicts 1, which comes back first.
  const RequestLog log = log_of({{1}, {2}, {3}, {1}, {2}});
  EXPECT_EQ(opt_of(log, 2), 1U);
  EXPECT_EQ((LruCurve{log, test::always}.hits(2)), 0U);
}

/// LRU's own code in the prefix tree, with which the cache works, is a third opinion beside the curve and the plain simulation.
TEST(HitCounts, of_lru_are_those_of_the_policy_in_a_prefix_tree) {
  const RequestLog log = test::log_of(test::random_prompts(5, 600, 9, 2));
  HitCounts counts{log, test::always};
  for (const std::uint32_t capacity : {3U, 10U, 40U, 100U, 200U}) {
    const auto policy = lru_policy(capacity);
    CacheSimulator cache{*policy, capacity};
    std::uint64_t hits = 0;
    std::vector<BlockNumber> prefix;
    for (const RequestLog::Request& request : log.requests()) {
      log.read(request, prefix);
      std::vector<BlockKey> keys;
      for (const BlockNumber block : prefix) keys.push_back(log.key(block));
      if (!keys.empty()) hits += cache.serve(keys);
    }
    EXPECT_EQ(counts.hits(PlanPolicy::lru, capacity), hits);
    EXPECT_EQ(counts.insertions(PlanPolicy::lru, capacity), log.blocks_within(capacity) - hits);
    EXPECT_EQ(counts.evictions(PlanPolicy::lru, capacity) + cache.tree().resident(Tier::device),
              counts.insertions(PlanPolicy::lru, capacity));
  }
}

TEST(HitCounts, of_a_cache_for_all_blocks_are_those_of_any_larger_one) {
  const RequestLog log = test::log_of({{1, 2}, {1, 2}, {3}});
  HitCounts counts{log, test::always};
  for (const PlanPolicy policy : all_plan_policies) {
    EXPECT_EQ(counts.hits(policy, 0), 0U);
    EXPECT_EQ(counts.hits(policy, 3), 2U);
    EXPECT_EQ(counts.hits(policy, std::uint64_t{1} << 40U), 2U);
    EXPECT_EQ(counts.evictions(policy, std::uint64_t{1} << 40U), 0U);
  }
}

TEST(RequestLog, numbers_blocks_by_their_first_use_and_gives_back_each_prompt) {
  const RequestLog log = log_of({{7, 8, 9}, {7, 8}, {}, {7, 5}, {8}});
  EXPECT_EQ(log.different_blocks(), 5U);
  EXPECT_EQ(log.blocks(), 8U);
  EXPECT_EQ(log.longest(), 3U);
  EXPECT_EQ(log.seconds(), 4);
  std::vector<std::vector<BlockNumber>> prompts;
  for (const RequestLog::Request& request : log.requests()) log.read(request, prompts.emplace_back());
  // The id 8 at the beginning of a prompt is not the block 8 behind 7.
  EXPECT_EQ(prompts, (std::vector<std::vector<BlockNumber>>{{0, 1, 2}, {0, 1}, {}, {0, 3}, {4}}));
  EXPECT_NE(log.key(1), log.key(4));
}

TEST(RequestLog, counts_full_blocks_and_all_tokens) {
  RequestLog log{root_key({}), 10};
  log.add({.timestamp_ms = 5000, .input_tokens = 29, .output_tokens = 3, .hash_ids = {1, 2, 3}, .output_ids = {}});
  log.add({.timestamp_ms = 2000, .input_tokens = 9, .output_tokens = 3, .hash_ids = {4}, .output_ids = {}});
  EXPECT_EQ(log.blocks(), 2U);
  EXPECT_EQ(log.tokens(), 38U);
  EXPECT_EQ(log.seconds(), 3) << "timestamps in any order";
}

TEST(RequestLog, counts_the_blocks_that_a_small_cache_can_keep) {
  const RequestLog log = log_of({{1, 2, 3}, {1}, {4, 5}});
  EXPECT_EQ(log.blocks_within(0), 0U);
  EXPECT_EQ(log.blocks_within(2), 5U);
  EXPECT_EQ(log.blocks_within(3), 6U);
}

}  // namespace
}  // namespace terrace::tools
