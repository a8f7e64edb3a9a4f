// Faults of docs/reliability.md that could make requests wait for ever. A failed load costs a request no more than the time that
// it allowed, and an idle engine is told about it.

#include "runtime/cache/control/cache_manager.hpp"
#include "runtime/cache/index/slot_allocator.hpp"
#include "runtime/cache/types/config.hpp"
#include "runtime/engine/cache_parts.hpp"
#include "storage/file/file_store.hpp"
#include "storage/resilience/resilient_store.hpp"
#include "terrace/system.hpp"
#include "tests/radix/key_helpers.hpp"
#include "tests/runtime/fixture.hpp"
#include "tests/runtime/request.hpp"
#include "tests/simulated/simulated_io.hpp"
#include "tests/storage/damage.hpp"
#include "tests/tools/temporary_directory.hpp"
#include "tests/transfer/support.hpp"
#include "transfer/host/host_arena.hpp"

#include <gtest/gtest.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace terrace::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// The test advances the clock.

class FailedLoads : public CacheFixture {
 protected:
  void acquire_until(std::uint64_t id, const std::vector<BlockKey>& keys, TimePoint deadline) {
    AcquireRequest wanted = request(id, keys);
    wanted.deadline = deadline;
    leases[id] = cache->acquire(wanted).value();
  }
};

TEST_F(FailedLoads, leave_a_request_the_deadline_it_came_with) {
  ManagerConfig config = with_storage(sizes(4), WritePolicy::write_through);
  config.loads = LoadPolicy::always;  // so that there is no other deadline
  make(config);
  run(1, keys_of({1, 2}));
  run(2, keys_of({5, 6, 7, 8}));
  ASSERT_EQ(cache->match(keys_of({1, 2})).found[Source::storage], 2U);
  const TimePoint deadline = clock.now() + seconds{10};
  acquire_until(3, keys_of({1, 2}), deadline);
  EXPECT_EQ(cache->next_deadline(), deadline);

  clock.advance(seconds{6});
  poll();  // storage has read the blocks
  poll();  // they are on the link
  device->fail_next(Direction::swap_in);
  device->run();
  device->stuck(Direction::swap_in, true);
  settle();
  EXPECT_EQ(cache->manager().stats().replans, 1U);
  EXPECT_EQ(device->commands(Direction::swap_in), 1U) << "it is being loaded once more";
  EXPECT_EQ(cache->manager().next_deadline(), deadline);
  clock.advance(seconds{4} - milliseconds{1});
  settle();
  EXPECT_TRUE(events.empty());
  EXPECT_FALSE(ready(3));

  clock.advance(milliseconds{1});
  settle();
  expect_only_event(events, 3, Errc::deadline_exceeded);
  EXPECT_EQ(cache->manager().device_ledger().quarantined, 2U) << "the second load had that deadline, too";
  EXPECT_GT(cache->manager().next_deadline(), clock.now()) << "only the link is looked at again";
  release(3);
  device->stuck(Direction::swap_in, false);
  settle();
  EXPECT_EQ(cache->manager().device_ledger().quarantined, 0U);
  EXPECT_FALSE(cache->has_pending_work());
}

TEST_F(FailedLoads, of_others_who_wait_for_the_same_blocks_leave_a_request_its_own_deadline) {
  make(with_storage(sizes(6), WritePolicy::write_through));
  run(1, keys_of({1, 2}));
  run(2, keys_of({5, 6, 7, 8, 9, 10}));
  device->stuck(Direction::swap_in, true);
  const TimePoint deadline = clock.now() + seconds{10};
  acquire_until(3, keys_of({1, 2}), deadline);
  settle();
  for (std::uint64_t id = 4; id < 12; ++id) {
    acquire_until(id, keys_of({1, 2, 3}), clock.now() + milliseconds{500});
    EXPECT_EQ(stats(id).joined, 2U);
    clock.advance(seconds{1});
    settle();
    ASSERT_EQ(events.size(), id - 3);
    EXPECT_EQ(events.back().id, RequestId{id});
    EXPECT_EQ(events.back().error, Errc::deadline_exceeded);
    EXPECT_EQ(cache->manager().next_deadline(), deadline);
    EXPECT_FALSE(ready(3));
    release(id);
  }
  clock.advance(seconds{2});
  settle();
  EXPECT_EQ(events.back().id, RequestId{3});
  EXPECT_EQ(events.back().error, Errc::deadline_exceeded);
  device->stuck(Direction::swap_in, false);
}

TEST_F(FailedLoads, that_cannot_start_leave_a_request_its_deadline) {
  make(with_storage(sizes(4, 4), WritePolicy::write_through));
  run(1, keys_of({1, 2}));
  run(2, keys_of({5, 6, 7, 8}));
  run(3, keys_of({9, 10, 11, 12}));
  ASSERT_EQ(cache->match(keys_of({1, 2})).found[Source::storage], 2U);
  events.clear();
  const TimePoint deadline = clock.now() + seconds{10};
  acquire_until(4, keys_of({1, 2}), deadline);
  ASSERT_GT(cache->manager().usage(Tier::device).promised, 0U) << "it waits for room";
  // Storage evicts the block that is to be loaded, before a slot for it is free.
  const BlockKey second = keys_of({1, 2})[1];
  store->remove({&second, 1}, 0);
  device->stuck(Direction::swap_in, true);
  settle();
  EXPECT_EQ(cache->manager().stats().replans, 1U);
  EXPECT_EQ(stats(4).found[Source::storage], 1U);
  EXPECT_FALSE(ready(4));
  EXPECT_EQ(cache->manager().next_deadline(), deadline);
  clock.advance(seconds{10});
  settle();
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(events[0].error, Errc::deadline_exceeded);
  release(4);
  device->stuck(Direction::swap_in, false);
}

class DroppedLeases : public CacheFixture {};

TEST_F(DroppedLeases, in_the_middle_of_a_transfer_that_stands_still_hold_up_nobody) {
  make(sizes(4, 8));
  run(1, keys_of({1, 2}));
  run(2, keys_of({5, 6, 7, 8}));
  run(3, keys_of({5, 6}));
  ASSERT_EQ(cache->match(keys_of({1, 2})).found[Source::host], 2U);
  device->stuck(Direction::swap_in, true);
  ASSERT_TRUE(acquire(4, keys_of({1, 2})).has_value());
  settle();
  ASSERT_EQ(device->commands(Direction::swap_in), 1U);
  release(4);  // no call waits for the transfer
  EXPECT_EQ(cache->manager().requests().live_requests(), 0U);
  const Ledger while_stuck = cache->manager().device_ledger();
  EXPECT_EQ(while_stuck.held, 0U);
  EXPECT_EQ(while_stuck.filling, 2U) << "they are nobody else's before the bytes have moved";
  // Meanwhile other requests are served in the remaining slots.
  ASSERT_TRUE(acquire(5, keys_of({5, 6})).has_value());
  EXPECT_TRUE(ready(5));
  EXPECT_EQ(acquire(6, keys_of({9})).error(), Errc::no_room);
  release(5);

  device->stuck(Direction::swap_in, false);
  settle();
  EXPECT_EQ(cache->match(keys_of({1, 2})).found[Source::device], 2U) << "what was under way is cached";
  EXPECT_EQ(cache->manager().device_ledger().filling, 0U);
  EXPECT_FALSE(cache->has_pending_work());
}

class Waiting : public test::CacheFixture {};

TEST_F(Waiting, a_load_ends_though_a_request_before_it_finds_no_room) {
  make(sizes(4, 8));
  run(1, keys_of({1, 2}));
  run(2, keys_of({5, 6, 7, 8}));  // the blocks of the first are on the host now
  device->stuck(Direction::swap_in, true);
  ASSERT_TRUE(acquire(3, keys_of({1, 2})).has_value());
  // The engine's queue has a request at its head that needs more than is left. It asks in each step.
  const auto large = keys_of({20, 21, 22});
  for (int step = 0; step < 3; ++step) {
    settle();
    EXPECT_EQ(acquire(4, large).error(), Errc::no_room);
    EXPECT_FALSE(ready(3));
  }
  device->stuck(Direction::swap_in, false);
  settle();
  EXPECT_EQ(acquire(4, large).error(), Errc::no_room);
  ASSERT_TRUE(ready(3)) << "its blocks have come";
  release(3);
  EXPECT_TRUE(acquire(4, large).has_value());
}

TEST(FailedReads, that_storage_will_try_again_leave_a_request_its_deadline) {
  const Bytes block_bytes = KiB * 4;
  ManualClock clock;
  NullWaker nobody;
  SimulatedIo io;
  FileStoreConfig stored;
  stored.directory = "/store";
  stored.name.clear();
  stored.block_bytes = block_bytes;
  stored.capacity = capacity_for(16, block_bytes);
  FileStore file{stored, io};
  ResilienceOptions patient;
  patient.back_off_first = patient.back_off_max = seconds{5};
  ResilientStore guard{file, clock, patient};
  HostArena arena{4, block_bytes};
  SimulatedDevice device{2, arena};
  TransferEngine transfers{{}, device, clock, nobody};
  ManagerConfig config = with_storage(sizes(2), WritePolicy::write_through);
  config.loads = LoadPolicy::always;  // so that there is no other deadline
  config.pools[0].staging_blocks = 4;
  Cache cache{config, CacheParts{transfers, {{&arena, &guard}}, clock}};
  std::vector<RequestEvent> events;
  const auto settle = [&] {
    for (int i = 0; i < 50; ++i) {
      device.run();
      while (io.queued() > 0) io.step(0);
      const auto some = cache.poll();
      events.insert(events.end(), some.begin(), some.end());
    }
  };
  const auto acquire = [&](std::uint64_t id, const std::vector<BlockKey>& keys, TimePoint deadline) {
    AcquireRequest wanted = request_for(id, keys);
    wanted.deadline = deadline;
    return cache.acquire(wanted).value();
  };
  for (std::uint64_t id = 1; id <= 2; ++id) {
    const auto keys = keys_of({static_cast<std::uint32_t>(10 * id), 2});
    Lease lease = acquire(id, keys, never);
    settle();
    ASSERT_TRUE(cache.commit(lease, keys, Fence{}).has_value());
    cache.release(std::move(lease), {});
    settle();
  }
  ASSERT_EQ(cache.match(keys_of({10, 2})).found[Source::storage], 2U);

  io.files().inject(io.files().next_number(), {.error = EAGAIN});
  const TimePoint began = clock.now();
  Lease lease = acquire(3, keys_of({10, 2}), began + seconds{2});
  settle();
  ASSERT_TRUE(events.empty());
  EXPECT_EQ(guard.health().waiting, 1U);
  EXPECT_EQ(cache.next_deadline(), began + seconds{2});
  clock.advance(seconds{2});
  settle();
  expect_only_event(events, 3, Errc::deadline_exceeded);
  lease.reset();
  EXPECT_EQ(cache.next_deadline(), began + seconds{5}) << "storage tries again all the same, for nobody";
  clock.advance(seconds{3});
  settle();
  EXPECT_EQ(guard.health().recovered, 1U);
  EXPECT_FALSE(cache.has_pending_work());
  EXPECT_EQ(cache.manager().device_ledger().held + cache.manager().device_ledger().filling, 0U);
}

/// An engine that sleeps until wake_fd() is readable. Two copies are to leave the device, and their transfers stand still.
class SleepingEngine : public FailedLoads {
 protected:
  void make_full() {
    cache_waker.emplace();
    make(sizes(4, 4));
    run(1, keys_of({1, 2}));
    ASSERT_TRUE(acquire(2, keys_of({5, 6})).has_value());
    ASSERT_EQ(free_on_device(), 0U);
    device->stuck(Direction::swap_out, true);
  }
  [[nodiscard]] bool woken() const {
    pollfd entry{cache->wake_fd(), POLLIN, 0};
    return ::poll(&entry, 1, 0) == 1;
  }
  void TearDown() override {
    device->stuck(Direction::swap_out, false);
    FailedLoads::TearDown();
  }
};

TEST_F(SleepingEngine, is_woken_by_an_event_that_a_release_leaves) {
  make_full();
  ASSERT_TRUE(acquire(3, keys_of({7, 8})).has_value());
  poll();
  ASSERT_FALSE(ready(3));
  ASSERT_FALSE(woken());
  release(2);
  EXPECT_TRUE(ready(3));
  EXPECT_TRUE(woken());
  poll();
  expect_only_event(events, 3);
  EXPECT_FALSE(woken()) << "there is nothing left to report";
}

TEST_F(SleepingEngine, is_woken_by_the_events_of_others_that_a_wait_leaves) {
  make_full();
  const TimePoint deadline = clock.now() + seconds{1};
  acquire_until(3, keys_of({7}), deadline);
  acquire_until(4, keys_of({8}), deadline);
  poll();
  clock.advance(seconds{1});
  ASSERT_FALSE(woken());
  EXPECT_EQ(cache->wait(leases.at(3)).error(), Errc::deadline_exceeded);
  EXPECT_TRUE(woken());
  poll();
  expect_only_event(events, 4, Errc::deadline_exceeded);
  EXPECT_FALSE(woken());
  release(3);
  EXPECT_FALSE(woken()) << "it leaves no event";
}

// With real time and threads: an engine that has nothing else to do.

class IdleEngine : public testing::Test {
 protected:
  IdleEngine() {
    options_.pools = {{.block_bytes = KiB * 8, .device_blocks = 2}};
    options_.write_policy = WritePolicy::write_through;
    // This avoids any other deadline.
    options_.loads = LoadPolicy::always;
    options_.flush_interval = {};
    options_.storage = FileStorage{.directories = {directory_.path()}, .capacity = MiB};
  }

  [[nodiscard]] CacheSystemOptions with_a_host_tier_only(const EmulatedGpu& gpu) const {
    CacheSystemOptions options = options_;
    options.ranks[0].device = gpu;
    options.pools[0].host_blocks = 4;
    options.storage = NoStorage{};
    options.write_policy = WritePolicy::none;
    return options;
  }
  [[nodiscard]] std::filesystem::path data() const { return directory_.path() / "store" / "blocks-0000"; }
  static Lease acquire(CacheSystem& stack, std::uint64_t id, const std::vector<BlockKey>& keys) {
    return stack.cache().acquire(request_for(id, keys)).value();
  }
  static void run(CacheSystem& stack, std::uint64_t id, const std::vector<BlockKey>& keys) {
    Lease lease = acquire(stack, id, keys);
    while (stack.cache().state(lease) != RequestState::ready) stack.cache().poll();
    ASSERT_TRUE(stack.cache().commit(lease, keys, Fence{}).has_value());
    stack.cache().release(std::move(lease), Fence{});
    stack.cache().drain();
  }
  /// Sleeps until wake_fd() or next_deadline() says so, until the wait of a request has ended.
  static RequestEvent sleep_until_told(Cache& cache) {
    const SteadyClock clock;
    for (;;) {
      const TimePoint next = cache.next_deadline();
      int timeout_ms = patience_ms;
      if (next != never) {
        const auto left = std::chrono::duration_cast<milliseconds>(next - clock.now()).count();
        timeout_ms = static_cast<int>(std::clamp<std::int64_t>(left + 1, 0, patience_ms));
      }
      pollfd wait{cache.wake_fd(), POLLIN, 0};
      if (::poll(&wait, 1, timeout_ms) == 0 && next == never) {
        ADD_FAILURE() << "nobody woke it";
        return {};
      }
      for (const RequestEvent& event : cache.poll()) {
        if (event.ends_wait()) return event;
      }
    }
  }
  /// A request for blocks below the device, whose load fails: it gets an event, and computes.
  static void expect_told(CacheSystem& stack, const std::vector<BlockKey>& keys) {
    const Lease lease = acquire(stack, 100, keys);
    ASSERT_FALSE(stack.cache().state(lease) == RequestState::ready);
    const RequestEvent told = sleep_until_told(stack.cache());
    EXPECT_EQ(told.id, RequestId{100});
    EXPECT_FALSE(told.error) << told.error.message();
    EXPECT_TRUE(stack.cache().state(lease) == RequestState::ready);
    EXPECT_EQ(stack.cache().request_stats(lease)->miss, keys.size());
    EXPECT_GT(stack.cache().manager().stats().load_failures, 0U);
  }

  TemporaryDirectory directory_;
  CacheSystemOptions options_;
};

TEST_F(IdleEngine, is_woken_by_a_load_that_does_not_verify) {
  CacheSystem stack{options_};
  run(stack, 1, keys_of({1, 2}));
  run(stack, 2, keys_of({5, 6}));
  ASSERT_EQ(stack.cache().match(keys_of({1, 2})).found[Source::storage], 2U);
  flip(data(), 100, 2);
  expect_told(stack, keys_of({1, 2}));
  EXPECT_EQ(stack.store()->stat().corrupt, 1U);
}

TEST_F(IdleEngine, is_told_when_storage_is_to_be_tried_again_and_that_it_failed_again) {
  CacheSystem stack{options_};
  run(stack, 1, keys_of({1, 2}));
  run(stack, 2, keys_of({5, 6}));
  ASSERT_EQ(stack.cache().match(keys_of({1, 2})).found[Source::storage], 2U);
  std::filesystem::resize_file(data(), 100);
  expect_told(stack, keys_of({1, 2}));
  EXPECT_GT(stack.storage_health()->retried, 0U);
}

TEST_F(IdleEngine, is_woken_by_a_load_that_the_link_fails) {
  EmulatedGpu gpu;
  gpu.link[Direction::swap_in].fail_every = 1;
  CacheSystem stack{with_a_host_tier_only(gpu)};
  run(stack, 1, keys_of({1, 2}));
  run(stack, 2, keys_of({5, 6}));
  ASSERT_EQ(stack.cache().match(keys_of({1, 2})).found[Source::host], 2U);
  expect_told(stack, keys_of({1, 2}));
}

TEST_F(IdleEngine, is_told_of_a_deadline_though_the_load_never_ends) {
  EmulatedGpu gpu;
  gpu.link[Direction::swap_in].stall_every = 1;
  gpu.link[Direction::swap_in].stall = milliseconds{500};
  CacheSystem stack{with_a_host_tier_only(gpu)};
  run(stack, 1, keys_of({1, 2}));
  run(stack, 2, keys_of({5, 6}));
  const SteadyClock clock;
  const auto keys = keys_of({1, 2});
  AcquireRequest wanted = request_for(3, keys);
  wanted.deadline = clock.now() + milliseconds{20};
  const Lease lease = stack.cache().acquire(wanted).value();
  const RequestEvent told = sleep_until_told(stack.cache());
  EXPECT_EQ(told.id, RequestId{3});
  EXPECT_EQ(told.error, Errc::deadline_exceeded);
}

// ---- a cache whose caller waits for its requests, on a device with threads and on one without

/// Two prompts of two blocks each are in the host, and two others are on the device.
class SynchronousWait : public testing::Test {
 protected:
  const std::vector<BlockKey> one = keys_of({1, 2});
  const std::vector<BlockKey> other = keys_of({3, 4});

  static Lease acquire(Cache& cache, std::uint64_t id, const std::vector<BlockKey>& keys, TimePoint deadline = never) {
    AcquireRequest wanted = request_for(id, keys);
    wanted.deadline = deadline;
    return cache.acquire(wanted).value();
  }
  static void serve(Cache& cache, std::uint64_t id, const std::vector<BlockKey>& keys) {
    Lease lease = acquire(cache, id, keys);
    ASSERT_TRUE(cache.wait(lease).has_value());
    ASSERT_TRUE(cache.commit(lease, keys, Fence{}).has_value());
    cache.release(std::move(lease), no_longer_used);
  }
  Cache& make(const DeviceOptions& gpu = {}) {
    CacheSystemOptions options;
    options.ranks[0].device = gpu;
    options.pools = {{.block_bytes = KiB * 8, .device_blocks = 4, .host_blocks = 8}};
    Cache& cache = stack_.emplace(options).cache();
    serve(cache, 1, one);
    serve(cache, 2, other);
    serve(cache, 3, keys_of({5, 6}));
    serve(cache, 4, keys_of({7, 8}));
    cache.drain();
    EXPECT_EQ(cache.match(one).found[Source::host], 2U);
    EXPECT_EQ(cache.match(other).found[Source::host], 2U);
    return cache;
  }

  std::optional<CacheSystem> stack_;
};

TEST_F(SynchronousWait, ends_when_every_block_is_there_and_says_where_it_came_from) {
  Cache& cache = make();
  Lease lease = acquire(cache, 5, one);
  ASSERT_EQ(cache.state(lease), RequestState::waiting);
  ASSERT_TRUE(cache.wait(lease).has_value());
  EXPECT_EQ(cache.state(lease), RequestState::ready);
  const auto sources = cache.hit_sources(lease).value();
  EXPECT_EQ((std::vector<Source>{sources.begin(), sources.end()}), (std::vector<Source>{Source::host, Source::host}));
  EXPECT_TRUE(cache.poll().empty()) << "its caller has been told";
  EXPECT_TRUE(cache.wait(lease).has_value()) << "there is nothing to wait for any more";
  cache.release(std::move(lease), no_longer_used);
  EXPECT_EQ(cache.wait(lease).error(), Errc::unknown_request);  // NOLINT(bugprone-use-after-move): a lease that has ended
}

TEST_F(SynchronousWait, ends_over_a_device_that_copies_at_once) {
  Cache& cache = make(InstantGpu{});
  Lease lease = acquire(cache, 5, one);
  EXPECT_EQ(cache.state(lease), RequestState::waiting) << "the manager hears of a copy's end in a poll, as ever";
  ASSERT_TRUE(cache.wait(lease).has_value());
  EXPECT_EQ(cache.hit_sources(lease)->size(), 2U);
  cache.release(std::move(lease), no_longer_used);
}

TEST_F(SynchronousWait, says_which_blocks_did_not_arrive) {
  EmulatedGpu gpu;
  gpu.link[Direction::swap_in].fail_every = 1;
  Cache& cache = make(gpu);
  Lease lease = acquire(cache, 5, one);
  ASSERT_TRUE(cache.wait(lease).has_value()) << "the request goes on without them";
  EXPECT_TRUE(cache.hit_sources(lease).value().empty());
  EXPECT_EQ(cache.request_stats(lease)->miss, 2U);
  cache.release(std::move(lease), no_longer_used);
}

TEST_F(SynchronousWait, fails_as_its_request_does_and_keeps_what_others_are_told) {
  EmulatedGpu gpu;
  gpu.link[Direction::swap_in].stall_every = 1;
  gpu.link[Direction::swap_in].stall = milliseconds{300};
  Cache& cache = make(gpu);
  const SteadyClock clock;
  Lease first = acquire(cache, 5, one, clock.now() + milliseconds{10});
  Lease second = acquire(cache, 6, other, clock.now() + milliseconds{40});
  cache.pause_transfers();
  EXPECT_EQ(cache.wait(second).error(), Errc::paused);
  cache.resume_transfers();
  EXPECT_EQ(cache.wait(second).error(), Errc::deadline_exceeded);
  const auto events = cache.poll();
  expect_only_event(events, 5, Errc::deadline_exceeded);
  EXPECT_EQ(cache.wait(first).error(), Errc::deadline_exceeded) << "although poll() has reported it";
  EXPECT_EQ(cache.wait(second).error(), Errc::deadline_exceeded);
  EXPECT_EQ(cache.await(first, 1, StreamRef{}).error(), Errc::deadline_exceeded);
  cache.release(std::move(first), no_longer_used);
  cache.release(std::move(second), no_longer_used);
}

TEST_F(SynchronousWait, says_that_the_cache_was_cleared) {
  EmulatedGpu gpu;
  gpu.link[Direction::swap_in].stall_every = 1;
  gpu.link[Direction::swap_in].stall = milliseconds{50};
  Cache& cache = make(gpu);
  const Lease lease = acquire(cache, 5, one);
  ASSERT_EQ(cache.state(lease), RequestState::waiting);
  cache.clear({});
  EXPECT_EQ(cache.await(lease, 1, StreamRef{}).error(), Errc::cleared);
  EXPECT_EQ(cache.wait(lease).error(), Errc::cleared);
  EXPECT_TRUE(cache.poll().empty()) << "its caller has been told";
  EXPECT_EQ(cache.wait(lease).error(), Errc::cleared);
}

}  // namespace
}  // namespace terrace::test
