// How long requests wait, and for what.

#include "runtime/cache/measure/wait_times.hpp"
#include "tests/runtime/fixture.hpp"

namespace terrace::test {
namespace {

std::uint64_t waits_for_loads(const WaitTotals& totals) {
  std::uint64_t requests = 0;
  for (const Source source : all_sources) requests += totals.loads[source].requests;
  return requests;
}

class WaitTimesTest : public CacheFixture {
 protected:
  void pass(int milliseconds) { clock.advance(std::chrono::milliseconds{milliseconds}); }
};

TEST_F(WaitTimesTest, are_nothing_where_a_request_is_ready_at_once) {
  make(sizes(4));
  ASSERT_TRUE(acquire(1, keys_of({1, 2})).has_value());
  pass(5);
  EXPECT_EQ(cache->seconds_waited(leases.at(1)), 0);
  const WaitTotals totals = cache->wait_totals();
  EXPECT_EQ(totals.at_once, 1U);
  EXPECT_EQ(totals.room.requests + waits_for_loads(totals), 0U);
}

TEST_F(WaitTimesTest, go_by_what_was_waited_for_however_often_they_are_read) {
  make(with_storage(sizes(4, 4), WritePolicy::write_through));
  run(1, keys_of({1, 2, 3, 4}));
  ASSERT_TRUE(acquire(2, keys_of({5, 6, 7, 8})).has_value());
  pass(2);
  EXPECT_DOUBLE_EQ(cache->seconds_waited(leases.at(2)), 0.002);
  ASSERT_TRUE(ready_when_settled(2));
  pass(50);
  EXPECT_DOUBLE_EQ(cache->seconds_waited(leases.at(2)), 0.002);
  ASSERT_TRUE(commit(2, keys_of({5, 6, 7, 8})).has_value());
  release(2);
  settle();

  ASSERT_TRUE(acquire(3, keys_of({1, 2})).has_value());
  pass(3);
  ASSERT_TRUE(ready_when_settled(3));
  EXPECT_EQ(stats(3).found[Source::host], 2U);
  release(3);

  run(4, keys_of({11, 12, 13, 14}));
  run(5, keys_of({21, 22, 23, 24}));
  const WaitTotals before = cache->wait_totals();
  ASSERT_EQ(cache->match(keys_of({5, 6})).found[Source::storage], 2U);
  for (const std::uint64_t id : {6U, 7U}) {
    ASSERT_TRUE(acquire(id, keys_of({5, 6})).has_value());
    pass(7);
  }
  ASSERT_TRUE(ready_when_settled(6));
  ASSERT_TRUE(ready(7));
  const WaitTotals totals = cache->wait_totals() - before;
  EXPECT_EQ(totals.loads[Source::storage].requests, 2U);
  EXPECT_NEAR(totals.loads[Source::storage].seconds, 0.014 + 0.007, 1e-9);
  EXPECT_EQ(totals.loads[Source::storage].microseconds.counts[13], 1U);  // 7 ms: from 4,096 to 8,191 us
  EXPECT_EQ(totals.loads[Source::storage].microseconds.counts[14], 1U);
  EXPECT_EQ(totals.room.requests + totals.loads[Source::host].requests + totals.at_once, 0U);
  EXPECT_EQ((cache->wait_totals() - before).loads[Source::storage].requests, 2U);
}

TEST_F(WaitTimesTest, tell_room_and_host_apart) {
  make(sizes(4, 8));
  run(1, keys_of({1, 2, 3, 4}));
  ASSERT_TRUE(acquire(2, keys_of({5, 6})).has_value());
  pass(2);
  settle();
  release(2);
  ASSERT_TRUE(acquire(3, keys_of({1, 2, 3, 4})).has_value());
  pass(3);
  ASSERT_TRUE(ready_when_settled(3));
  const WaitTotals totals = cache->wait_totals();
  EXPECT_EQ(totals.at_once, 1U);
  EXPECT_EQ(totals.room.requests, 1U);
  EXPECT_DOUBLE_EQ(totals.room.seconds, 0.002);
  EXPECT_EQ(totals.loads[Source::host].requests, 1U);
  EXPECT_DOUBLE_EQ(totals.loads[Source::host].seconds, 0.003);
}

TEST_F(WaitTimesTest, of_requests_that_fail_or_give_up_are_no_ones_time) {
  make(sizes(4, 8));
  run(1, keys_of({1, 2, 3, 4}));
  const WaitTotals before = cache->wait_totals();
  const auto keys = keys_of({5, 6});
  AcquireRequest wanted = request(2, keys);
  wanted.deadline = clock.now() + std::chrono::milliseconds{1};
  leases[2] = cache->acquire(wanted).value();
  pass(2);
  poll();
  ASSERT_FALSE(ready(2));
  release(2);
  ASSERT_TRUE(acquire(3, keys_of({8})).has_value());
  release(3);
  settle();
  const WaitTotals totals = cache->wait_totals() - before;
  EXPECT_EQ(totals.failed, 1U);
  EXPECT_EQ(totals.room.requests + waits_for_loads(totals), 0U);
}

TEST(WaitTimes, count_an_end_once_however_often_it_is_told) {
  ManualClock clock;
  WaitTimes times;
  const TimePoint begun = clock.now();
  clock.advance(std::chrono::milliseconds{4});
  times.begin(RequestId{1}, begun);
  times.end(RequestId{1}, clock.now(), {});
  clock.advance(std::chrono::milliseconds{4});
  times.end(RequestId{1}, clock.now(), {});
  times.fail(RequestId{1}, clock.now());
  EXPECT_DOUBLE_EQ(times.seconds(RequestId{1}, clock.now()), 0.004);
  const WaitTotals totals = times.totals();
  EXPECT_EQ(totals.room.requests, 1U);
  EXPECT_EQ(totals.failed, 0U);
}

TEST(WaitTimes, the_slowest_of_the_last_minute_are_known_and_a_minute_later_forgotten) {
  ManualClock clock;
  WaitTimes times;
  std::uint64_t id = 0;
  const auto wait = [&](int milliseconds, const RequestStats& stats = {}) {
    const TimePoint begun = clock.now();
    clock.advance(std::chrono::milliseconds{milliseconds});
    times.begin(RequestId{++id}, begun);
    times.end(RequestId{id}, clock.now(), stats);
  };
  const auto slowest = [&] {
    std::vector<std::uint64_t> ids;
    for (const SlowRequest& request : times.slowest(clock.now())) ids.push_back(request.id.value());
    return ids;
  };
  RequestStats from_host;
  from_host.found[Source::host] = 1;
  for (const int milliseconds : {3, 7, 1, 9, 2, 8}) wait(milliseconds, milliseconds == 9 ? from_host : RequestStats{});
  EXPECT_EQ(slowest(), (std::vector<std::uint64_t>{4, 6, 2, 1, 5}));  // not the one that is faster than five others
  EXPECT_EQ(times.slowest(clock.now()).front().source, Source::host);
  EXPECT_EQ(clock.now() - times.slowest(clock.now()).front().ended, std::chrono::milliseconds{10});
  EXPECT_FALSE(times.slowest(clock.now()).front().looked);
  EXPECT_EQ(times.slowest(clock.now()).back().source, std::nullopt);
  EXPECT_DOUBLE_EQ(times.slowest(clock.now()).front().seconds, 0.009);
  clock.advance(std::chrono::seconds{40});
  wait(5);
  EXPECT_EQ(slowest(), (std::vector<std::uint64_t>{4, 6, 2, 7, 1}));
  clock.advance(std::chrono::seconds{30});
  EXPECT_EQ(slowest(), std::vector<std::uint64_t>{7});
  clock.advance(std::chrono::seconds{60});
  EXPECT_EQ(slowest(), std::vector<std::uint64_t>{});
  RequestStats looked;
  looked.looked = true;
  wait(1, looked);
  EXPECT_TRUE(times.slowest(clock.now()).front().looked) << "it waited for an answer, and not for slots";
}

}  // namespace
}  // namespace terrace::test
