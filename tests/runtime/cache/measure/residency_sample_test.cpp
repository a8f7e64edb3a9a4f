// How long sampled blocks stay cached. Durations are numbers of requests.

#include "tests/runtime/fixture.hpp"

namespace terrace {
namespace {

using test::keys_of;
using test::sizes;

class ResidencySampleTest : public test::CacheFixture {};

TEST_F(ResidencySampleTest, tells_lifetime_idle_time_and_gaps) {
  make(sizes(2));
  cache->sample_residency(1);
  run(1, keys_of({1, 2}));
  run(2, keys_of({8, 2}));  // 1 and 2 were evicted after one request, unused
  run(3, keys_of({8, 2}));
  run(4, keys_of({8, 2}));
  run(5, keys_of({9}));  // a prefix is evicted from its end
  run(6, keys_of({9}));
  const ResidencyTotals totals = cache->residency_totals();
  EXPECT_EQ(totals.device.lifetime.counts[1], 2U);
  EXPECT_EQ(totals.device.lifetime.counts[2], 1U);  // from the 2nd request to the 5th: 3
  EXPECT_EQ(totals.device.lifetime.total(), 3U);
  EXPECT_EQ(totals.device.idle.counts[1], 3U);
  EXPECT_EQ(totals.gaps.counts[1], 5U);
  EXPECT_EQ(totals.gaps.total(), 5U);
  EXPECT_EQ(totals.host.lifetime.total(), 0U);
  EXPECT_EQ(totals.overlooked, 0U);
}

TEST_F(ResidencySampleTest, goes_on_however_often_it_is_read) {
  make(sizes(2));
  cache->sample_residency(1);
  run(1, keys_of({1, 2}));
  run(2, keys_of({8}));
  const ResidencyTotals before = cache->residency_totals();
  EXPECT_EQ(before.device.lifetime.total(), 1U);
  EXPECT_EQ(cache->residency_totals().device.lifetime.total(), 1U);
  run(3, keys_of({6, 7}));
  const ResidencyTotals totals = cache->residency_totals() - before;
  EXPECT_EQ(totals.device.lifetime.total(), 2U);
  EXPECT_EQ(totals.device.lifetime.counts[1], 1U);  // 8
  EXPECT_EQ(totals.device.lifetime.counts[2], 1U);  // 1, followed since before
  cache->sample_residency(2);
  EXPECT_EQ(cache->residency_totals().device.lifetime.total(), 3U) << "another share is followed, and the totals go on";
}

TEST_F(ResidencySampleTest, follows_a_block_from_tier_to_tier) {
  make(sizes(2, 6, InclusionPolicy::exclusive));
  cache->sample_residency(1);
  run(1, keys_of({1, 2}));
  run(2, keys_of({8, 9}));  // swaps 1 and 2 out
  run(3, keys_of({7, 6}));
  run(4, keys_of({1, 2}));  // and loads them again
  const ResidencyTotals totals = cache->residency_totals();
  EXPECT_EQ(totals.host.lifetime.counts[2], 2U);
  EXPECT_EQ(totals.host.lifetime.total(), 2U);
  EXPECT_EQ(totals.host.idle.counts[0], 2U);  // the load itself was a use
  EXPECT_EQ(totals.gaps.counts[2], 2U);
  EXPECT_EQ(totals.device.lifetime.counts[1], 6U);
}

TEST_F(ResidencySampleTest, follows_the_share_of_the_keys_that_was_asked_for) {
  make(sizes(64));
  cache->sample_residency(3);
  std::vector<std::uint32_t> names(64);
  for (std::uint32_t i = 0; i < names.size(); ++i) names[i] = i;
  const auto keys = keys_of(names);
  run(1, keys);
  run(2, keys);
  const auto upper_bits_are_zero = [](const BlockKey& key) { return key.prefix64() >> 62 == 0; };
  const auto followed = static_cast<std::uint64_t>(std::ranges::count_if(keys, upper_bits_are_zero));
  EXPECT_GT(followed, 0U);
  EXPECT_LT(followed, 40U);
  EXPECT_EQ(cache->residency_totals().gaps.total(), followed);
}

TEST_F(ResidencySampleTest, is_of_nothing_while_it_is_off) {
  make(sizes(2));
  run(1, keys_of({1, 2}));
  run(2, keys_of({1, 2}));
  cache->sample_residency(1);
  run(3, keys_of({8, 9}));  // blocks from before sampling are not followed
  cache->sample_residency(0);
  run(4, keys_of({1, 2}));
  const ResidencyTotals totals = cache->residency_totals();
  EXPECT_EQ(totals.device.lifetime.total() + totals.gaps.total(), 0U);
}

TEST_F(ResidencySampleTest, counts_nothing_that_a_clear_took) {
  make(sizes(4));
  cache->sample_residency(1);
  run(1, keys_of({1, 2}));
  ASSERT_TRUE(acquire(2, keys_of({1, 2})).has_value());
  cache->clear({});
  run(3, keys_of({1, 2}));  // the same keys, while the old blocks are still held
  release(2);
  run(4, keys_of({1, 2}));
  const ResidencyTotals totals = cache->residency_totals();
  EXPECT_EQ(totals.device.lifetime.total(), 0U);
  EXPECT_EQ(totals.gaps.counts[1], 4U);  // of the 2nd and the 4th request
}

TEST(ResidencySampleMemory, is_bounded_and_says_what_it_overlooked) {
  ResidencySample sample;
  sample.follow(1, 1);
  const std::size_t bytes = sample.bytes_held();
  std::vector<std::uint32_t> names(100);
  for (std::uint32_t i = 0; i < names.size(); ++i) names[i] = i;
  const auto keys = keys_of(names);
  for (const BlockKey& key : keys) sample.came(key, Tier::device);
  EXPECT_EQ(sample.bytes_held(), bytes);
  for (const BlockKey& key : keys) sample.went(key, Tier::device);
  const ResidencyTotals totals = sample.totals();
  EXPECT_GT(totals.device.lifetime.total(), 0U);
  EXPECT_GT(totals.overlooked, 0U);
  EXPECT_EQ(totals.device.lifetime.total() + totals.overlooked, keys.size());
  // Free places are used again.
  sample.came(keys.back(), Tier::device);
  EXPECT_EQ(sample.totals().overlooked, totals.overlooked);
}

}  // namespace
}  // namespace terrace
