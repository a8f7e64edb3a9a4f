// AsyncCache::perform() and stop(), on a device without threads.

#include "runtime/cache/control/cache_manager.hpp"
#include "runtime/cache/types/config.hpp"
#include "terrace/async_cache.hpp"
#include "tests/patience.hpp"
#include "tests/runtime/fixture.hpp"

#include <boost/asio/bind_executor.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/use_future.hpp>

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <optional>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

namespace terrace::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

TimePoint soon() { return std::chrono::steady_clock::now() + milliseconds{1}; }

/// Four device slots and eight host slots. Nothing moves unless the test moves it, and the test runs the loop.
class LoopCalls : public CacheFixture {
 protected:
  /// The token for an operation that completes in the loop. (Without an executor, use_future completes on a thread of its own.)
  [[nodiscard]] auto as_future() { return asio::bind_executor(loop.get_executor(), asio::use_future); }

  void SetUp() override {
    cache_waker.emplace();
    ManagerConfig config = sizes(4, 8);
    config.pinned_blocks_max = 4;
    make(config);
    clock.advance(std::chrono::steady_clock::now() - clock.now());  // the loop's clock, so that no deadline has passed there
    async.emplace(loop.get_executor(), *cache);
  }
  void TearDown() override {
    if (async) end_loop();
    CacheFixture::TearDown();
  }
  /// Stops at once, whatever is under way.
  void end_loop() {
    (void)ended(async->stop(TimePoint{}, as_future()));
    async.reset();
  }

  /// Runs the handlers of the loop that can run now.
  void run_ready() {
    if (loop.stopped()) loop.restart();
    loop.poll();
  }

  /// Runs the loop until the operation has completed.
  template <class T>
  T ended(std::future<T> operation) {
    if (loop.stopped()) loop.restart();
    while (!is_ready(operation) && loop.run_one_for(test::patience) > 0) continue;
    if (!is_ready(operation)) throw std::runtime_error{"the operation does not complete"};
    return operation.get();
  }
  template <class T>
  static bool is_ready(const std::future<T>& operation) {
    return operation.wait_for(seconds{0}) == std::future_status::ready;
  }
  template <class T>
  ErrorCode error_of(std::future<T> operation) {
    try {
      (void)ended(std::move(operation));
      return {};
    } catch (const boost::system::system_error& error) {
      return error.code();
    }
  }
  template <class Function>
  auto perform(Function function) {
    return ended(async->perform(std::move(function), as_future()));
  }
  template <class Function>
  ErrorCode failure(Function function) {
    return error_of(async->perform(std::move(function), as_future()));
  }
  Grant acquire(std::uint64_t id, const std::vector<BlockKey>& keys) {
    return ended(async->acquire(request(id, keys), as_future()));
  }
  /// Computes, shares and releases the blocks of a request. They must fit without a transfer.
  void serve(std::uint64_t id, const std::vector<BlockKey>& keys) {
    Grant grant = acquire(id, keys);
    (void)ended(async->commit(grant.lease, keys, Fence{}, as_future()));
    grant.lease.used_until(no_longer_used);
  }
  /// Fills the device, and pins all that is on it.
  PinId fill() {
    serve(1, filling);
    return perform([&](Cache& calls) { return calls.pin(filling); });
  }

  const std::vector<BlockKey> filling = keys_of({1, 2, 3, 4});
  const std::vector<BlockKey> others = keys_of({11, 12});
  asio::io_context loop;
  std::optional<AsyncCache> async;
};

class LoopPerform : public LoopCalls {};

TEST_F(LoopPerform, completes_with_what_the_function_returns) {
  EXPECT_EQ(perform([](Cache&) { return 7; }), 7);
  EXPECT_EQ(perform([](Cache&) -> Result<int> { return 8; }), 8);
  EXPECT_EQ(failure([](Cache&) -> Result<int> { return Errc::not_found; }), Errc::not_found);
  EXPECT_FALSE(failure([](Cache&) -> Result<void> { return {}; }));
  EXPECT_EQ(failure([](Cache&) -> Result<void> { return Errc::in_use; }), Errc::in_use);
  bool called = false;
  EXPECT_FALSE(failure([&](Cache& calls) { called = &calls == &*cache; }));
  EXPECT_TRUE(called);
  EXPECT_EQ(perform(&Cache::stats).acquired, 0U);
}

TEST_F(LoopPerform, takes_functions_and_results_that_can_only_be_moved) {
  int got = 0;
  ErrorCode failed = Errc::refused;
  async->perform([number = std::make_unique<int>(5)](Cache&) mutable { return std::move(number); },
                 [&](ErrorCode error, std::unique_ptr<int> number) {
                   failed = error;
                   got = *number;
                 });
  run_ready();
  EXPECT_FALSE(failed);
  EXPECT_EQ(got, 5);
}

TEST_F(LoopPerform, runs_one_function_at_a_time_on_the_threads_of_the_executor) {
  constexpr int count = 200;
  std::vector<std::future<std::thread::id>> operations;
  std::atomic<bool> inside{false};
  const auto function = [&inside](Cache&) {
    EXPECT_FALSE(inside.exchange(true));
    std::this_thread::yield();
    inside = false;
    return std::this_thread::get_id();
  };
  const auto here = std::this_thread::get_id();
  {
    auto guard = asio::make_work_guard(loop);
    std::jthread one{[this] { loop.run(); }};
    std::jthread two{[this] { loop.run(); }};
    for (int i = 0; i < count; ++i) operations.push_back(async->perform(function, as_future()));
    for (auto& operation : operations) EXPECT_NE(operation.get(), here);
    loop.stop();
  }
  loop.restart();
  EXPECT_EQ(perform(function), here);
}

TEST_F(LoopPerform, sees_leases_that_ended_before_as_ended) {
  const auto live = [](Cache& calls) { return calls.manager().requests().live_requests(); };
  std::optional<Grant> grant = acquire(1, filling);
  EXPECT_EQ(perform(live), 1U);
  grant->lease.used_until(no_longer_used);
  grant.reset();
  EXPECT_EQ(perform(live), 0U);
}

TEST_F(LoopPerform, lets_a_request_go_on_that_waits_for_slots) {
  const PinId pin = fill();
  auto waiting = async->acquire(request(2, others), as_future());
  EXPECT_EQ(perform(&Cache::transfers_in_flight), 0U);
  const auto let_go = [&](Cache& calls) -> Result<std::uint32_t> {
    const Result<void> unpinned = calls.unpin(pin);
    if (!unpinned) return unpinned.error();
    return calls.drop(filling);
  };
  EXPECT_EQ(perform(let_go), 4U);
  run_ready();
  ASSERT_TRUE(is_ready(waiting));
  EXPECT_EQ(waiting.get().table.size(), 2U);
}

TEST_F(LoopPerform, lets_an_exception_leave_the_loop_and_goes_on) {
  const PinId pin = fill();
  auto waiting = async->acquire(request(2, others), as_future());
  const auto throws = [&](Cache& calls) {
    EXPECT_TRUE(calls.unpin(pin).has_value());
    EXPECT_TRUE(calls.drop(filling).has_value());
    throw std::runtime_error{"from the function"};
  };
  auto thrown = async->perform(throws, as_future());
  EXPECT_THROW(loop.run_for(seconds{60}), std::runtime_error);
  EXPECT_THROW(thrown.get(), std::future_error) << "its handler is destroyed";
  EXPECT_EQ(ended(std::move(waiting)).table.size(), 2U);
  EXPECT_EQ(perform([](Cache&) { return 7; }), 7);
}

TEST_F(LoopPerform, fails_after_a_stop_and_calls_nothing) {
  EXPECT_TRUE(ended(async->stop(as_future())).none());
  bool called = false;
  EXPECT_EQ(failure([&](Cache&) { called = true; }), Errc::stopped);
  EXPECT_FALSE(called);
}

TEST_F(LoopPerform, stops_the_process_at_a_call_that_blocks_or_takes_what_belongs_to_the_loop) {
  const Lease lease;
  const auto with = [](auto call) { return [call](Cache& calls) { (void)call(calls); }; };
  EXPECT_DEATH(perform(with([](Cache& calls) { return calls.poll().size(); })), "broken invariant");
  EXPECT_DEATH(perform(with([&](Cache& calls) { return calls.acquire(request(1, others)).has_value(); })), "broken invariant");
  EXPECT_DEATH(perform(with([&](Cache& calls) { return calls.wait(lease).has_value(); })), "broken invariant");
  EXPECT_DEATH(perform(&Cache::drain), "broken invariant");
  EXPECT_DEATH(perform([this](Cache&) { async->perform(&Cache::stats, [](ErrorCode, const ManagerStats&) {}); }),
               "broken invariant");
}

class LoopStop : public LoopCalls {};

TEST_F(LoopStop, ends_in_time_and_says_what_is_left_and_fails_who_waits_for_a_copy) {
  serve(1, filling);
  auto waiting = async->acquire(request(2, others), as_future());
  const WorkLeft left = ended(async->stop(soon(), as_future()));
  EXPECT_EQ(left.leases, 0U);
  EXPECT_GT(left.transfers, 0U);
  EXPECT_TRUE(left.under_way);
  EXPECT_FALSE(left.none());
  EXPECT_EQ(error_of(std::move(waiting)), Errc::stopped);
  loop.run_for(seconds{60});
  EXPECT_TRUE(loop.stopped()) << "nothing waits for the device any more";
  async.reset();
}

TEST_F(LoopStop, fails_who_waits_for_slots_at_once) {
  (void)fill();
  auto waiting = async->acquire(request(2, others), as_future());
  EXPECT_TRUE(ended(async->stop(as_future())).none());
  EXPECT_EQ(error_of(std::move(waiting)), Errc::stopped);
}

TEST_F(LoopStop, can_be_repeated_until_the_last_lease_is_back) {
  std::optional<Grant> held = acquire(1, filling);
  EXPECT_EQ(ended(async->stop(soon(), as_future())).leases, 1U);
  const Commit commit = ended(async->commit(held->lease, filling, Fence{}, as_future()));
  EXPECT_EQ(commit.units, HashUnits{4}) << "a live request is still served";
  auto again = async->stop(as_future());
  run_ready();
  EXPECT_FALSE(is_ready(again));
  held->lease.used_until(no_longer_used);
  held.reset();
  EXPECT_TRUE(ended(std::move(again)).none());
}

TEST_F(LoopStop, that_left_a_lease_leaves_it_to_the_destructor_to_take_it_back) {
  std::optional<Grant> held = acquire(1, filling);
  EXPECT_EQ(ended(async->stop(soon(), as_future())).leases, 1U);
  held->lease.used_until(no_longer_used);
  held.reset();
  async.reset();
  EXPECT_EQ(cache->manager().requests().live_requests(), 0U);
}

TEST_F(LoopStop, of_several_calls_ends_at_the_earliest_time) {
  Grant held = acquire(1, filling);
  held.lease.used_until(no_longer_used);
  auto without_limit = async->stop(as_future());
  auto hurried = async->stop(soon(), as_future());
  EXPECT_EQ(ended(std::move(hurried)).leases, 1U);
  EXPECT_EQ(ended(std::move(without_limit)).leases, 1U);
}

TEST_F(LoopStop, serves_a_request_that_waits_for_a_copy_as_long_as_there_is_time) {
  serve(1, filling);
  auto waiting = async->acquire(request(2, others), as_future());
  auto stop = async->stop(as_future());
  run_ready();
  EXPECT_FALSE(is_ready(stop));
  for (int i = 0; i < 10 && !is_ready(waiting); ++i) {
    device->run();
    cache->wake();
    run_ready();
  }
  Grant grant = ended(std::move(waiting));
  EXPECT_EQ(grant.table.size(), 2U);
  EXPECT_FALSE(is_ready(stop));
  grant.lease.used_until(no_longer_used);
  grant.lease.reset();
  EXPECT_TRUE(ended(std::move(stop)).none());
}

/// The same with blocks of four layers, of which one is copied at a time.
class LoopStopByLayer : public LoopCalls {
 protected:
  LoopStopByLayer() {
    layers = 4;
    scheduler_config.pieces.bytes = Bytes{block_bytes};
    scheduler_config.pieces.in_flight = 1;
  }
};

TEST_F(LoopStopByLayer, fails_who_waits_for_layers) {
  end_loop();
  run(1, filling);
  run(2, keys_of({21, 22, 23, 24}));
  ASSERT_EQ(cache->match(filling).found[Source::host], 4U);
  async.emplace(loop.get_executor(), *cache);

  AcquireRequest wanted = request(3, filling);
  wanted.by_layer = true;
  auto granted = async->acquire(wanted, as_future());
  run_ready();
  for (int i = 0; i < 1000 && !is_ready(granted); ++i) {
    if (const auto parts = device->step_options(); !parts.empty()) device->step(parts.front());
    cache->wake();
    run_ready();
  }
  ASSERT_TRUE(is_ready(granted));
  Grant grant = granted.get();
  ASSERT_LT(grant.layers, 4U);
  auto rest = async->layers(grant.lease, Grant::all_layers, as_future());
  const WorkLeft left = ended(async->stop(soon(), as_future()));
  EXPECT_EQ(left.leases, 1U);
  EXPECT_GT(left.transfers, 0U);
  EXPECT_EQ(error_of(std::move(rest)), Errc::stopped);
  EXPECT_EQ(error_of(async->layers(grant.lease, Grant::all_layers, as_future())), Errc::stopped);
  grant.lease.used_until(no_longer_used);
}

TEST_F(LoopStop, is_followed_by_a_drain_that_says_what_is_left_at_its_time) {
  serve(1, filling);
  end_loop();
  ASSERT_TRUE(CacheFixture::acquire(2, others).has_value());
  const WorkLeft left = cache->drain_until(clock.now());
  EXPECT_EQ(left.leases, 1U);
  EXPECT_GT(left.transfers, 0U);
  EXPECT_TRUE(left.under_way);
}

}  // namespace
}  // namespace terrace::test
