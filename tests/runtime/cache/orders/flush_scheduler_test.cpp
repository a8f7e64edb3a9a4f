// When a pool's storage is flushed without a call.

#include "runtime/cache/orders/flush_scheduler.hpp"

#include "runtime/cache/types/config.hpp"
#include "tests/runtime/fixture.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <utility>
#include <vector>

namespace terrace::test {
namespace {

using std::chrono::seconds;

class FlushSchedulerTest : public ::testing::Test {
 protected:
  std::vector<std::uint64_t> begun() { return std::exchange(actions_.flushes, {}); }
  static TimePoint at(int second) { return TimePoint{} + seconds{second}; }

  Actions actions_;
  FlushScheduler flushes_{actions_, seconds{5}};
};

using Rounds = std::vector<std::uint64_t>;

TEST_F(FlushSchedulerTest, begin_an_interval_after_something_has_changed_and_not_before) {
  flushes_.on_time(at(100));
  EXPECT_EQ(flushes_.next_deadline(), never);
  flushes_.on_stored();
  flushes_.on_time(at(102));
  flushes_.on_gone();
  EXPECT_EQ(flushes_.next_deadline(), at(105));
  flushes_.on_time(at(104));
  EXPECT_EQ(begun(), Rounds{});
  flushes_.on_time(at(105));
  EXPECT_EQ(begun(), Rounds{1});
  EXPECT_EQ(flushes_.next_deadline(), never) << "one at a time";
  flushes_.on_flushed({});
  EXPECT_EQ(flushes_.next_deadline(), never) << "nothing has changed since";
}

TEST_F(FlushSchedulerTest, cover_what_came_before_they_began) {
  flushes_.on_stored();
  flushes_.on_stored();
  EXPECT_EQ(flushes_.not_covered(), 2U);
  flushes_.on_time(at(100));
  flushes_.on_time(at(200));
  flushes_.on_stored();
  EXPECT_EQ(flushes_.not_covered(), 3U);
  flushes_.on_flushed({});
  EXPECT_EQ(flushes_.not_covered(), 1U);
  EXPECT_EQ(flushes_.next_deadline(), at(205)) << "for the third";
}

TEST_F(FlushSchedulerTest, that_fail_cover_nothing_and_come_again) {
  flushes_.on_time(at(100));
  flushes_.on_stored();
  flushes_.on_time(at(105));
  flushes_.on_flushed(Errc::io_failed);
  EXPECT_EQ(flushes_.not_covered(), 1U);
  EXPECT_EQ(flushes_.error(), Errc::io_failed);
  EXPECT_EQ(flushes_.next_deadline(), at(110));
  flushes_.on_time(at(110));
  EXPECT_EQ(begun(), (Rounds{1, 2}));
  flushes_.on_flushed({});
  EXPECT_EQ(flushes_.not_covered(), 0U);
  EXPECT_FALSE(flushes_.error());
}

TEST_F(FlushSchedulerTest, that_are_asked_for_share_what_covers_them) {
  flushes_.on_stored();
  EXPECT_EQ(flushes_.ask(), 1U);
  EXPECT_EQ(flushes_.ask(), 1U) << "nothing has changed since it began";
  flushes_.on_stored();
  EXPECT_EQ(flushes_.ask(), 2U);
  EXPECT_EQ(flushes_.ask(), 2U);
  EXPECT_EQ(begun(), Rounds{1});
  flushes_.on_flushed({});
  EXPECT_TRUE(flushes_.ended(1));
  EXPECT_FALSE(flushes_.ended(2));
  EXPECT_EQ(begun(), Rounds{2}) << "at once, not when it is due";
  flushes_.on_flushed({});
  EXPECT_EQ(flushes_.ask(), 3U) << "what it covered may have been taken away since";
  EXPECT_EQ(begun(), Rounds{3});
  EXPECT_EQ(flushes_.not_covered(), 0U);
  flushes_.on_flushed(Errc::io_failed);
  EXPECT_EQ(flushes_.not_covered(), 2U) << "of what was covered nobody knows any more";
}

class FlushedCache : public CacheFixture {
 protected:
  void make_cache(Duration interval) {
    ManagerConfig config;
    config.pools[0].device_blocks = 8;
    config.storage = true;
    config.write_policy = WritePolicy::write_through;
    config.flush_interval = interval;
    make(config);
  }
};

TEST_F(FlushedCache, has_what_it_wrote_made_durable_by_itself) {
  make_cache(seconds{5});
  run(1, keys_of({1, 2, 3}));
  EXPECT_EQ(cache->durability().durable_blocks, 0U);
  EXPECT_EQ(cache->durability().lost_blocks, 3U);
  EXPECT_LE(cache->next_deadline(), clock.now() + seconds{5});
  clock.advance(seconds{5});
  settle();
  EXPECT_EQ(cache->durability().durable_blocks, 3U);
  EXPECT_EQ(count(cache->durability().durable), 3 * block_bytes);
  EXPECT_EQ(cache->durability().lost_blocks, 0U);
  EXPECT_EQ(cache->next_deadline(), never);
}

TEST_F(FlushedCache, says_what_a_power_failure_would_leave) {
  make_cache({});
  run(1, keys_of({1, 2, 3}));
  clock.advance(std::chrono::hours{1});
  settle();
  EXPECT_EQ(cache->durability().durable_blocks, 0U) << "nobody asked for a flush";
  ASSERT_TRUE(cache->start_checkpoint(seconds{10}).has_value());
  settle();
  EXPECT_EQ(cache->durability().durable_blocks, 3U);
  run(2, keys_of({1, 2, 9}));
  EXPECT_EQ(cache->durability().durable_blocks, 3U);
  EXPECT_EQ(cache->durability().lost_blocks, 1U);
  const BlockKey key = keys_of({1, 2, 3})[2];
  store->remove({&key, 1}, 0);
  settle();
  EXPECT_EQ(cache->durability().durable_blocks, 2U);
}

TEST_F(FlushedCache, is_pending_while_a_flush_is_under_way) {
  make_cache(seconds{5});
  run(1, keys_of({1}));
  store->hold_flushes(true);
  clock.advance(seconds{5});
  settle();
  EXPECT_TRUE(cache->has_pending_work());
  store->hold_flushes(false);
  settle();
  EXPECT_FALSE(cache->has_pending_work());
}

}  // namespace
}  // namespace terrace::test
