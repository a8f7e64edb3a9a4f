// Small cases that are computed by hand. Each block has 10 tokens and 100 bytes. A block takes 1 s to compute, 0.1 s over the
// link, and 1 s from the disk.
#include "tools/plan/tier_costs.hpp"

#include "tests/tools/plan/logs.hpp"

#include <gtest/gtest.h>

namespace terrace::tools {
namespace {

using test::log_of;

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
