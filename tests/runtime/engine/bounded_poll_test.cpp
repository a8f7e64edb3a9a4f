// One poll handles only so much of what has ended, what requests wait for first, and asks for the next poll.

#include "runtime/engine/ended_events.hpp"
#include "terrace/cache.hpp"
#include "terrace/clock.hpp"
#include "tests/radix/key_helpers.hpp"
#include "tests/runtime/fixture.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <vector>

namespace terrace::test {
namespace {

/// Takes the odd or the even numbers, each of which spends 2 of the budget.
std::vector<int> take(EndedEvents<int>& events, bool odd, PollBudget& budget) {
  std::vector<int> taken;
  budget.begin_part();
  events.take([&](int number) { return (number % 2 != 0) == odd; },
              [&](int number) {
                budget.spend(2);
                taken.push_back(number);
              },
              budget);
  return taken;
}

TEST(EndedEvents, takes_the_wanted_ones_in_order_until_the_budget_is_spent_and_keeps_the_others) {
  ManualClock clock;
  EndedEvents<int> events;
  events.add([](std::vector<int>& out) { out = {2, 1, 3, 4, 5, 6}; });
  PollBudget budget{4, clock, never};
  EXPECT_EQ(take(events, true, budget), (std::vector{1, 3}));
  EXPECT_EQ(take(events, false, budget), (std::vector{2}));  // a part takes one in any case
  events.add([](std::vector<int>& out) { out.push_back(7); });
  PollBudget next{100, clock, never};
  EXPECT_EQ(take(events, true, next), (std::vector{5, 7}));
  EXPECT_EQ(take(events, false, next), (std::vector{4, 6}));
  EXPECT_TRUE(events.empty());
}

TEST(EndedEvents, takes_one_when_the_time_is_over) {
  ManualClock clock;
  EndedEvents<int> events;
  events.add([](std::vector<int>& out) { out = {1, 3, 5}; });
  PollBudget budget{100, clock, clock.now() + std::chrono::milliseconds{1}};
  clock.advance(std::chrono::milliseconds{1});
  EXPECT_EQ(take(events, true, budget), (std::vector{1}));
  EXPECT_FALSE(events.empty());
}

class BoundedPoll : public CacheFixture {
 protected:
  /// Two requests whose blocks are in the host only, and a copy to the host that no request waits for. All are being copied, and
  /// the copy to the host began first.
  void begin_three_copies() {
    poll_blocks = 1;
    cache_waker.emplace();
    make(sizes(6, 12, InclusionPolicy::inclusive));
    run(1, keys_of({1, 2}));
    run(2, keys_of({3, 4}));
    run(3, keys_of({5, 6, 7, 8, 9, 10}));
    ASSERT_EQ(resident(Tier::host), 10U);
    ASSERT_TRUE(acquire(4, keys_of({11, 12})).has_value());
    ASSERT_TRUE(commit(4, keys_of({11, 12})).has_value());
    poll();
    ASSERT_TRUE(acquire(5, keys_of({1, 2})).has_value());
    ASSERT_TRUE(acquire(6, keys_of({3, 4})).has_value());
    poll();
    ASSERT_EQ(cache->transfers_in_flight(), 3U);
    device->run();
  }
  /// All blocks are where they should be, and polls have nothing more to do.
  void expect_settled() {
    settle();
    EXPECT_EQ(resident(Tier::host), 12U);
    EXPECT_EQ(cache->transfers_in_flight(), 0U);
    EXPECT_EQ(cache->next_deadline(), never);
  }
};

TEST_F(BoundedPoll, ends_what_a_request_waits_for_first_and_asks_for_the_next_poll) {
  begin_three_copies();
  poll();  // one load, and one end that no request waits for, which would else wait forever behind loads
  EXPECT_TRUE(ready(5));
  EXPECT_FALSE(ready(6));
  EXPECT_EQ(cache->transfers_in_flight(), 1U);
  EXPECT_EQ(cache->next_deadline(), clock.now());
  EXPECT_TRUE(cache_waker->acknowledge());
  poll();
  EXPECT_TRUE(ready(6));
  EXPECT_FALSE(cache_waker->acknowledge());
  expect_settled();
}

TEST_F(BoundedPoll, a_request_may_leave_before_the_end_of_its_load_is_handled) {
  begin_three_copies();
  poll();
  ASSERT_FALSE(ready(6));
  release(6);
  expect_settled();
}

TEST_F(BoundedPoll, a_clear_may_come_before_ends_are_handled) {
  begin_three_copies();
  poll();
  for (const std::uint64_t id : {4, 5, 6}) release(id);
  cache->clear({});
  settle();
  EXPECT_EQ(resident(Tier::host), 0U);
  EXPECT_EQ(cache->transfers_in_flight(), 0U);
}

TEST_F(BoundedPoll, a_drain_handles_all_ends) {
  begin_three_copies();
  poll();
  cache->drain();
  EXPECT_TRUE(ready(6));
  EXPECT_FALSE(cache->has_pending_work());
  expect_settled();
}

TEST_F(BoundedPoll, reads_of_storage_end_before_writes) {
  poll_blocks = 2 * PollBudget::single_block;
  make(with_storage(sizes(4), WritePolicy::write_through));
  run(1, keys_of({1, 2}));
  run(2, keys_of({3, 4, 5, 6}));
  ASSERT_TRUE(acquire(3, keys_of({7, 8})).has_value());
  ASSERT_TRUE(commit(3, keys_of({7, 8})).has_value());
  run_and_poll(2);
  ASSERT_TRUE(acquire(4, keys_of({1, 2})).has_value());
  const std::uint64_t written = cache->moved().storage_writes.blocks;
  poll();
  EXPECT_EQ(cache->moved().storage_reads.blocks, 2U);
  EXPECT_EQ(cache->moved().storage_writes.blocks, written + 1);
  settle();
  EXPECT_TRUE(ready(4));
  EXPECT_EQ(cache->moved().storage_writes.blocks, written + 2);
}

}  // namespace
}  // namespace terrace::test
