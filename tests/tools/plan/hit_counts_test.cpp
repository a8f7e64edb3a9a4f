#include "tools/plan/hit_counts.hpp"

#include "terrace/policies.hpp"
#include "tests/tools/plan/logs.hpp"
#include "tools/plan/cache_simulator.hpp"

#include <gtest/gtest.h>

namespace terrace::tools {
namespace {

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

}  // namespace
}  // namespace terrace::tools
