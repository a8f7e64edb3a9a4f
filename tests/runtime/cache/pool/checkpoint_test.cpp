// Jobs that are durable when they end, and checkpoints: they end in time, and report correctly what is not stored.

#include "runtime/cache/control/cache_manager.hpp"
#include "runtime/cache/types/config.hpp"
#include "tests/runtime/fixture.hpp"

#include <gtest/gtest.h>

#include <chrono>

namespace terrace {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Scope = WriteBackOrder::Scope;

using test::keys_of;

class Checkpoints : public test::CacheFixture {
 protected:
  void SetUp() override {
    ManagerConfig config;
    config.pools[0].device_blocks = 64;
    config.storage = true;
    make(config, 256);
  }
  void run_prefixes(std::uint32_t prefixes) {
    for (std::uint32_t i = 1; i <= prefixes; ++i) run(i, keys_of({i * 10, i * 10 + 1, i * 10 + 2}));
  }
  WriteBackId start(Duration budget) { return cache->start_checkpoint(budget).value(); }
  /// Runs a checkpoint to its end, if nothing blocks it.
  CheckpointReport checkpoint() {
    const WriteBackId id = start(seconds{4});
    settle();
    return {progress(id), cache->durability()};
  }
};

TEST_F(Checkpoints, end_when_storage_has_been_flushed) {
  run_prefixes(4);
  store->hold_flushes(true);
  const WriteBackId id = start(seconds{60});
  settle();
  EXPECT_EQ(progress(id).of(WriteBackOutcome::stored), 12U);
  EXPECT_EQ(progress(id).state, WriteBackState::running);
  EXPECT_EQ(count(progress(id).durable), 0U);
  store->hold_flushes(false);
  settle();
  EXPECT_EQ(progress(id).state, WriteBackState::done);
  EXPECT_EQ(count(progress(id).durable), 12 * block_bytes);
  EXPECT_EQ(cache->durability().lost_blocks, 0U);
}

TEST_F(Checkpoints, end_at_their_time_though_the_flush_stands_still) {
  run_prefixes(4);
  store->hold_flushes(true);
  const TimePoint before = clock.now();
  const WriteBackId id = start(seconds{4});
  settle();
  clock.advance(seconds{4});
  poll();
  EXPECT_EQ(progress(id).state, WriteBackState::deadline_exceeded);
  EXPECT_EQ(count(progress(id).durable), 0U) << "nothing is known of it";
  EXPECT_EQ(cache->durability().durable_blocks, 0U);
  EXPECT_EQ(cache->durability().lost_blocks, 12U);
  EXPECT_LE(clock.now() - before, seconds{5});
  store->hold_flushes(false);
}

TEST_F(Checkpoints, end_at_their_time_though_no_copy_moves) {
  run_prefixes(2);
  const WriteBackId id = start(seconds{4});
  for (int i = 0; i < 8; ++i) {
    clock.advance(milliseconds{500});
    poll();  // the device does nothing
  }
  EXPECT_EQ(progress(id).state, WriteBackState::deadline_exceeded);
  EXPECT_GT(progress(id).of(WriteBackOutcome::cancelled), 0U);
  EXPECT_EQ(cache->durability().lost_blocks, 6U);
}

TEST_F(Checkpoints, keep_the_last_of_their_time_for_the_flush) {
  run_prefixes(4);
  const WriteBackId id = start(seconds{8});
  EXPECT_EQ(cache->manager().next_deadline(), clock.now() + seconds{7});
  for (int i = 0; i < 10 && progress(id).of(WriteBackOutcome::stored) == 0; ++i) {
    device->run();
    poll();
  }
  for (int i = 0; i < 10; ++i) poll();  // the device does nothing from here on
  const std::uint64_t stored = progress(id).of(WriteBackOutcome::stored);
  ASSERT_GT(stored, 0U);
  ASSERT_LT(stored, 12U);
  store->hold_flushes(true);
  clock.advance(seconds{7});
  poll();
  EXPECT_EQ(store->in_flight(), 1U) << "what is stored by now is flushed before the time is over";
  store->hold_flushes(false);
  poll();
  EXPECT_EQ(count(progress(id).durable), stored * block_bytes);
  EXPECT_EQ(progress(id).state, WriteBackState::running);
  clock.advance(seconds{1});
  poll();
  EXPECT_EQ(progress(id).state, WriteBackState::deadline_exceeded);
  EXPECT_EQ(cache->durability().durable_blocks, stored);
}

TEST_F(Checkpoints, flush_what_arrives_while_the_last_flush_is_under_way_too) {
  run_prefixes(4);
  const WriteBackId id = start(seconds{8});
  for (int i = 0; i < 10 && progress(id).of(WriteBackOutcome::stored) == 0; ++i) {
    device->run();
    poll();
  }
  for (int i = 0; i < 10; ++i) poll();
  const std::uint64_t before = progress(id).of(WriteBackOutcome::stored);
  ASSERT_LT(before, 12U);
  store->hold_flushes(true);
  clock.advance(seconds{7});
  settle();
  EXPECT_EQ(progress(id).of(WriteBackOutcome::stored), 12U);
  EXPECT_EQ(count(progress(id).durable), 0U);
  store->hold_flushes(false);
  poll();
  EXPECT_EQ(count(progress(id).durable), before * block_bytes) << "the flush had begun before the others came";
  settle();
  EXPECT_EQ(count(progress(id).durable), 12 * block_bytes);
  EXPECT_TRUE(progress(id).ended());
}

TEST_F(Checkpoints, say_when_a_flush_has_failed) {
  run_prefixes(1);
  store->fail_flushes(Errc::io_failed);
  const CheckpointReport report = checkpoint();
  EXPECT_EQ(report.job.flush_error, Errc::io_failed);
  EXPECT_EQ(report.job.of(WriteBackOutcome::stored), 3U);
  EXPECT_EQ(count(report.job.durable), 0U);
  EXPECT_EQ(report.left.lost_blocks, 3U);
}

TEST_F(Checkpoints, of_what_is_durable_already_write_nothing_and_ask_whether_storage_still_has_it) {
  run_prefixes(2);
  EXPECT_EQ(checkpoint().left.lost_blocks, 0U);
  const std::uint64_t writes = store->stat().writes;
  store->hold_flushes(true);
  const WriteBackId id = start(seconds{4});
  settle();
  EXPECT_EQ(progress(id).state, WriteBackState::running);
  store->hold_flushes(false);
  settle();
  EXPECT_EQ(progress(id).state, WriteBackState::done);
  EXPECT_EQ(store->stat().writes, writes);
  EXPECT_EQ(progress(id).of(WriteBackOutcome::already_there), 6U);
  EXPECT_EQ(count(progress(id).durable), 6 * block_bytes);
}

class CheckpointsWithoutStorage : public test::CacheFixture {};

TEST_F(CheckpointsWithoutStorage, are_refused) {
  make(test::sizes(8));
  EXPECT_EQ(cache->checkpoint(seconds{1}).error(), Errc::invalid_argument);
}

TEST_F(Checkpoints, that_need_not_be_durable_do_not_wait_for_a_flush) {
  run_prefixes(1);
  store->hold_flushes(true);
  const WriteBackId id = cache->start_write_back({.durable = false}).value();
  settle();
  EXPECT_EQ(progress(id).state, WriteBackState::done);
  EXPECT_EQ(count(progress(id).durable), 0U);
  EXPECT_EQ(store->in_flight(), 0U);
  store->hold_flushes(false);
}

}  // namespace
}  // namespace terrace
