// The curve of hit rates that a cache measures of itself: its stack, its samples, and what it forgets.

#include "runtime/cache/measure/reuse_curve.hpp"
#include "runtime/cache/measure/lru_stack.hpp"
#include "runtime/cache/measure/miss_reasons.hpp"
#include "runtime/cache/measure/residency_sample.hpp"
#include "tests/radix/key_helpers.hpp"
#include "tests/runtime/fixture.hpp"
#include "tests/seed.hpp"

#include <boost/random/mersenne_twister.hpp>
#include <boost/random/uniform_int_distribution.hpp>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace terrace::test {
namespace {

using namespace std::chrono_literals;

/// Places are numbered anew many times: there are 3000 uses of few items.
TEST(LruStack, keeps_positions_when_its_places_are_used_up) {
  LruStack stack;
  EXPECT_EQ(stack.position(0), LruStack::unknown);
  for (LruStack::Item use = 0; use < 3000; ++use) {
    const LruStack::Item item = use % 7;
    EXPECT_EQ(stack.position(item), use < 7 ? LruStack::unknown : 7U);
    stack.use(item);
    EXPECT_EQ(stack.position(item), 1U);
  }
}

/// The same as a list of items, of which each use moves one to the front.
TEST(LruStack, counts_weights_and_drops_the_last_like_a_list) {
  const std::uint64_t seed = seed_from_env_or(1);
  SCOPED_TRACE("TERRACE_SEED=" + std::to_string(seed));
  boost::random::mt19937_64 random{seed};
  const auto draw = [&](std::uint32_t end) { return boost::random::uniform_int_distribution<std::uint32_t>{0, end - 1}(random); };
  LruStack stack;
  std::deque<std::pair<LruStack::Item, std::uint32_t>> list;
  for (int step = 0; step < 20'000; ++step) {
    if (!list.empty() && draw(8) == 0) {
      ASSERT_EQ(stack.drop_last(), list.back().first);
      list.pop_back();
    } else {
      const LruStack::Item item = draw(60);
      std::uint32_t weight = 1 + draw(9);
      const auto found = std::ranges::find(list, item, &std::pair<LruStack::Item, std::uint32_t>::first);
      stack.use(item, weight);
      if (found != list.end()) {
        weight = found->second;
        list.erase(found);
      }
      list.emplace_front(item, weight);
    }
    std::uint32_t position = 0;
    for (const auto& [item, weight] : list) {
      position += weight;
      ASSERT_EQ(stack.position(item), position);
    }
    ASSERT_EQ(stack.weight(), position);
  }
}

std::map<BlockKey, std::uint32_t> sample_of(std::span<const BlockKey> keys, std::size_t from = 0) {
  std::map<BlockKey, std::uint32_t> sample;
  sample_path(keys, from, [&](const BlockKey& key, std::uint32_t weight) { sample[key] = weight; });
  return sample;
}

std::vector<BlockKey> path(std::uint32_t name, std::uint32_t length) {
  std::vector<std::uint32_t> tokens(length);
  for (std::uint32_t i = 0; i < length; ++i) tokens[i] = name * 1'000'000 + i;
  return keys_of(tokens);
}

TEST(PathSample, stands_for_about_as_many_blocks_as_there_are) {
  for (const std::uint32_t length : {1U, 2U, 7U, 100U, 3000U}) {
    double weight = 0;
    std::size_t samples = 0;
    constexpr std::uint32_t paths = 200;
    for (std::uint32_t name = 1; name <= paths; ++name) {
      for (const auto& [key, its] : sample_of(path(name, length))) weight += its, ++samples;
    }
    EXPECT_NEAR(weight / paths, length, 0.05 * length) << length;
    EXPECT_LE(samples / paths, 5 + length / 16) << length;
  }
  EXPECT_LT(sample_of(path(1, 100'000)).size(), 310U);
}

TEST(PathSample, is_the_same_for_the_part_that_paths_share) {
  std::vector<std::uint32_t> tokens(200, 1);
  const std::vector<BlockKey> one = keys_of(tokens);
  for (std::size_t shared = 0; shared < 200; shared += 7) {
    tokens.assign(200, 1);
    for (std::size_t i = shared; i < 200; ++i) tokens[i] = 2;
    const std::vector<BlockKey> other = keys_of(tokens);
    const auto picked = sample_of(other);
    for (const auto& [key, weight] : sample_of(one)) {
      EXPECT_EQ(picked.contains(key), std::ranges::find(other, key) != other.end());
    }
  }
}

TEST(PathSample, goes_on_after_a_part_that_was_sampled_before) {
  const std::vector<BlockKey> keys = path(3, 90);
  const auto all = sample_of(keys);
  for (std::size_t known = 0; known <= 90; ++known) {
    auto parts = sample_of(std::span{keys}.first(known));
    auto rest = sample_of(keys, known);
    parts.merge(rest);
    EXPECT_TRUE(rest.empty()) << "sampled again after " << known;
    EXPECT_EQ(parts, all) << known;
  }
}

class ReuseCurveTest : public ::testing::Test {
 protected:
  void use(std::vector<std::uint64_t> blocks, bool asked = true) {
    std::vector<ReuseSample> samples;
    for (const std::uint64_t block : blocks) samples.push_back({block, 1, asked});
    curve.use(samples, now);
  }
  ReuseCurve curve;
  TimePoint now{};
};

TEST_F(ReuseCurveTest, tells_what_a_cache_of_each_size_would_have_hit) {
  EXPECT_EQ(curve.hit_ratio(1000), 0);
  use({1, 2, 3});
  use({4});
  use({1, 2});
  // Before their second use block 1 is at position 2 and block 2 at position 3, because the blocks of a request are used from the
  // last to the first.
  EXPECT_EQ(curve.asked(), 6);
  EXPECT_EQ(curve.hit_ratio(1), 0);
  EXPECT_DOUBLE_EQ(curve.hit_ratio(2), 1.0 / 6);
  EXPECT_DOUBLE_EQ(curve.hit_ratio(3), 2.0 / 6);
  EXPECT_DOUBLE_EQ(curve.hit_ratio(1e6), 2.0 / 6);
  EXPECT_EQ(curve.different(), 4U);
}

TEST_F(ReuseCurveTest, knows_what_was_computed_after_a_prompt_but_nobody_asked_for_it) {
  use({1});
  use({2}, false);
  EXPECT_EQ(curve.asked(), 1);
  use({1, 2});
  EXPECT_EQ(curve.asked(), 3);
  EXPECT_DOUBLE_EQ(curve.hit_ratio(10), 2.0 / 3);
}

TEST_F(ReuseCurveTest, follows_the_workload_of_the_last_hour) {
  use({1});
  use({1});
  now += ReuseCurve::half_window;
  use({2});
  EXPECT_EQ(curve.asked(), 3);
  now += ReuseCurve::half_window;
  use({2});
  EXPECT_EQ(curve.asked(), 2);
  EXPECT_DOUBLE_EQ(curve.hit_ratio(10), 0.5);
  now += 5 * ReuseCurve::half_window;
  use({2});
  EXPECT_EQ(curve.asked(), 1);
  EXPECT_DOUBLE_EQ(curve.hit_ratio(10), 1.0);  // what is known of blocks is not forgotten with the counts
}

TEST_F(ReuseCurveTest, forgets_the_longest_unused_and_says_up_to_which_size_it_is_right) {
  const std::uint64_t most = ReuseCurve::items_max;
  EXPECT_GT(curve.covered(), 1e9);
  for (std::uint64_t block = 0; block < most; ++block) use({block});
  EXPECT_GT(curve.covered(), 1e9);
  use({most});
  EXPECT_EQ(curve.different(), most);
  EXPECT_EQ(curve.covered(), static_cast<double>(most - 1));
  const double before = curve.asked();
  use({0});  // forgotten
  EXPECT_EQ(curve.hit_ratio(1e9), 0);
  use({most - 1});
  EXPECT_DOUBLE_EQ(curve.hit_ratio(1e9), 1 / (before + 2));
}

// ---- how long sampled blocks stay cached. Durations are numbers of requests

class ResidencySampleTest : public CacheFixture {};

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

// ---- why blocks are missed: what became of followed blocks, without a cache and with one

class MissReasonsTest : public ::testing::Test {
 protected:
  MissReasonsTest() { misses.begin(1); }
  [[nodiscard]] BlockKey key(std::uint32_t name) const { return keys_of({name}).front(); }
  /// Returns for which reason the block is missed now.
  MissReason reason(std::uint32_t name) {
    const MissTotals before = misses.totals();
    misses.missed(key(name), 1);
    const MissTotals now = misses.totals() - before;
    for (std::size_t n = 0; n < miss_reason_count; ++n) {
      if (now.units[n] == 1) return static_cast<MissReason>(n);
    }
    ADD_FAILURE() << "nothing was counted";
    return MissReason::unknown;
  }

  MissReasons misses;
};

TEST_F(MissReasonsTest, tell_where_the_last_copy_was) {
  EXPECT_EQ(reason(1), MissReason::unknown);
  misses.came(key(1), Tier::device);
  misses.came(key(1), Tier::host);
  misses.went(key(1), Tier::device);
  EXPECT_EQ(reason(1), MissReason::not_used) << "the host has it";
  misses.went(key(1), Tier::host);
  EXPECT_EQ(reason(1), MissReason::evicted_host);
  misses.came(key(1), Tier::device);
  misses.went(key(1), Tier::device);
  EXPECT_EQ(reason(1), MissReason::evicted_device);
  misses.came(key(1), Tier::storage);
  misses.went(key(1), Tier::storage);
  EXPECT_EQ(reason(1), MissReason::evicted_storage);
  EXPECT_EQ(reason(2), MissReason::unknown);
}

TEST_F(MissReasonsTest, know_a_block_that_was_cached_before_they_began) {
  misses.went(key(1), Tier::storage);
  EXPECT_EQ(reason(1), MissReason::evicted_storage);
}

TEST_F(MissReasonsTest, tell_damage_until_the_block_is_cached_anew) {
  misses.came(key(1), Tier::storage);
  misses.damaged(key(1));
  misses.went(key(1), Tier::storage);
  EXPECT_EQ(reason(1), MissReason::damaged);
  misses.came(key(1), Tier::device);
  misses.went(key(1), Tier::device);
  EXPECT_EQ(reason(1), MissReason::evicted_device);
}

TEST_F(MissReasonsTest, tell_a_clear_although_storage_gives_the_block_up_after_it) {
  misses.came(key(1), Tier::storage);
  misses.cleared();
  misses.went(key(1), Tier::storage);
  EXPECT_EQ(reason(1), MissReason::cleared);
  misses.came(key(1), Tier::storage);
  misses.went(key(1), Tier::storage);
  EXPECT_EQ(reason(1), MissReason::evicted_storage);
}

TEST_F(MissReasonsTest, tell_damage_of_a_block_that_arrives_in_memory_before_storage_gives_it_up) {
  misses.came(key(1), Tier::storage);
  misses.damaged(key(1));
  misses.came(key(1), Tier::host);
  misses.went(key(1), Tier::storage);
  misses.went(key(1), Tier::host);
  EXPECT_EQ(reason(1), MissReason::damaged);
  misses.came(key(1), Tier::device);
  misses.damaged(key(1));
  misses.came(key(1), Tier::storage);  // it was stored again
  misses.went(key(1), Tier::storage);
  misses.went(key(1), Tier::device);
  EXPECT_EQ(reason(1), MissReason::evicted_device);
}

TEST_F(MissReasonsTest, tell_a_clear_of_what_was_cached_then) {
  misses.came(key(1), Tier::device);
  misses.came(key(2), Tier::device);
  misses.went(key(2), Tier::device);
  misses.cleared();
  EXPECT_EQ(reason(1), MissReason::cleared);
  EXPECT_EQ(reason(2), MissReason::evicted_device);
}

TEST_F(MissReasonsTest, tell_how_long_ago) {
  misses.came(key(1), Tier::host);
  misses.set_now(TimePoint{} + 10s);
  misses.went(key(1), Tier::host);
  misses.set_now(TimePoint{} + 30s);
  (void)reason(1);
  Histogram expected;
  expected.add(20);
  EXPECT_EQ(misses.totals().gone_seconds.counts, expected.counts);
}

TEST_F(MissReasonsTest, count_each_block_for_its_share) {
  MissReasons some;
  some.begin(4);
  for (std::uint32_t name = 0; name < 4000; ++name) some.missed(key(name), 2);
  EXPECT_NEAR(static_cast<double>(some.totals()[MissReason::unknown]), 8000, 800);
}

TEST_F(MissReasonsTest, forget_those_that_have_been_gone_longest) {
  for (std::uint32_t name = 0; name < 2 * MissReasons::blocks_max; ++name) {
    misses.set_now(TimePoint{} + std::chrono::milliseconds{name});
    misses.came(key(name), Tier::device);
    misses.went(key(name), Tier::device);
    ASSERT_LE(misses.blocks(), MissReasons::blocks_max);
  }
  EXPECT_EQ(reason(0), MissReason::unknown);
  EXPECT_EQ(reason(2 * MissReasons::blocks_max - 1), MissReason::evicted_device);
}

TEST_F(MissReasonsTest, follow_a_smaller_share_of_a_larger_cache) {
  for (std::uint32_t name = 0; name < 2 * MissReasons::blocks_max; ++name) misses.came(key(name), Tier::device);
  EXPECT_LE(misses.blocks(), MissReasons::blocks_max);
  EXPECT_GT(misses.blocks(), MissReasons::blocks_max / 4);
  for (std::uint32_t name = 0; name < 2 * MissReasons::blocks_max; ++name) misses.went(key(name), Tier::device);
  for (std::uint32_t name = 0; name < 2 * MissReasons::blocks_max; ++name) misses.missed(key(name), 1);
  const auto evicted = static_cast<double>(misses.totals()[MissReason::evicted_device]);
  EXPECT_NEAR(evicted, 2.0 * MissReasons::blocks_max, 0.1 * MissReasons::blocks_max);
}

// ---- with a cache ------------------------------------------------------------------------------------------------------------

/// One key in four is followed. So each test asks for many prompts of one block, and looks at the shares.
class CacheMisses : public CacheFixture {
 protected:
  static constexpr std::uint32_t prompts = 800;
  void make_with(const ManagerConfig& config) {
    make(config, 2048);
    cache->measure_misses();
  }
  void run_all() {
    for (std::uint32_t name = 0; name < prompts; ++name) {
      run(++last_request, keys_of({name + 1}));
      settle();
    }
  }
  /// Runs all prompts, and returns how many of them were missed, by reason.
  MissTotals missed() {
    const MissTotals before = cache->miss_totals();
    run_all();
    return cache->miss_totals() - before;
  }
  std::uint64_t last_request = 0;
};

TEST_F(CacheMisses, are_new_prompts_first_and_evicted_ones_later) {
  make_with(sizes(8, 16));
  const MissTotals first = missed();
  EXPECT_NEAR(static_cast<double>(first[MissReason::unknown]), prompts, prompts / 5.0);
  const MissTotals second = missed();
  EXPECT_EQ(second[MissReason::unknown], 0U);
  EXPECT_NEAR(static_cast<double>(second[MissReason::evicted_host]), prompts, prompts / 5.0) << "each went through the host tier";
}

TEST_F(CacheMisses, say_that_there_is_no_tier_below_the_device) {
  make_with(sizes(8, 0));
  (void)missed();
  EXPECT_NEAR(static_cast<double>(missed()[MissReason::evicted_device]), prompts, prompts / 5.0);
}

TEST_F(CacheMisses, say_that_storage_was_too_small) {
  make(with_storage(sizes(8, 16), WritePolicy::write_through), 64);
  cache->measure_misses();
  (void)missed();
  EXPECT_NEAR(static_cast<double>(missed()[MissReason::evicted_storage]), prompts, prompts / 5.0);
}

TEST_F(CacheMisses, say_that_the_cache_was_cleared) {
  make_with(sizes(1024, 0));
  run_all();
  cache->clear({});
  settle();
  EXPECT_NEAR(static_cast<double>(missed()[MissReason::cleared]), prompts, prompts / 5.0);
}

TEST_F(CacheMisses, are_not_counted_before_somebody_asks) {
  make(sizes(8, 16));
  run_all();
  EXPECT_EQ(cache->miss_totals().units, MissTotals{}.units);
}

}  // namespace
}  // namespace terrace::test
