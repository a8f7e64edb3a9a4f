// A link between device and host whose copies all fail, or do not end: it is found, counted and left alone, and used again when
// it works.

#include "runtime/cache/control/cache_manager.hpp"
#include "runtime/cache/orders/link_guard.hpp"
#include "runtime/cache/types/config.hpp"
#include "tests/runtime/fixture.hpp"

#include <chrono>
#include <cstdint>

namespace terrace::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

Transfer transfer(std::uint64_t id, Direction direction) {
  Transfer transfer;
  transfer.id = TransferId{id};
  transfer.direction = direction;
  transfer.runs = {{SlotId{0}, SlotId{0}, 2}};
  return transfer;
}

class Guard : public ::testing::Test {
 protected:
  void order(std::uint64_t id) { guard.on_ordered(transfer(id, Direction::swap_out), stats); }
  void end(std::uint64_t id, BlockOutcome first, BlockOutcome second, ErrorCode error = {}) {
    TransferEvent event;
    event.id = TransferId{id};
    event.kind = TransferEvent::Kind::finished;
    event.direction = Direction::swap_out;
    event.outcomes = {first, second};
    event.error = error;
    guard.on_ended(event, stats);
  }
  void fail(std::uint64_t id) {
    order(id);
    end(id, BlockOutcome::failed, BlockOutcome::failed);
  }
  void stop() {
    for (std::uint64_t id = 1; id <= 5; ++id) fail(id);
    ASSERT_FALSE(guard.allows());
  }

  LinkGuard guard;
  ManagerStats stats;
};

TEST_F(Guard, says_no_after_transfers_that_failed_in_a_row) {
  for (std::uint64_t id = 1; id <= 4; ++id) fail(id);
  EXPECT_TRUE(guard.allows());
  EXPECT_TRUE(guard.health().in_use);
  fail(5);
  EXPECT_FALSE(guard.allows());
  EXPECT_FALSE(guard.health().in_use);
  EXPECT_NE(guard.health().reason.find("5 transfers failed in a row"), std::string::npos) << guard.health().reason;
}

TEST_F(Guard, says_no_after_transfers_that_were_late_in_a_row) {
  for (std::uint64_t id = 1; id <= 5; ++id) {
    order(id);
    end(id, BlockOutcome::unconfirmed, BlockOutcome::unconfirmed, Errc::deadline_exceeded);
  }
  EXPECT_FALSE(guard.allows());
}

TEST_F(Guard, one_block_that_arrives_shows_that_the_link_works) {
  for (std::uint64_t id = 1; id <= 20; ++id) {
    order(id);
    end(id, BlockOutcome::failed, id % 4 == 0 ? BlockOutcome::done : BlockOutcome::failed);
  }
  EXPECT_TRUE(guard.allows());
}

TEST_F(Guard, cancelled_transfers_show_nothing_but_those_of_a_lost_rank_do) {
  for (std::uint64_t id = 1; id <= 20; ++id) {
    order(id);
    end(id, BlockOutcome::cancelled, BlockOutcome::cancelled, Errc::deadline_exceeded);
  }
  EXPECT_TRUE(guard.allows());
  for (std::uint64_t id = 21; id <= 25; ++id) {
    order(id);
    end(id, BlockOutcome::cancelled, BlockOutcome::cancelled, Errc::stopped);
  }
  EXPECT_FALSE(guard.allows());
}

TEST_F(Guard, tries_one_transfer_at_a_time_and_later_after_each_that_fails) {
  stop();
  guard.on_time(TimePoint{} + milliseconds{500});
  EXPECT_TRUE(guard.allows());
  order(10);
  EXPECT_FALSE(guard.allows()) << "the try is under way";
  order(11);
  end(11, BlockOutcome::done, BlockOutcome::done);  // it is not the one that tries
  EXPECT_FALSE(guard.health().in_use);
  end(10, BlockOutcome::failed, BlockOutcome::failed);
  guard.on_time(TimePoint{} + milliseconds{1000});
  EXPECT_FALSE(guard.allows());
  guard.on_time(TimePoint{} + milliseconds{1500});
  EXPECT_TRUE(guard.allows());
  order(12);
  end(12, BlockOutcome::done, BlockOutcome::done);
  EXPECT_TRUE(guard.health().in_use);
  EXPECT_EQ(guard.health().stopped, 1U) << "the try that failed stopped nothing";
}

TEST_F(Guard, says_no_while_a_copy_does_not_end) {
  order(1);
  EXPECT_EQ(guard.next_deadline(), TimePoint{} + LinkGuard::silent_after);
  guard.on_time(TimePoint{} + LinkGuard::silent_after - milliseconds{1});
  EXPECT_FALSE(guard.wants_look());
  guard.on_time(TimePoint{} + LinkGuard::silent_after);
  EXPECT_TRUE(guard.wants_look());
  EXPECT_TRUE(guard.allows());
  guard.on_look(TimePoint{});
  EXPECT_FALSE(guard.allows());
  EXPECT_FALSE(guard.wants_look());
  EXPECT_NE(guard.health().reason.find("a copy between device and host does not end"), std::string::npos);
  EXPECT_NE(guard.health().reason.find("30 s ago"), std::string::npos) << guard.health().reason;
  guard.on_time(TimePoint{} + 2 * LinkGuard::silent_after);
  guard.on_look(TimePoint{});
  EXPECT_EQ(guard.health().silent, 1U) << "it is the same copy";
  end(1, BlockOutcome::done, BlockOutcome::done);
  EXPECT_TRUE(guard.wants_look());
  guard.on_look(never);
  EXPECT_TRUE(guard.allows());
  EXPECT_TRUE(guard.health().in_use);
  EXPECT_EQ(guard.health().stopped, 1U);
  EXPECT_EQ(guard.next_deadline(), never);
}

TEST_F(Guard, looks_again_when_the_oldest_copy_may_be_too_old) {
  order(1);
  guard.on_time(TimePoint{} + seconds{40});
  guard.on_look(TimePoint{} + seconds{20});
  EXPECT_TRUE(guard.allows());
  EXPECT_EQ(guard.next_deadline(), TimePoint{} + seconds{20} + LinkGuard::silent_after);
  guard.on_look(never);  // it has not begun, for example because of a rate limit
  EXPECT_EQ(guard.next_deadline(), TimePoint{} + seconds{40} + LinkGuard::silent_after);
  end(1, BlockOutcome::done, BlockOutcome::done);
  EXPECT_EQ(guard.next_deadline(), never);
}

TEST_F(Guard, watches_a_late_copy_until_it_is_confirmed) {
  order(1);
  end(1, BlockOutcome::done, BlockOutcome::unconfirmed);
  EXPECT_NE(guard.next_deadline(), never);
  TransferEvent confirmed;
  confirmed.id = TransferId{1};
  confirmed.kind = TransferEvent::Kind::confirmed;
  guard.on_ended(confirmed, stats);
  EXPECT_EQ(guard.next_deadline(), never);
}

TEST_F(Guard, what_was_ordered_is_what_was_done_and_what_was_not_by_reason) {
  for (std::uint64_t id = 1; id <= 4; ++id) order(id);
  end(1, BlockOutcome::done, BlockOutcome::failed);
  end(2, BlockOutcome::cancelled, BlockOutcome::unconfirmed);
  end(3, BlockOutcome::cancelled, BlockOutcome::cancelled, Errc::stopped);
  end(4, BlockOutcome::done, BlockOutcome::done);
  const CopyTotals& all = stats.swap_outs;
  EXPECT_EQ(all.ordered, 8U);
  EXPECT_EQ(all.done, 3U);
  EXPECT_EQ(all.failed, 3U);
  EXPECT_EQ(all.cancelled, 1U);
  EXPECT_EQ(all.late, 1U);
  EXPECT_EQ(stats.swap_ins.ordered, 0U);
}

class DeadLink : public CacheFixture {
 protected:
  [[nodiscard]] LinkHealth health() const { return cache->link_health(); }
  [[nodiscard]] ManagerStats counts() const { return cache->stats(); }
  /// Requests whose blocks evict each other, until the link is known to be dead.
  void kill(Direction direction) {
    device->dead(direction, true);
    for (int i = 0; i < 20 && health().in_use; ++i) {
      run(next, keys_of({next, next + 1}));
      next += 2;
    }
    ASSERT_FALSE(health().in_use);
  }
  std::uint32_t next = 100;
};

TEST_F(DeadLink, blocks_are_evicted_without_a_copy) {
  make(sizes(2, 8));
  kill(Direction::swap_out);
  const ManagerStats before = counts();
  for (std::uint32_t i = 0; i < 5; ++i) run(500 + i, keys_of({10 + 2 * i, 11 + 2 * i}));
  EXPECT_EQ((counts() - before).swap_outs.ordered, 0U);
  EXPECT_EQ((counts() - before).dropped_lost, 10U);
  EXPECT_GT(counts().swap_outs.failed, 0U);
}

TEST_F(DeadLink, hits_below_the_device_are_computed) {
  make(sizes(4, 16));
  run(1, keys_of({1, 2, 3}));
  run(2, keys_of({5, 6, 7, 8}));
  ASSERT_EQ(cache->match(keys_of({1, 2, 3})).found[Source::host], 3U);
  kill(Direction::swap_out);
  run(3, keys_of({5}));
  const ManagerStats before = counts();
  ASSERT_TRUE(acquire(4, keys_of({1, 2, 3})).has_value());
  ASSERT_TRUE(ready_when_settled(4));
  EXPECT_EQ(stats(4).miss, 3U);
  EXPECT_EQ((counts() - before).swap_ins.ordered, 0U);
  EXPECT_EQ((counts() - before).turned_down, 3U);
  EXPECT_EQ((counts() - before).load_failures, 0U);
}

TEST_F(DeadLink, nothing_is_evicted_ahead_of_need) {
  ManagerConfig config = sizes(8, 16);
  config.device_watermarks = {.low = 0.5, .high = 0.5};
  make(config);
  kill(Direction::swap_out);
  run(500, keys_of({1, 2, 3, 4, 5, 6, 7, 8}));
  EXPECT_EQ(cache->match(keys_of({1, 2, 3, 4, 5, 6, 7, 8})).found[Source::device], 8U);
}

TEST_F(DeadLink, recovers_by_itself) {
  make(sizes(2, 8));
  kill(Direction::swap_out);
  device->dead(Direction::swap_out, false);
  clock.advance(seconds{1});
  poll();
  run(600, keys_of({30, 31}));
  EXPECT_TRUE(health().in_use) << health().reason;
  run(601, keys_of({32, 33}));
  EXPECT_EQ(cache->match(keys_of({30, 31})).found[Source::host], 2U);
}

TEST_F(DeadLink, an_ordered_shrink_with_write_back_waits_for_the_next_try_and_drops_nothing) {
  ManagerConfig config = with_storage(sizes(4, 0), WritePolicy::write_back);
  make(config);
  kill(Direction::swap_out);
  run(next, keys_of({next, next + 1, next + 2, next + 3}));
  const std::uint64_t lost = counts().dropped_lost;
  ASSERT_TRUE(cache->resize(Tier::device, 3).has_value());
  settle();
  EXPECT_GT(cache->retiring(Tier::device), 0U);
  EXPECT_EQ(counts().dropped_lost, lost);
  EXPECT_NE(health().reason, "");
  device->dead(Direction::swap_out, false);
  for (int tries = 0; tries < 10 && cache->retiring(Tier::device) > 0; ++tries) {
    ASSERT_NE(cache->next_deadline(), never) << "an idle engine must poll for it";
    clock.advance(std::max<Duration>(cache->next_deadline() - clock.now(), {}));
    settle();
  }
  EXPECT_EQ(cache->retiring(Tier::device), 0U);
  EXPECT_EQ(counts().dropped_lost, lost);
  EXPECT_TRUE(health().in_use);
}

TEST_F(DeadLink, a_swap_out_that_does_not_end_is_noticed_and_its_slots_stay_its_own) {
  make(sizes(4, 8));
  run(1, keys_of({1, 2}));
  run(2, keys_of({3, 4}));
  device->stuck(Direction::swap_out, true);
  ASSERT_TRUE(acquire(3, keys_of({5, 6})).has_value());
  settle();
  ASSERT_EQ(device->commands(Direction::swap_out), 1U);
  EXPECT_TRUE(health().in_use);
  EXPECT_EQ(cache->next_deadline(), clock.now() + LinkGuard::silent_after) << "an idle engine must poll for it";
  clock.advance(LinkGuard::silent_after);
  poll();
  EXPECT_FALSE(health().in_use);
  EXPECT_EQ(health().silent, 1U);

  const ManagerStats before = counts();
  ASSERT_TRUE(acquire(4, keys_of({7, 8})).has_value());
  settle();
  EXPECT_EQ((counts() - before).swap_outs.ordered, 0U);
  EXPECT_EQ((counts() - before).dropped_lost, 2U) << "blocks 3 and 4";
  EXPECT_TRUE(ready(3)) << "it has the slots of blocks 3 and 4";
  EXPECT_FALSE(ready(4)) << "the copy that does not end still reads the other slots";
  EXPECT_EQ(cache->manager().residency({}).slots_of(Tier::device).evicting_total(), 2U);

  device->stuck(Direction::swap_out, false);
  EXPECT_TRUE(ready_when_settled(4));
  EXPECT_TRUE(health().in_use) << health().reason;
  EXPECT_EQ(health().stopped, 1U);
  EXPECT_EQ(cache->match(keys_of({1, 2})).found[Source::host], 2U);
  EXPECT_EQ(cache->next_deadline(), never);
}

TEST_F(DeadLink, what_should_be_stored_fails_at_once_and_is_counted) {
  make(with_storage(sizes(4, 0), WritePolicy::write_through));
  device->dead(Direction::swap_out, true);
  for (std::uint32_t i = 0; i < 20 && health().in_use; ++i) run(100 + i, keys_of({100 + i}));
  ASSERT_FALSE(health().in_use);
  const ManagerStats before = counts();
  for (std::uint32_t i = 0; i < 5; ++i) run(500 + i, keys_of({10 + i}));
  EXPECT_EQ((counts() - before).swap_outs.ordered, 0U);
  EXPECT_EQ((counts() - before).store_failed, 5U);
}

}  // namespace
}  // namespace terrace::test
