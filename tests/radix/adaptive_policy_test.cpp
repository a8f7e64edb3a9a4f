// The promises of the adaptive policy, on random workloads: it is never much worse than LRU, it is better where LRU is bad, and a
// hot set survives a scan beside it. (No recorded traces: a property of three recordings need not hold for a fourth.)

#include "radix/eviction/adaptive_policy.hpp"
#include "terrace/policies.hpp"
#include "tests/radix/cheap_keys.hpp"
#include "tests/radix/workloads.hpp"
#include "tests/seed.hpp"
#include "tools/plan/cache_simulator.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace terrace {
namespace {

using test::CheapKeys;
using test::Requests;
using test::Workload;
using test::WorkloadShape;
using tools::CacheSimulator;

/// Hit rate in per cent of the blocks.
double serve(CacheSimulator& cache, const Requests& requests) {
  CheapKeys keys;
  std::uint64_t hits = 0;
  std::uint64_t blocks = 0;
  for (const auto& request : requests) {
    hits += cache.serve(keys.of(request));
    blocks += request.size();
  }
  return 100.0 * static_cast<double>(hits) / static_cast<double>(blocks);
}

double hit_rate(const PolicyFactory& make, std::uint32_t capacity, const Requests& requests) {
  const auto policy = make(capacity);
  CacheSimulator cache{*policy, capacity};
  return serve(cache, requests);
}

/// The cache size that a workload was made for, and the sizes that it runs with: too small, just right, larger than the sample.
struct Sizes {
  std::uint32_t meant_for;
  std::uint32_t capacity;
};
constexpr Sizes all_sizes[]{{400, 400}, {400, 150}, {400, 800}, {3000, 3000}, {3000, 1000}, {10'000, 10'000}};

constexpr std::uint64_t seeds_each = 4;

class Adaptive : public testing::TestWithParam<Workload> {};

/// The mean over some seeds counts: where uses are random, chance decides about a few tenths of a point.
TEST_P(Adaptive, is_never_two_tenths_of_a_point_under_lru) {
  const std::uint64_t base = test::seed_from_env_or(1);
  for (const Sizes& sizes : all_sizes) {
    SCOPED_TRACE("TERRACE_SEED=" + std::to_string(base) + ", a cache of " + std::to_string(sizes.capacity));
    double more = 0;
    for (std::uint64_t seed = base; seed < base + seeds_each; ++seed) {
      const Requests requests = GetParam().make({sizes.meant_for, seed, sizes.meant_for * 30ULL + 100'000});
      more += hit_rate(adaptive_policy, sizes.capacity, requests) - hit_rate(lru_policy, sizes.capacity, requests);
    }
    EXPECT_GE(more / seeds_each, -0.2);
  }
}

INSTANTIATE_TEST_SUITE_P(Workloads, Adaptive, testing::ValuesIn(test::all_workloads()),
                         [](const auto& workload) { return workload.param.name; });

/// In a small cache, new blocks push out blocks that were reused.
TEST(AdaptivePolicyTest, hits_well_above_lru_where_shared_prompts_compete_with_what_comes_once) {
  const Requests prompts = test::zipf({1000, 1, 200'000});
  EXPECT_GT(hit_rate(adaptive_policy, 1000, prompts), hit_rate(lru_policy, 1000, prompts) + 8);
  const Requests beside_a_scan = test::hot_set_and_scan({1000, 1, 200'000});
  EXPECT_GT(hit_rate(adaptive_policy, 1000, beside_a_scan), 3 * hit_rate(lru_policy, 1000, beside_a_scan));
}

constexpr std::uint32_t scan_sizes[]{150, 1000, 10'000};

/// Serves the hot set with two requests of a scan after each of its requests. Returns the hit rate of the hot set.
double serve_beside_a_scan(CacheSimulator& cache, const Requests& hot, const Requests& scanned) {
  CheapKeys keys;
  std::uint64_t hits = 0;
  std::uint64_t blocks = 0;
  for (std::size_t i = 0; i < scanned.size(); ++i) {
    cache.serve(keys.of(scanned[i]));
    if (i % 2 == 0) continue;
    const auto& wanted = hot[i / 2 % hot.size()];
    hits += cache.serve(keys.of(wanted));
    blocks += wanted.size();
  }
  return 100.0 * static_cast<double>(hits) / static_cast<double>(blocks);
}

TEST(AdaptivePolicyTest, a_scan_beside_a_hot_set_costs_it_under_five_points_once_the_policy_has_seen_it) {
  for (const std::uint32_t capacity : scan_sizes) {
    SCOPED_TRACE(capacity);
    AdaptivePolicy policy{capacity};
    CacheSimulator cache{policy, capacity};
    const Requests hot = test::hot_set({capacity, 1, capacity * 10ULL + 10'000});
    serve(cache, hot);
    serve_beside_a_scan(cache, hot, test::scan({capacity, 2, capacity * 10ULL + 10'000}));
    EXPECT_GT(serve_beside_a_scan(cache, hot, test::scan({capacity, 3, capacity * 10ULL})), 95);
  }
}

/// The workload changes from turn to turn, so that what the policy has learned is often wrong.
void expect_no_loss_in_turns(
    const std::function<Requests(std::uint64_t turn, std::uint64_t seed, std::uint32_t capacity)>& make) {
  for (const std::uint32_t capacity : {400U, 3000U}) {
    double more = 0;
    for (std::uint64_t seed = 1; seed <= seeds_each; ++seed) {
      Requests all;
      for (std::uint64_t turn = 0; turn < 20; ++turn) {
        for (auto& request : make(turn, seed, capacity)) all.push_back(std::move(request));
      }
      more += hit_rate(adaptive_policy, capacity, all) - hit_rate(lru_policy, capacity, all);
    }
    EXPECT_GE(more / seeds_each, -0.2) << capacity;
  }
}

TEST(AdaptivePolicyTest, scans_after_a_hot_set_cost_no_more_than_two_tenths_of_a_point) {
  expect_no_loss_in_turns([](std::uint64_t turn, std::uint64_t seed, std::uint32_t capacity) {
    return turn % 2 == 0 ? test::hot_set({capacity, seed, capacity * 10ULL})
                         : test::scan({capacity, seed + turn, capacity * 2ULL});
  });
}

TEST(AdaptivePolicyTest, sets_that_flip_cost_no_more_than_two_tenths_of_a_point) {
  expect_no_loss_in_turns([](std::uint64_t turn, std::uint64_t seed, std::uint32_t capacity) {
    const std::uint32_t size = turn % 2 == 0 ? capacity : capacity * 3;
    return test::hot_set({size, seed + 100 * (turn % 4), capacity * 6ULL});
  });
}

/// All prompts leave the tree before they come again, and nothing is ranked yet.
TEST(AdaptivePolicyTest, counts_a_block_that_returns_soon_after_its_eviction_as_used_once) {
  constexpr std::uint32_t capacity = 400;
  AdaptivePolicy policy{capacity};
  CacheSimulator cache{policy, capacity};
  CheapKeys keys;
  const auto serve_prompts = [&](std::uint64_t first, std::uint64_t last) {
    std::uint32_t hits = 0;
    for (std::uint64_t prompt = first; prompt <= last; ++prompt) {
      std::vector<std::uint64_t> names(40);
      std::iota(names.begin(), names.end(), 100 * prompt);
      hits += cache.serve(keys.of(names));
    }
    return hits;
  };
  const auto share_used = [&](std::string_view uses) {
    double share = 0;
    for (const EvictionClass& each : policy.view().classes) share += each.uses == uses ? each.share : 0;
    return share;
  };
  serve_prompts(1, 20);
  EXPECT_NEAR(share_used("0"), 1, 1e-9);
  EXPECT_EQ(serve_prompts(1, 20), 0U);
  EXPECT_NEAR(share_used("1"), 1, 1e-9);
  serve_prompts(101, 190);  // as many blocks as are remembered, and some
  EXPECT_EQ(serve_prompts(1, 10), 0U);
  EXPECT_NEAR(share_used("0"), 1, 1e-9) << "it is long ago";
}

TEST(AdaptivePolicyTest, ends_in_the_same_state_from_the_same_requests) {
  const Requests requests = test::phases({500, 7, 100'000});
  EXPECT_EQ(hit_rate(adaptive_policy, 500, requests), hit_rate(adaptive_policy, 500, requests));
}

/// The newest blocks of a loop are those that have to wait longest.
TEST(AdaptivePolicyTest, keeps_what_fits_of_a_loop) {
  EXPECT_GT(hit_rate(adaptive_policy, 1000, test::loop({1000, 1, 200'000})), 55);
  EXPECT_GT(hit_rate(adaptive_policy, 300, test::loop({1000, 1, 200'000})), 15);  // by the oldest blocks alone: 0
}

}  // namespace
}  // namespace terrace
