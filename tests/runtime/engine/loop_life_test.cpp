// Calls of operators and observers on a cache on an event loop, from other threads.

#include "runtime/cache/control/cache_manager.hpp"
#include "terrace/async_cache.hpp"
#include "terrace/system.hpp"
#include "tests/radix/key_helpers.hpp"
#include "tests/runtime/request.hpp"

#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/asio/use_future.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <memory>
#include <vector>

namespace terrace::test {
namespace {

/// An AsyncCache on its own threads. The test calls it from another thread.
class LoopLife : public testing::Test {
 protected:
  LoopLife() {
    CacheSystemOptions options;
    options.pools = {{.block_bytes = KiB * 4, .device_blocks = 8, .device_blocks_max = 12, .host_blocks = 8}};
    options.device_reserve_max = 0;  // The test alone decides what is evicted, so no copy starts that it does not expect.
    stack = std::make_unique<CacheSystem>(options);
    runtime = std::make_unique<AsyncCache>(pool.get_executor(), stack->cache());
  }

  void TearDown() override {
    runtime->stop(asio::use_future).get();
    pool.join();
    runtime.reset();
    EXPECT_EQ(stack->cache().manager().requests().live_requests(), 0U);
    stack->cache().manager().check_invariants();
  }

  [[nodiscard]] Grant acquire(std::uint64_t id, const std::vector<BlockKey>& keys) {
    return runtime->acquire(request_for(id, keys), asio::use_future).get();
  }
  void run(std::uint64_t id, const std::vector<BlockKey>& keys) {
    const Grant grant = acquire(id, keys);
    (void)runtime->commit(grant.lease, keys, Fence{}, asio::use_future).get();
  }
  /// Calls the function on the cache, and returns what it returned.
  template <class Function>
  auto perform(Function function) {
    return runtime->perform(std::move(function), asio::use_future).get();
  }
  /// The error with which that fails.
  template <class Function>
  ErrorCode failure(Function function) {
    return error_of(runtime->perform(std::move(function), asio::use_future));
  }
  [[nodiscard]] MatchResult match(const std::vector<BlockKey>& keys) {
    return perform([&](Cache& cache) { return cache.match(keys); });
  }
  [[nodiscard]] std::vector<KvEvent> take_events() {
    return perform([](Cache& cache) {
      std::vector<KvEvent> events;
      cache.take_events(events);
      return events;
    });
  }
  void clear(const ClearOptions& options = {}) {
    perform([&](Cache& cache) { cache.clear(options); });
  }
  [[nodiscard]] Usage usage(Tier tier) {
    return perform([&](Cache& cache) { return cache.manager().usage(tier); });
  }
  ErrorCode resize(Tier tier, Blocks blocks) {
    return failure([&](Cache& cache) { return cache.resize(tier, blocks); });
  }
  /// The error of the operation, if any.
  template <class T>
  static ErrorCode error_of(std::future<T> ended) {
    try {
      (void)ended.get();
      return {};
    } catch (const boost::system::system_error& error) {
      return error.code();
    }
  }

  std::unique_ptr<CacheSystem> stack;
  asio::thread_pool pool{2};
  std::unique_ptr<AsyncCache> runtime;
};

TEST_F(LoopLife, clears_and_tells_watchers) {
  perform(&Cache::record_events);
  run(1, keys_of({1, 2, 3}));
  EXPECT_EQ(take_events().size(), 3U);
  clear();
  EXPECT_EQ(match(keys_of({1, 2, 3})).total(), 0U);
  const auto events = take_events();
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(events[0].kind, KvEvent::Kind::cleared);
}

TEST_F(LoopLife, a_clear_that_waits_serves_nothing_until_it_is_resumed) {
  run(1, keys_of({1, 2}));
  Grant held = acquire(2, keys_of({1}));
  clear({.wait = true});
  EXPECT_EQ(runtime->status(), CacheStatus::clearing);
  const auto keys = keys_of({7});
  EXPECT_EQ(error_of(runtime->acquire(request_for(3, keys), asio::use_future)), Errc::paused);
  EXPECT_EQ(failure(&Cache::resume), Errc::paused);
  held = {};
  perform(&Cache::resume);
  EXPECT_EQ(runtime->status(), CacheStatus::normal);
  run(4, keys);
}

TEST_F(LoopLife, a_request_that_waits_for_room_gets_what_a_clear_frees) {
  run(1, keys_of({1, 2, 3, 4}));
  const PinId pin = perform([](Cache& cache) { return cache.pin(keys_of({1, 2, 3, 4})); });
  const auto keys = keys_of({11, 12, 13, 14, 15});
  auto waiting = runtime->acquire(request_for(2, keys), asio::use_future);
  EXPECT_EQ(match(keys).total(), 0U);  // this call is carried out after the request, which has found no room by then
  EXPECT_EQ(waiting.wait_for(std::chrono::seconds{0}), std::future_status::timeout);
  clear();
  EXPECT_EQ(waiting.get().table.size(), 5U);
  EXPECT_EQ(failure([&](Cache& cache) { return cache.unpin(pin); }), Errc::not_found);  // a clear ends pins
}

TEST_F(LoopLife, a_request_that_waits_for_room_gets_what_an_unpin_frees) {
  run(1, keys_of({1, 2, 3, 4}));
  const auto pinned = keys_of({1, 2, 3, 4});
  const PinId pin = perform([&](Cache& cache) { return cache.pin(pinned); });
  const auto keys = keys_of({11, 12, 13, 14, 15});
  auto waiting = runtime->acquire(request_for(2, keys), asio::use_future);
  perform([&](Cache& cache) { return cache.unpin(pin); });
  EXPECT_EQ(waiting.get().table.size(), 5U);
}

TEST_F(LoopLife, a_request_that_waits_for_room_can_be_called_back) {
  Grant held = acquire(1, keys_of({1, 2, 3, 4, 5, 6}));
  const auto large = keys_of({11, 12, 13, 14, 15});
  const auto small = keys_of({21, 22});
  asio::cancellation_signal signal;
  auto first = runtime->acquire(request_for(2, large), asio::bind_cancellation_slot(signal.slot(), asio::use_future));
  auto behind_it = runtime->acquire(request_for(3, small), asio::use_future);
  EXPECT_EQ(match(small).total(), 0U);  // this call is carried out after both requests
  EXPECT_EQ(behind_it.wait_for(std::chrono::seconds{0}), std::future_status::timeout);
  signal.emit(asio::cancellation_type::total);
  EXPECT_EQ(error_of(std::move(first)), asio::error::operation_aborted);
  EXPECT_EQ(behind_it.get().table.size(), 2U);
}

TEST_F(LoopLife, a_request_that_waits_for_copies_can_be_called_back) {
  const auto keys = keys_of({1, 2});
  run(1, keys);
  run(2, keys_of({11, 12, 13, 14, 15, 16, 17, 18}));  // takes the whole device: 1 and 2 go to the host
  perform(&Cache::pause_transfers);
  asio::cancellation_signal signal;
  auto waits = runtime->acquire(request_for(3, keys), asio::bind_cancellation_slot(signal.slot(), asio::use_future));
  EXPECT_EQ(usage(Tier::device).promised, 2U);
  signal.emit(asio::cancellation_type::terminal);
  EXPECT_EQ(error_of(std::move(waits)), asio::error::operation_aborted);
  EXPECT_EQ(usage(Tier::device).promised, 0U);
  perform(&Cache::resume_transfers);
  EXPECT_EQ(acquire(3, keys).hit_sources.size(), 2U);  // the id is free again
}

TEST_F(LoopLife, calling_back_a_request_that_is_served_does_nothing) {
  const auto keys = keys_of({1, 2});
  asio::cancellation_signal signal;
  const Grant grant = runtime->acquire(request_for(1, keys), asio::bind_cancellation_slot(signal.slot(), asio::use_future)).get();
  EXPECT_FALSE(signal.slot().has_handler());
  signal.emit(asio::cancellation_type::all);
  EXPECT_EQ(runtime->commit(grant.lease, keys, Fence{}, asio::use_future).get().units, HashUnits{2});
}

TEST_F(LoopLife, a_pin_ends_with_its_time) {
  const auto pinned = keys_of({1, 2, 3, 4});
  run(1, pinned);
  const TimePoint end = std::chrono::steady_clock::now() + std::chrono::milliseconds{1};
  (void)perform([&](Cache& cache) { return cache.pin(pinned, end); });
  const auto keys = keys_of({11, 12, 13, 14, 15});
  EXPECT_EQ(acquire(2, keys).table.size(), 5U);  // if it had to wait, the timer woke it
}

TEST_F(LoopLife, a_reset_is_refused_while_requests_are_alive) {
  run(1, keys_of({1, 2}));
  Grant held = acquire(2, keys_of({1}));
  const auto reset = [](Cache& cache) { return cache.reset({}); };
  EXPECT_EQ(failure(reset), Errc::in_use);
  EXPECT_EQ(match(keys_of({1, 2})).found[Source::device], 2U);
  held = {};
  perform(reset);
  EXPECT_EQ(match(keys_of({1, 2})).total(), 0U);
}

TEST_F(LoopLife, drops_a_prefix_and_says_how_much_that_freed) {
  run(1, keys_of({1, 2, 3}));
  const auto keys = keys_of({1, 2, 3});
  const auto drop = [&](Cache& cache) { return cache.drop(keys); };
  EXPECT_EQ(perform(drop), 3U);
  EXPECT_EQ(failure(drop), Errc::not_found);
}

TEST_F(LoopLife, tells_usage_counts_and_what_running_requests_share) {
  run(1, keys_of({1, 2}));
  const Grant held = acquire(2, keys_of({1, 2, 3}));
  EXPECT_EQ(perform([](Cache& cache) { return cache.common_prefix(); }), 2U);
  EXPECT_EQ(usage(Tier::device).blocks, 8U);
  EXPECT_EQ(usage(Tier::device).free, 5U);
  for (int reader = 0; reader < 2; ++reader) {
    EXPECT_EQ(perform(&Cache::stats).acquired, 2U);
    EXPECT_EQ(perform(&Cache::wait_totals).at_once, 2U);
  }
}

TEST_F(LoopLife, keeps_what_is_retained_and_knows_tenants) {
  const auto kept = keys_of({1, 1});
  run(1, kept);
  const RetentionId retention = perform([&](Cache& cache) { return cache.retain(kept, usual_priority + 1); });
  for (std::uint32_t name = 2; name < 8; ++name) run(name, keys_of({name, name, name, name}));
  EXPECT_EQ(perform([&](Cache& cache) { return cache.match(kept, Source::device); }).found[Source::device], 2U);
  const auto end_retention = [&](Cache& cache) { return cache.end_retention(retention); };
  perform(end_retention);
  EXPECT_THROW(perform(end_retention), boost::system::system_error);
  const auto remove_quota = [](Cache& cache) { return cache.remove_quota(TenantId{7}); };
  perform([](Cache& cache) { return cache.set_quota(TenantId{7}, {2, 2}); });
  perform(remove_quota);
  EXPECT_THROW(perform(remove_quota), boost::system::system_error);
}

TEST_F(LoopLife, shows_tables_by_group_and_advances) {
  const Grant grant = acquire(1, keys_of({1, 2, 3}));
  using Table = std::vector<SlotId>;
  const auto table = [&](GroupId group) {
    return perform([&](Cache& cache) -> Result<Table> {
      const auto slots = cache.block_table(grant.lease, group);
      if (!slots) return slots.error();
      return Table(slots->begin(), slots->end());
    });
  };
  const auto advance = [&](std::uint64_t tokens) {
    perform([&](Cache& cache) { return cache.advance(grant.lease, tokens, Fence{}); });
  };
  EXPECT_EQ(table(GroupId{0}), grant.table);
  EXPECT_THROW((void)table(GroupId{1}), boost::system::system_error);
  advance(3);  // groups with full attention keep everything
  EXPECT_EQ(table(GroupId{0}), grant.table);
  EXPECT_THROW(advance(4), boost::system::system_error);
}

TEST_F(LoopLife, pools_change_their_size) {
  run(1, keys_of({1, 2, 3, 4, 5, 6, 7, 8}));
  Grant held = acquire(2, keys_of({1, 2, 3, 4, 5}));
  const auto six = keys_of({11, 12, 13, 14, 15, 16});
  auto waiting = runtime->acquire(request_for(3, six), asio::use_future);
  EXPECT_EQ(resize(Tier::device, 4), Errc::no_room);
  EXPECT_FALSE(resize(Tier::device, 5));
  EXPECT_EQ(error_of(std::move(waiting)), Errc::never_fits);  // otherwise it would have waited for ever
  held = {};
  const auto five = keys_of({21, 22, 23, 24, 25});
  EXPECT_EQ(acquire(4, five).table.size(), 5U);
  EXPECT_FALSE(resize(Tier::device, 12));
  EXPECT_EQ(perform([](Cache& cache) { return cache.retiring(Tier::device); }), 0U);
  EXPECT_EQ(acquire(5, six).table.size(), 6U);
  EXPECT_EQ(resize(Tier::host, Copy::slots_max), Errc::never_fits);
  // The worker of the arena wakes the loop, which then uses the new memory.
  EXPECT_FALSE(resize(Tier::host, 40));
  HostMemory memory;
  do memory = perform([](Cache& cache) { return cache.host_memory(); });
  while (!memory.warm() && memory.failure.empty());
  EXPECT_EQ(memory.usable, 40U);
}

TEST_F(LoopLife, paused_transfers_start_when_they_are_resumed) {
  run(1, keys_of({1, 2, 3, 4, 5, 6, 7, 8}));
  perform(&Cache::pause_transfers);
  const auto keys = keys_of({11, 12});
  auto waiting = runtime->acquire(request_for(2, keys), asio::use_future);
  EXPECT_EQ(perform(&Cache::transfers_in_flight), 0U);
  EXPECT_EQ(waiting.wait_for(std::chrono::seconds{0}), std::future_status::timeout);
  perform(&Cache::resume_transfers);
  EXPECT_EQ(waiting.get().table.size(), 2U);
}

TEST_F(LoopLife, a_stop_resumes_what_was_paused_and_forgets_the_ends_of_pins) {
  run(1, keys_of({1, 2, 3, 4, 5, 6, 7, 8}));
  const auto pinned = keys_of({1, 2});
  const TimePoint end = std::chrono::steady_clock::now() + std::chrono::hours{1};
  (void)perform([&](Cache& cache) { return cache.pin(pinned, end); });
  perform(&Cache::pause_transfers);
  const auto keys = keys_of({11, 12});
  auto waiting = runtime->acquire(request_for(2, keys), asio::use_future);
  EXPECT_EQ(match(pinned).found[Source::device], 2U);
  auto stopped = runtime->stop(asio::use_future);  // that the test ends shows that nothing is left to wait for
  // The copies that make room for it are under way: an accepted request is served.
  EXPECT_EQ(waiting.get().table.size(), 2U);
  stopped.get();
}

TEST_F(LoopLife, refuses_everything_after_a_stop) {
  runtime->stop(asio::use_future).get();
  const auto keys = keys_of({1});
  EXPECT_EQ(error_of(runtime->acquire(request_for(1, keys), asio::use_future)), Errc::stopped);
  EXPECT_EQ(error_of(runtime->checkpoint(std::chrono::seconds{1}, asio::use_future)), Errc::stopped);
  EXPECT_EQ(failure(&Cache::stats), Errc::stopped);
  EXPECT_EQ(runtime->status(), CacheStatus::normal);
}

/// The same with a storage tier to which only jobs write.
class LoopJobs : public LoopLife {
 protected:
  LoopJobs() {
    CacheSystemOptions options;
    options.pools = {{.block_bytes = KiB * 4, .device_blocks = 64}};
    options.storage = MemoryStorage{MiB * 4};
    options.write_policy = WritePolicy::none;
    runtime->stop(asio::use_future).get();
    runtime.reset();
    stack = std::make_unique<CacheSystem>(options);
    runtime = std::make_unique<AsyncCache>(pool.get_executor(), stack->cache());
  }

  /// A job over everything.
  WriteBackId start() {
    return perform([](Cache& cache) { return cache.start_write_back({}); });
  }
  WriteBackProgress progress(WriteBackId id) {
    return perform([&](Cache& cache) { return cache.write_back(id); }).value();
  }
};

TEST_F(LoopJobs, are_waited_for_and_asked_about) {
  const auto keys = keys_of({1, 2, 3});
  run(1, keys);
  WriteBackOrder order;
  order.scope = WriteBackOrder::Scope::prefix;
  order.keys = keys;
  const WriteBackId id = perform([&](Cache& cache) { return cache.start_write_back(order); });
  const WriteBackProgress ended = runtime->wait_write_back(id, asio::use_future).get();
  EXPECT_EQ(ended.state, WriteBackState::done);
  EXPECT_EQ(ended.of(WriteBackOutcome::stored), 3U);
  EXPECT_EQ(progress(id).written, KiB * 12);
  EXPECT_EQ(perform([&](Cache& cache) { return cache.take_write_back_results(id); }).size(), 3U);
  EXPECT_EQ(perform(&Cache::write_backs).size(), 1U);
  // Waiting for a job that has ended completes at once.
  EXPECT_EQ(runtime->wait_write_back(id, asio::use_future).get().state, WriteBackState::done);
  EXPECT_EQ(error_of(runtime->wait_write_back(WriteBackId{99}, asio::use_future)), Errc::not_found);
  EXPECT_EQ(failure([&](Cache& cache) { return cache.cancel_write_back(id); }), Errc::not_found);
}

TEST_F(LoopJobs, are_paused_resumed_and_cancelled) {
  for (std::uint64_t i = 1; i <= 16; ++i) run(i, keys_of({static_cast<std::uint32_t>(i), 100, 101}));
  perform(&Cache::pause_transfers);
  const WriteBackId id = start();
  perform([&](Cache& cache) { return cache.pause_write_back(id); });
  EXPECT_EQ(progress(id).state, WriteBackState::paused);
  perform([&](Cache& cache) { return cache.resume_write_back(id); });
  auto waiting = runtime->wait_write_back(id, asio::use_future);
  perform([&](Cache& cache) { return cache.cancel_write_back(id); });
  EXPECT_EQ(waiting.get().state, WriteBackState::cancelled);
  perform(&Cache::resume_transfers);
}

TEST_F(LoopJobs, of_a_checkpoint_end_with_what_is_durable) {
  for (std::uint64_t i = 1; i <= 8; ++i) run(i, keys_of({static_cast<std::uint32_t>(i), 100, 101}));
  EXPECT_EQ(perform(&Cache::durability).lost_blocks, 24U);
  const CheckpointReport report = runtime->checkpoint(std::chrono::seconds{60}, asio::use_future).get();
  EXPECT_EQ(report.job.state, WriteBackState::done);
  EXPECT_EQ(report.job.of(WriteBackOutcome::stored), 24U);
  EXPECT_EQ(report.left.durable_blocks, 24U);
  EXPECT_EQ(report.left.lost_blocks, 0U);
  runtime->stop(asio::use_future).get();
  EXPECT_EQ(error_of(runtime->checkpoint(std::chrono::seconds{60}, asio::use_future)), Errc::stopped);
}

TEST_F(LoopJobs, keep_to_the_limits_that_are_set) {
  for (std::uint64_t i = 1; i <= 16; ++i) run(i, keys_of({static_cast<std::uint32_t>(i), 100, 101}));
  perform([](Cache& cache) {
    CacheSettings settings = cache.settings();
    settings.daily_write_bytes = KiB * 8;
    return cache.change(settings);
  });
  const WriteBackId next = start();
  const WriteBackProgress ended = runtime->wait_write_back(next, asio::use_future).get();
  EXPECT_EQ(ended.of(WriteBackOutcome::over_budget), 46U);
  EXPECT_EQ(ended.of(WriteBackOutcome::stored), 2U);
  EXPECT_EQ(failure([](Cache& cache) {
              CacheSettings settings = cache.settings();
              settings.lane_rates[static_cast<std::size_t>(Urgency::request)] = per_second(MiB);
              return cache.change(settings);
            }),
            Errc::invalid_argument);
}

TEST_F(LoopJobs, end_with_the_runtime) {
  for (std::uint64_t i = 1; i <= 16; ++i) run(i, keys_of({static_cast<std::uint32_t>(i), 100, 101}));
  perform(&Cache::pause_transfers);
  const WriteBackId id = start();
  auto waiting = runtime->wait_write_back(id, asio::use_future);
  runtime->stop(asio::use_future).get();
  EXPECT_EQ(waiting.get().state, WriteBackState::cancelled);
}

}  // namespace
}  // namespace terrace::test
