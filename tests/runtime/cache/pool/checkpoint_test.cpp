// Jobs that are durable when they end, and checkpoints: they end in time, and report correctly what is not stored.

#include "runtime/cache/control/cache_manager.hpp"
#include "runtime/cache/orders/flush_scheduler.hpp"
#include "runtime/cache/types/config.hpp"
#include "terrace/system.hpp"
#include "tests/radix/key_helpers.hpp"
#include "tests/runtime/fixture.hpp"
#include "tests/tools/temporary_directory.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace terrace::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Scope = WriteBackOrder::Scope;

class Checkpoints : public CacheFixture {
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

class CheckpointsWithoutStorage : public CacheFixture {};

TEST_F(CheckpointsWithoutStorage, are_refused) {
  make(sizes(8));
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

// ---- the hits after a restart of a process that made a checkpoint or was killed after a flush

class WarmRestart : public testing::Test {
 protected:
  static constexpr std::uint32_t prompts = 40;

  [[nodiscard]] CacheSystemOptions options() const {
    CacheSystemOptions options;
    options.pools = {{.block_bytes = KiB * 8, .device_blocks = 256, .host_blocks = 64, .staging_blocks = 8}};
    options.storage = FileStorage{.directories = {directory_.path() / "store"}, .capacity = MiB * 8, .io = IoChoice::threads};
    options.write_policy = WritePolicy::none;
    return options;
  }
  /// Three blocks that several prompts share, and two of its own.
  static std::vector<BlockKey> prompt(std::uint32_t n) { return keys_of({n % 4, n % 4 + 10, n % 4 + 20, 100 + n, 200 + n}); }

  static void serve(Cache& cache) {
    for (std::uint32_t n = 0; n < prompts; ++n) {
      const auto keys = prompt(n);
      Result<Lease> lease = cache.acquire(request_for(n + 1, keys));
      ASSERT_TRUE(lease.has_value());
      while (cache.state(*lease) != RequestState::ready) cache.poll();
      ASSERT_TRUE(cache.commit(*lease, keys, Fence{}).has_value());
      cache.release(std::move(*lease), Fence{});
    }
  }
  static std::uint32_t hits(Cache& cache) {
    std::uint32_t hits = 0;
    for (std::uint32_t n = 0; n < prompts; ++n) hits += cache.match(prompt(n)).total();
    return hits;
  }

  TemporaryDirectory directory_;
};

TEST_F(WarmRestart, hits_all_that_a_checkpoint_called_durable) {
  std::uint64_t durable = 0;
  {
    CacheSystem stack{options()};
    serve(stack.cache());
    const Result<CheckpointReport> report = stack.cache().checkpoint(seconds{60});
    ASSERT_TRUE(report.has_value());
    EXPECT_EQ(report->job.state, WriteBackState::done);
    EXPECT_FALSE(report->job.flush_error);
    EXPECT_EQ(report->job.of(WriteBackOutcome::stored), 4U * 3 + 2 * prompts);
    EXPECT_EQ(report->left.lost_blocks, 0U);
    EXPECT_EQ(report->job.durable, report->left.durable);
    durable = report->left.durable_blocks;
  }
  CacheSystem stack{options()};
  EXPECT_EQ(stack.store()->stat().blocks, durable);
  EXPECT_EQ(hits(stack.cache()), 5 * prompts);
  EXPECT_EQ(stack.cache().durability().durable_blocks, 0U) << "who wrote them may have been killed, for all this process knows";
  EXPECT_EQ(stack.cache().checkpoint(seconds{60})->left.durable_blocks, durable);
}

TEST_F(WarmRestart, without_one_has_only_what_the_policy_stored) {
  {
    CacheSystem stack{options()};
    serve(stack.cache());
    EXPECT_GT(stack.cache().durability().lost_blocks, 0U);
  }
  CacheSystem stack{options()};
  EXPECT_EQ(hits(stack.cache()), 0U);
}

TEST_F(WarmRestart, is_promised_by_no_checkpoint_whose_files_have_been_taken_away) {
  CacheSystem stack{options()};
  serve(stack.cache());
  EXPECT_EQ(stack.cache().checkpoint(seconds{60})->left.lost_blocks, 0U);
  EXPECT_EQ(stack.storage_health()->state, StoreState::well);
  std::filesystem::remove_all(directory_.path() / "store");
  const Result<CheckpointReport> report = stack.cache().checkpoint(seconds{60});
  ASSERT_TRUE(report.has_value());
  EXPECT_TRUE(report->job.flush_error);
  EXPECT_EQ(report->job.durable, Bytes{});
  EXPECT_EQ(report->left.durable_blocks, 0U) << "what the first one promised is gone, too";
  EXPECT_EQ(stack.storage_health()->state, StoreState::degraded);
  EXPECT_NE(stack.storage_health()->reason.find("cannot be found any more"), std::string::npos) << stack.storage_health()->reason;
  EXPECT_EQ(hits(stack.cache()), 5 * prompts);
}

TEST_F(WarmRestart, makes_what_it_writes_durable_by_itself) {
  CacheSystemOptions with_policy = options();
  with_policy.write_policy = WritePolicy::write_through;
  with_policy.flush_interval = std::chrono::milliseconds{50};
  CacheSystem stack{with_policy};
  serve(stack.cache());
  while (stack.cache().durability().lost_blocks > 0) stack.cache().poll();
  EXPECT_EQ(stack.cache().durability().durable_blocks, 4U * 3 + 2 * prompts);
}

// ---- when a pool's storage is flushed without a call

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
  cache_waker.emplace();
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
  cache->wake();  // as a store does that drops a block itself
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
