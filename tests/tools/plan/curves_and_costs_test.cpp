// The inputs of a plan: the curves of cache sizes, the best possible cache, and the costs of tiers.

#include "terrace/policies.hpp"
#include "tests/seed.hpp"
#include "tests/tools/plan/logs.hpp"
#include "tools/plan/cache_simulator.hpp"
#include "tools/plan/hit_counts.hpp"
#include "tools/plan/request_log.hpp"
#include "tools/plan/tier_costs.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace terrace::tools {
namespace {

using test::log_of;
using test::Prompt;
using test::Prompts;

Prompt prefix_of(const Prompt& prompt, std::size_t length) {
  return {prompt.begin(), prompt.begin() + static_cast<std::ptrdiff_t>(length)};
}
bool begins_with(const Prompt& prompt, const Prompt& prefix) {
  return prompt.size() >= prefix.size() && std::equal(prefix.begin(), prefix.end(), prompt.begin());
}

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
  /// The order of the map puts what follows a block directly behind it.
  bool is_leaf(std::map<Prompt, std::uint64_t>::const_iterator block) const {
    const auto next = std::next(block);
    return next == last_use_.end() || !begins_with(next->first, block->first);
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

TEST(HitCountsOfLru, equals_a_plain_simulation_of_every_size) {
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
      HitCounts counts{log, test::always};
      for (std::size_t capacity = 1; capacity <= log.different_blocks() + 2; capacity += 1 + capacity / 12) {
        PlainLru plain{capacity};
        std::size_t hits = 0;
        for (const Prompt& prompt : prompts) hits += plain.serve(prompt);
        ASSERT_EQ(counts.hits(PlanPolicy::lru, capacity), hits) << "capacity " << capacity << ", " << shape.longest << " blocks";
      }
    }
  }
}

TEST(HitCountsOfLru, begins_at_nothing_and_ends_at_all_blocks_that_were_there_before) {
  const RequestLog log = log_of({{1, 2, 3}, {4, 5}, {1, 2, 6}, {1, 2, 3}});
  HitCounts counts{log, test::always};
  EXPECT_EQ(counts.hits(PlanPolicy::lru, 0), 0U);
  EXPECT_EQ(counts.hits(PlanPolicy::lru, log.different_blocks()), 5U);
  EXPECT_EQ(counts.hits(PlanPolicy::lru, 1'000'000), 5U);
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

TEST(HitCountsOfOpt, hits_as_much_as_the_best_of_all_choices) {
  const std::uint64_t seed = test::seed_from_env_or(1);
  SCOPED_TRACE("TERRACE_SEED=" + std::to_string(seed));
  for (std::uint64_t run = 0; run < 60; ++run) {
    const Prompts prompts = test::random_prompts(seed + run, 9, 1 + run % 4, run % 4 == 0 ? 6 : 2);
    const RequestLog log = log_of(prompts);
    HitCounts counts{log, test::always};
    for (std::size_t capacity = 1; capacity <= 5; ++capacity) {
      ASSERT_EQ(counts.hits(PlanPolicy::opt, capacity), (EveryChoice{prompts, capacity}.best()))
          << "run " << run << ", capacity " << capacity;
    }
  }
}

TEST(HitCountsOfOpt, never_hits_less_than_lru_or_a_smaller_one) {
  const std::uint64_t seed = test::seed_from_env_or(1);
  SCOPED_TRACE("TERRACE_SEED=" + std::to_string(seed));
  const RequestLog log = log_of(test::random_prompts(seed, 2000, 9, 2));
  HitCounts counts{log, test::always};
  std::uint64_t before = 0;
  for (std::uint64_t capacity = 1; capacity <= log.different_blocks(); capacity += 7) {
    const std::uint64_t hits = counts.hits(PlanPolicy::opt, capacity);
    EXPECT_GE(hits, counts.hits(PlanPolicy::lru, capacity));
    EXPECT_GE(hits, before);
    before = hits;
  }
  EXPECT_EQ(counts.hits(PlanPolicy::opt, log.different_blocks()), log.blocks() - log.different_blocks());
}

TEST(HitCountsOfOpt, keeps_the_block_that_comes_back_first) {
  // One of 1 and 2 has to leave for 3. LRU evicts 1, which comes back first.
  const RequestLog log = log_of({{1}, {2}, {3}, {1}, {2}});
  HitCounts counts{log, test::always};
  EXPECT_EQ(counts.hits(PlanPolicy::opt, 2), 1U);
  EXPECT_EQ(counts.hits(PlanPolicy::lru, 2), 0U);
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

// ---- small cases that are computed by hand. Each block has 10 tokens and 100 bytes. A block takes 1 s to compute, 0.1 s over
// the link, and 1 s from the disk.

constexpr std::uint64_t half_a_day_ms = 43'200'000;

PlanMachine machine() {
  PlanMachine machine;
  machine.block_tokens = test::log_block_tokens;
  machine.block_bytes = Bytes{100};
  machine.link = per_second(Bytes{1000});
  machine.disk = per_second(Bytes{100});
  machine.prefill_speed = 10;
  machine.drive_writes_per_day = 1;
  return machine;
}

/// Two prompts in turn, three requests in half a day. Each prompt has two full blocks, and those of the first have five tokens
/// more: 70 tokens in all. A cache of four blocks hits two of the six blocks, one of three blocks hits one, and smaller ones
/// nothing.
RequestLog in_turn() {
  RequestLog log{root_key({}), test::log_block_tokens};
  const auto add = [&](double timestamp_ms, std::uint32_t tokens, std::vector<std::uint64_t> ids) {
    log.add(
        {.timestamp_ms = timestamp_ms, .input_tokens = tokens, .output_tokens = 1, .hash_ids = std::move(ids), .output_ids = {}});
  };
  add(1000, 25, {1, 2});
  add(2000, 20, {3, 4});
  add(1000 + half_a_day_ms, 25, {1, 2});
  return log;
}

class TierCostsOfTurns : public testing::Test {
 protected:
  TierCosts of(const TierSizes& sizes) {
    HitCounts counts{log_, test::always};
    return tier_costs(log_, counts, PlanPolicy::lru, sizes, machine());
  }

  RequestLog log_ = in_turn();
};

TEST_F(TierCostsOfTurns, on_a_device_alone) {
  const TierCosts small = of({.device = 2});
  EXPECT_EQ(small.hits(), 0U);
  EXPECT_EQ(small.misses, 6U);
  EXPECT_EQ(small.swap_out + small.swap_in + small.storage_reads + small.storage_writes, 0U);
  EXPECT_DOUBLE_EQ(small.prefill_seconds, 7);
  EXPECT_DOUBLE_EQ(small.saved_seconds, 0);
  EXPECT_DOUBLE_EQ(small.first_token_seconds, 7.0 / 3);
  EXPECT_FALSE(small.drive_writes_per_day.has_value());
  const TierCosts large = of({.device = 4});
  EXPECT_EQ(large.device_hits, 2U);
  EXPECT_DOUBLE_EQ(large.prefill_seconds, 5);
  EXPECT_DOUBLE_EQ(large.saved_seconds, 2);
  EXPECT_DOUBLE_EQ(large.first_token_seconds, 5.0 / 3);
}

TEST_F(TierCostsOfTurns, with_an_exclusive_host) {
  // The blocks of each of the last two requests replace those of the request before, which go down. Those of the last come up.
  const TierCosts costs = of({.device = 2, .host = 2, .inclusion = InclusionPolicy::exclusive});
  EXPECT_EQ(costs.device_hits, 0U);
  EXPECT_EQ(costs.host_hits, 2U);
  EXPECT_EQ(costs.misses, 4U);
  EXPECT_EQ(costs.swap_out, 4U);
  EXPECT_EQ(costs.swap_in, 2U);
  EXPECT_DOUBLE_EQ(costs.first_token_seconds, (5 + 0.2) / 3);
}

TEST_F(TierCostsOfTurns, with_an_inclusive_host) {
  EXPECT_EQ(of({.device = 2, .host = 2, .inclusion = InclusionPolicy::inclusive}).hits(), 0U);
  const TierCosts costs = of({.device = 2, .host = 4, .inclusion = InclusionPolicy::inclusive});
  EXPECT_EQ(costs.host_hits, 2U);
  EXPECT_EQ(costs.swap_out, 4U);
  EXPECT_EQ(costs.swap_in, 2U);
}

TEST(TierCosts, with_a_non_inclusive_host) {
  // Two prompts of two blocks each, in turn, ten requests. Of 20 blocks, a cache of four blocks hits 16, one of three 8, and one
  // of two nothing.
  const RequestLog log = log_of({{1, 2}, {3, 4}, {1, 2}, {3, 4}, {1, 2}, {3, 4}, {1, 2}, {3, 4}, {1, 2}, {3, 4}});
  HitCounts counts{log, test::always};
  const TierCosts costs =
      tier_costs(log, counts, PlanPolicy::lru, {.device = 2, .host = 2, .inclusion = InclusionPolicy::non_inclusive}, machine());
  // If all four blocks of both tiers were different, 16 of the 20 blocks that the device gets came from the host, and with them
  // 1.6 of the two blocks on the device. If two blocks were in both tiers, none. The line between meets at 0.8 blocks.
  EXPECT_EQ(costs.device_hits, 0U);
  EXPECT_EQ(costs.host_hits, 8U);
  EXPECT_EQ(costs.swap_in, 8U);
  // 18 blocks leave the device, and 12 of 20 were computed: 10.8.
  EXPECT_EQ(costs.swap_out, 11U);
}

TEST_F(TierCostsOfTurns, with_write_through) {
  const TierCosts costs = of({.device = 2, .storage = 4});
  EXPECT_EQ(costs.storage_hits, 2U);
  EXPECT_EQ(costs.storage_writes, 4U);
  EXPECT_EQ(costs.storage_reads, 2U);
  EXPECT_EQ(costs.swap_out, 4U);
  EXPECT_EQ(costs.swap_in, 2U);
  EXPECT_DOUBLE_EQ(costs.first_token_seconds, (5 + 0.2 + 2) / 3);
  // The four blocks of storage are written once in half a day: twice the endurance of five years.
  EXPECT_DOUBLE_EQ(costs.drive_writes_per_day.value(), 2);
  EXPECT_DOUBLE_EQ(costs.drive_years.value(), 2.5);
  // With a host, the copies to storage come beside those to the host.
  EXPECT_EQ(of({.device = 2, .host = 4, .storage = 4, .inclusion = InclusionPolicy::inclusive}).swap_out, 8U);
}

TEST_F(TierCostsOfTurns, with_write_back) {
  const TierCosts costs = of({.device = 2, .storage = 4, .write_policy = WritePolicy::write_back});
  EXPECT_EQ(costs.storage_hits, 2U);
  // Four blocks leave the device, and four of six were computed: 2.67.
  EXPECT_EQ(costs.storage_writes, 3U);
  EXPECT_EQ(costs.swap_out, 3U);
  // Blocks that fit into the tiers above are never written.
  const TierCosts nothing = of({.device = 2, .host = 4, .storage = 4, .write_policy = WritePolicy::write_back});
  EXPECT_EQ(nothing.storage_writes, 0U);
  EXPECT_DOUBLE_EQ(nothing.drive_writes_per_day.value(), 0);
  EXPECT_FALSE(nothing.drive_years.has_value());
}

TEST_F(TierCostsOfTurns, of_storage_that_is_smaller_than_the_host_are_those_of_the_host) {
  const TierCosts costs = of({.device = 2, .host = 2, .storage = 1, .inclusion = InclusionPolicy::exclusive});
  EXPECT_EQ(costs.host_hits, 2U);
  EXPECT_EQ(costs.storage_hits, 0U);
}

TEST(TierCosts, have_no_wear_if_the_workload_takes_no_time) {
  const RequestLog log = log_of({{1, 2}});
  HitCounts counts{log, test::always};
  const TierCosts costs = tier_costs(log, counts, PlanPolicy::lru, {.device = 1, .storage = 4}, machine());
  EXPECT_EQ(costs.storage_writes, 2U);
  EXPECT_FALSE(costs.drive_writes_per_day.has_value());
  EXPECT_FALSE(costs.drive_years.has_value());
}

TEST(TierCosts, of_opt_are_the_bound_for_all_ways_of_inclusion) {
  const RequestLog log = log_of(test::random_prompts(1, 1000, 6, 3));
  HitCounts counts{log, test::always};
  const auto hits = [&](InclusionPolicy inclusion) {
    return tier_costs(log, counts, PlanPolicy::opt, {.device = 10, .host = 30, .inclusion = inclusion}, machine()).hits();
  };
  EXPECT_EQ(hits(InclusionPolicy::non_inclusive), hits(InclusionPolicy::exclusive));
  EXPECT_EQ(hits(InclusionPolicy::lazy_exclusive), hits(InclusionPolicy::exclusive));
  EXPECT_LT(hits(InclusionPolicy::inclusive), hits(InclusionPolicy::exclusive));
}

}  // namespace
}  // namespace terrace::tools
