// Why blocks are missed: what became of followed blocks, without a cache and with one.

#include "runtime/cache/measure/miss_reasons.hpp"

#include "tests/runtime/fixture.hpp"

#include <chrono>
#include <vector>

namespace terrace::test {
namespace {

using namespace std::chrono_literals;

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
