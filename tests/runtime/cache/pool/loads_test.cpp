// Loads that several requests wait for, and loads that no request waits for any more.

#include "runtime/cache/control/cache_manager.hpp"
#include "runtime/cache/types/config.hpp"
#include "tests/runtime/fixture.hpp"

#include <chrono>
#include <stdexcept>

namespace terrace::test {
namespace {

using namespace std::chrono_literals;

class SharedLoads : public CacheFixture {
 protected:
  /// Blocks 1 and 2 are in the host, and other blocks fill the device.
  void make_with_full_device(ManagerConfig config) {
    config.policy = lru_policy;
    make(config);
    run(1, keys_of({1, 2}));
    run(2, keys_of({11, 12, 13, 14, 15, 16}));
    run(3, keys_of({21, 22}));
    ASSERT_EQ(cache->match(keys_of({1, 2})).found[Source::host], 2U);
    events.clear();
  }
  void acquire_until(std::uint64_t id, const std::vector<BlockKey>& keys, TimePoint deadline) {
    acquire_with(id, keys, [&](AcquireRequest& wanted) { wanted.deadline = deadline; });
  }
  /// Request 4 loads blocks 1 and 2 until this deadline. The link up stands still, and there is no other device slot.
  void make_with_load_until(TimePoint deadline) {
    make(sizes(2, 4));
    run(1, keys_of({1, 2}));
    run(2, keys_of({5, 6}));
    events.clear();
    device->stuck(Direction::swap_in, true);
    acquire_until(4, keys_of({1, 2}), deadline);
    settle();
    ASSERT_EQ(device->commands(Direction::swap_in), 1U);
  }
};

TEST_F(SharedLoads, go_on_for_requests_that_wait_for_slots_though_their_starter_is_released) {
  make_with_full_device(sizes(8, 16));
  ASSERT_EQ(cache->drop(keys_of({21, 22})).value(), 2U);
  device->stuck(Direction::swap_out, true);
  ASSERT_TRUE(acquire(4, keys_of({1, 2})).has_value());  // its load takes the two free slots
  // Both wait for slots, and together they are promised all others. Neither has slots for the blocks that are being loaded.
  ASSERT_TRUE(acquire(5, keys_of({1, 2, 31, 32})).has_value());
  ASSERT_TRUE(acquire(6, keys_of({1, 2, 41, 42, 43, 44})).has_value());
  release(4);  // the transfer of the load has not started yet
  settle();
  EXPECT_EQ(cache->match(keys_of({1, 2})).found[Source::device], 2U);
  EXPECT_EQ(totals().load_failures, 0U);
  EXPECT_EQ(totals().replans, 0U);
  EXPECT_TRUE(events.empty());
  device->stuck(Direction::swap_out, false);
  settle();
  for (const std::uint64_t id : {5U, 6U}) {
    ASSERT_TRUE(ready(id)) << id;
    EXPECT_EQ(stats(id).found[Source::host], 2U);
  }
}

TEST_F(SharedLoads, end_when_the_last_request_that_waits_for_slots_leaves) {
  make_with_full_device(sizes(8, 16));
  ASSERT_EQ(cache->drop(keys_of({21, 22})).value(), 2U);
  ASSERT_TRUE(acquire(4, keys_of({1, 2})).has_value());
  ASSERT_TRUE(acquire(5, keys_of({1, 2, 31, 32})).has_value());
  ASSERT_FALSE(ready(5));
  release(4);
  release(5);
  settle();
  EXPECT_EQ(cache->moved().swap_in.blocks, 0U);
  EXPECT_EQ(cache->manager().device_ledger().filling, 0U);
  EXPECT_EQ(cache->match(keys_of({1, 2})).found[Source::host], 2U);
  EXPECT_FALSE(cache->has_pending_work());
}

TEST_F(SharedLoads, that_end_early_change_nothing_for_a_request_with_slots_of_its_own) {
  ManagerConfig config = sizes(8, 16);
  config.evictions_in_flight_max = 1;
  make_with_full_device(config);
  // Both wait for slots, and both have asked for slots for the blocks in the host. The first one is served first.
  ASSERT_TRUE(acquire(4, keys_of({1, 2})).has_value());
  ASSERT_TRUE(acquire(5, keys_of({1, 2, 31, 32})).has_value());
  for (int i = 0; i < 20 && cache->manager().device_ledger().filling < 2; ++i) {
    device->run();
    poll();
  }
  ASSERT_EQ(cache->manager().device_ledger().filling, 2U);
  ASSERT_FALSE(ready(5));
  release(4);
  EXPECT_EQ(totals().aborted, 1U);
  settle();
  EXPECT_EQ(totals().load_failures, 2U) << "the load was cancelled";
  EXPECT_EQ(totals().replans, 0U) << "the request has kept its place in the line";
  ASSERT_TRUE(ready(5));
  EXPECT_EQ(stats(5).found[Source::host], 2U);
}

TEST_F(SharedLoads, go_on_for_a_request_without_a_deadline_though_that_of_their_starter_has_passed) {
  make_with_load_until(clock.now() + 1s);
  ASSERT_TRUE(acquire(5, keys_of({1, 2})).has_value());
  ASSERT_EQ(stats(5).joined, 2U);
  clock.advance(1s);
  settle();
  expect_only_event(events, 4, Errc::deadline_exceeded);
  EXPECT_EQ(cache->manager().device_ledger().quarantined, 0U);
  EXPECT_GT(cache->next_deadline(), clock.now() + 10s) << "only the link is looked at again";
  device->stuck(Direction::swap_in, false);
  ASSERT_TRUE(ready_when_settled(5));
  EXPECT_EQ(stats(5).found[Source::host], 2U);
  EXPECT_EQ(totals().replans, 0U);
}

TEST_F(SharedLoads, end_at_the_latest_deadline_of_those_who_joined) {
  const TimePoint last = clock.now() + 3s;
  make_with_load_until(clock.now() + 1s);
  acquire_until(5, keys_of({1, 2}), last);
  acquire_until(6, keys_of({1, 2}), clock.now() + 2s);
  clock.advance(2s);
  settle();
  EXPECT_EQ(events.size(), 2U);  // of requests 4 and 6
  EXPECT_EQ(cache->manager().device_ledger().quarantined, 0U);
  EXPECT_EQ(transfers->next_deadline(), last);
  clock.advance(1s);
  settle();
  ASSERT_EQ(events.size(), 3U);
  EXPECT_EQ(events[2].id, RequestId{5});
  EXPECT_EQ(events[2].error, Errc::deadline_exceeded);
  EXPECT_EQ(cache->manager().device_ledger().quarantined, 2U);
  EXPECT_EQ(totals().quarantined_late, 2U);
  device->stuck(Direction::swap_in, false);
}

class ReleasedLoads : public CacheFixture {};

TEST_F(ReleasedLoads, give_their_device_slots_back_though_storage_stands_still) {
  ManagerConfig config = with_storage(sizes(6), WritePolicy::write_through);
  config.loads = LoadPolicy::always;  // so that reads have no deadline
  config.pools[0].staging_blocks = 1;
  make(config);
  const auto others = keys_of({11, 12, 13, 14, 15, 16});
  run(1, keys_of({1, 2}));
  run(2, keys_of({5, 6}));
  run(3, others);
  ASSERT_EQ(cache->match(keys_of({1, 2})).found[Source::storage], 2U);
  ASSERT_EQ(cache->match(keys_of({5, 6})).found[Source::storage], 2U);
  ASSERT_EQ(cache->drop(others).value(), 6U);
  cache->pause_transfers();  // storage answers nothing
  ASSERT_TRUE(acquire(4, keys_of({1, 2})).has_value());
  ASSERT_TRUE(acquire(5, keys_of({5, 6})).has_value());
  ASSERT_EQ(free_on_device(), 2U);
  release(5);  // none of its blocks has a slot of the host arena: they wait behind the second block of the other request
  EXPECT_EQ(free_on_device(), 4U);
  cache->manager().check_invariants();
  release(4);
  EXPECT_EQ(free_on_device(), 6U);
  EXPECT_EQ(cache->manager().host_ledger().held, 1U) << "storage may still write into this slot of the arena";
  EXPECT_EQ(cache->manager().stats().loads_late, 0U);
  cache->resume_transfers();
  settle();
  EXPECT_EQ(cache->manager().host_ledger().held, 0U);
  EXPECT_FALSE(cache->has_pending_work());
}

TEST_F(ReleasedLoads, wait_for_transfers_and_not_for_reads) {
  ManagerConfig config = with_storage(sizes(4, 2), WritePolicy::write_through);
  config.loads = LoadPolicy::always;
  make(config);
  const auto keys = keys_of({1, 2, 3, 4});
  run(1, keys);
  run(2, keys_of({5, 6, 7, 8}));
  ASSERT_EQ(cache->drop(keys_of({5, 6, 7, 8})).value(), 4U);
  ASSERT_EQ(cache->match(keys).found[Source::host], 2U);
  ASSERT_EQ(cache->match(keys).found[Source::storage], 2U);
  ASSERT_TRUE(acquire(3, keys).has_value());
  release(3);
  EXPECT_EQ(cache->manager().device_ledger().filling, 4U) << "a transfer has two of the blocks";
  cache->manager().check_invariants();
  settle();
  EXPECT_EQ(cache->manager().device_ledger().filling, 0U);
  EXPECT_FALSE(cache->has_pending_work());
}

// ---- hits below the device when the compute speed is known: they are loaded only as far as that is faster than computing

class LoadOrRecompute : public CacheFixture {
 protected:
  static ManagerConfig with_prefill(ManagerConfig config) {
    config.unit_prefill_seconds = 0.010;
    return config;
  }
  /// Runs a request whose reads and writes take `each`.
  void run_slowly(std::uint64_t id, const std::vector<BlockKey>& keys, Duration each) {
    const auto move = [&] {
      for (int i = 0; i < 50; ++i) {
        if (cache->transfers_in_flight() > 0) clock.advance(each);
        device->run();
        poll();
      }
    };
    ASSERT_TRUE(acquire(id, keys).has_value());
    move();
    ASSERT_TRUE(ready(id));
    ASSERT_TRUE(commit(id, keys).has_value());
    move();
    release(id);
    settle();
  }
};

TEST_F(LoadOrRecompute, passes_over_a_storage_that_is_slow_and_tries_it_again) {
  make(with_prefill(with_storage(sizes(4), WritePolicy::write_through)));
  run(1, keys_of({1, 2, 3}));
  run(2, keys_of({5, 6, 7, 8}));
  // Nothing is known yet, so it is tried.
  ASSERT_TRUE(acquire(3, keys_of({1, 2, 3})).has_value());
  EXPECT_EQ(stats(3).found[Source::storage], 3U);
  clock.advance(3s);
  ASSERT_TRUE(ready_when_settled(3));
  release(3);
  run(4, keys_of({5, 6, 7, 8}));

  // It takes a second to load a block, and ten milliseconds to compute it.
  EXPECT_EQ(totals().turned_down, 3U);  // for the end of request 4
  ASSERT_TRUE(acquire(5, keys_of({1, 2, 3})).has_value());
  EXPECT_EQ(totals().turned_down, 6U);
  EXPECT_EQ(stats(5).found[Source::storage], 0U);
  EXPECT_EQ(stats(5).miss, 3U);
  ASSERT_TRUE(ready_when_settled(5));
  // They are computed again and shared as usual, and storage still has them.
  ASSERT_TRUE(commit(5, keys_of({1, 2, 3})).has_value());
  release(5);
  EXPECT_EQ(cache->match(keys_of({1, 2, 3})).found[Source::device], 3U);

  run(6, keys_of({5, 6, 7, 8}));
  clock.advance(120s);
  poll();
  ASSERT_TRUE(acquire(7, keys_of({1, 2, 3})).has_value());
  EXPECT_EQ(stats(7).found[Source::storage], 3U);
}

TEST_F(LoadOrRecompute, takes_any_hit_where_that_is_asked_for) {
  ManagerConfig config = with_prefill(with_storage(sizes(4), WritePolicy::write_through));
  config.loads = LoadPolicy::always;
  make(config);
  run(1, keys_of({1, 2, 3}));
  run(2, keys_of({5, 6, 7, 8}));
  run_slowly(3, keys_of({1, 2, 3}), 1000s);
  run(4, keys_of({5, 6, 7, 8}));
  ASSERT_TRUE(acquire(5, keys_of({1, 2, 3})).has_value());
  EXPECT_EQ(stats(5).found[Source::storage], 3U);
  EXPECT_EQ(totals().turned_down, 0U);
}

TEST_F(LoadOrRecompute, learns_how_fast_the_engine_is_where_that_is_not_stated) {
  make(with_storage(sizes(4), WritePolicy::write_through), 1024);
  const auto prompt = [](std::uint32_t i) { return keys_of({10 * i + 1, 10 * i + 2, 10 * i + 3, 10 * i + 4}); };
  for (std::uint32_t i = 1; i <= 8; ++i) {
    ASSERT_TRUE(acquire(i, prompt(i)).has_value());
    device->run();
    poll();
    ASSERT_TRUE(ready(i));
    const Fence written = device->launch([](BlockAccess&) {});
    ASSERT_TRUE(cache->commit(leases.at(i), prompt(i), written).has_value());
    clock.advance(40ms);  // ten per block
    settle();
    release(i);
  }
  ASSERT_TRUE(acquire(11, prompt(1)).has_value());
  EXPECT_EQ(stats(11).found[Source::storage], 4U) << "the disk is not known yet";
  clock.advance(3s);
  settle();
  release(11);
  ASSERT_TRUE(acquire(12, prompt(2)).has_value());
  EXPECT_EQ(stats(12).found[Source::storage], 0U);
  EXPECT_EQ(stats(12).miss, 4U);
  EXPECT_EQ(totals().turned_down, 4U);
}

TEST_F(LoadOrRecompute, learns_nothing_from_what_somebody_else_computed) {
  make(with_storage(sizes(4), WritePolicy::write_through), 1024);
  const auto prompt = [](std::uint32_t i) { return keys_of({10 * i + 1, 10 * i + 2, 10 * i + 3, 10 * i + 4}); };
  for (std::uint32_t i = 1; i <= 20; ++i) {
    const std::vector<BlockKey> keys = prompt(i);
    acquire_with(i, keys, [](AcquireRequest& wanted) { wanted.external_units = 4; });
    settle();
    ASSERT_TRUE(commit(i, keys).has_value());
    clock.advance(1ms);
    settle();
    release(i);
    settle();
  }
  ASSERT_TRUE(acquire(21, prompt(1)).has_value());
  ASSERT_EQ(stats(21).found[Source::storage], 4U);
  EXPECT_EQ(cache->next_deadline(), clock.now() + 100ms) << "as where the speed is not known";
}

TEST_F(LoadOrRecompute, a_load_that_had_to_wait_for_room_has_all_its_time) {
  device_blocks_max = 8;
  make(with_prefill(with_storage(sizes(2, 4), WritePolicy::write_through)));
  for (std::uint32_t id = 1; id <= 4; ++id) run(id, keys_of({10 * id + 1, 10 * id + 2}));
  ASSERT_EQ(cache->match(keys_of({11, 12})).found[Source::storage], 2U);
  device->stuck(Direction::swap_out, true);
  ASSERT_TRUE(acquire(5, keys_of({11, 12})).has_value());
  poll();
  ASSERT_EQ(totals().load_failures, 0U);
  clock.advance(10s);
  ASSERT_TRUE(cache->resize(Tier::device, 8).has_value());
  EXPECT_EQ(cache->next_deadline(), clock.now() + 20ms + 2 * 2 * 10ms);
  device->stuck(Direction::swap_out, false);
  ASSERT_TRUE(ready_when_settled(5));
  EXPECT_EQ(stats(5).found[Source::storage], 2U);
}

TEST_F(LoadOrRecompute, goes_on_by_computing_where_storage_does_not_answer) {
  for (const std::uint32_t host_blocks : {0U, 4U}) {
    make(with_storage(sizes(4, host_blocks, InclusionPolicy::non_inclusive), WritePolicy::write_through));
    run(1, keys_of({1, 2, 3}));
    run(2, keys_of({5, 6, 7, 8}));
    run(3, keys_of({11, 12, 13, 14}));
    ASSERT_EQ(cache->match(keys_of({1, 2, 3})).found[Source::storage], 3U);
    ASSERT_EQ(cache->drop(keys_of({11, 12, 13, 14})).value(), 4U) << "there is room on the device";
    cache->pause_transfers();
    ASSERT_TRUE(acquire(4, keys_of({1, 2, 3})).has_value());
    ASSERT_TRUE(acquire(5, keys_of({1, 2, 3})).has_value()) << "joins";
    poll();
    EXPECT_FALSE(ready(4));
    EXPECT_EQ(cache->next_deadline(), clock.now() + 100ms);
    clock.advance(100ms);
    poll();
    EXPECT_EQ(totals().loads_late, 3U);
    EXPECT_EQ(cache->manager().device_ledger().filling, 0U);
    cache->manager().check_invariants();
    release(5);
    cache->resume_transfers();
    ASSERT_TRUE(ready_when_settled(4));
    EXPECT_EQ(stats(4).found[Source::storage], 0U);
    EXPECT_EQ(stats(4).miss, 3U);
    EXPECT_EQ(stats(4).waits.loads[Source::storage], 100ms) << "it waited for it in vain";
    // A block that arrived too late is cached if that costs nothing.
    EXPECT_EQ(cache->match(keys_of({1, 2, 3})).found[Source::host], host_blocks == 0 ? 0U : 3U);
    ASSERT_TRUE(commit(4, keys_of({1, 2, 3})).has_value());
    EXPECT_EQ(cache->match(keys_of({1, 2, 3})).found[Source::device], 3U);
    release(4);
    settle();
    cache.reset();
    transfers.reset();  // it uses the device, so it must end first
  }
}

TEST_F(LoadOrRecompute, takes_the_hosts_part_of_a_hit_whose_end_is_in_a_slow_storage) {
  make(with_prefill(with_storage(sizes(4, 4), WritePolicy::write_through)));
  run(1, keys_of({1, 2, 3, 4}));
  run(2, keys_of({5, 6, 7, 8}));
  run(3, keys_of({11, 12, 13, 14}));
  ASSERT_EQ(cache->match(keys_of({1, 2, 3, 4})).found[Source::storage], 4U);
  run_slowly(4, keys_of({1, 2, 3, 4}), 1s);
  run(5, keys_of({31, 32, 33, 34}));
  run(6, keys_of({41, 42, 43, 44}));
  run(7, keys_of({51, 52}));
  const MatchResult found = cache->match(keys_of({31, 32, 33, 34}));
  ASSERT_EQ(found.found[Source::host], 2U);
  ASSERT_EQ(found.found[Source::storage], 2U);
  ASSERT_TRUE(acquire(8, keys_of({31, 32, 33, 34})).has_value());
  EXPECT_EQ(stats(8).found[Source::host], 2U);
  EXPECT_EQ(stats(8).found[Source::storage], 0U);
}

TEST_F(LoadOrRecompute, asks_little_of_a_storage_it_does_not_know) {
  constexpr std::uint32_t trusted = (1U << 20) / block_bytes;  // 1 MiB
  ManagerConfig config = with_prefill(with_storage(sizes(trusted + 100), WritePolicy::write_through));
  config.pools[0].staging_blocks = trusted + 100;
  make(config, 3 * trusted);
  const std::vector<BlockKey> keys = keys_from(1, trusted + 50);
  const std::vector<BlockKey> others = keys_of({2'000'000, 2'000'001});
  run(9, others);
  run(1, keys);
  run(2, keys_from(1'000'000, trusted + 100));
  ASSERT_GT(cache->match(keys).found[Source::storage], trusted);
  ASSERT_TRUE(acquire(3, keys).has_value());
  EXPECT_EQ(stats(3).found[Source::storage], trusted);
  // No more is requested from storage before those reads have ended.
  ASSERT_EQ(cache->match(others).found[Source::storage], 2U);
  ASSERT_TRUE(acquire(4, others).has_value());
  EXPECT_EQ(stats(4).found[Source::storage], 0U);
}

TEST_F(LoadOrRecompute, counts_what_others_wait_for) {
  make(with_prefill(with_storage(sizes(8), WritePolicy::write_through)));
  run(1, keys_of({1, 2, 3}));
  run(2, keys_of({5, 6}));
  run(3, keys_of({11, 12, 13, 14, 15, 16, 17, 18}));
  ASSERT_TRUE(acquire(4, keys_of({1, 2, 3})).has_value());
  clock.advance(15ms);  // five per block: half of the time to compute it
  settle();
  release(4);
  run(5, keys_of({21, 22, 23, 24, 25, 26, 27, 28}));
  ASSERT_EQ(cache->match(keys_of({5, 6})).found[Source::storage], 2U);
  ASSERT_EQ(cache->match(keys_of({1, 2, 3})).found[Source::storage], 3U);
  ASSERT_TRUE(acquire(6, keys_of({1, 2, 3})).has_value());
  EXPECT_EQ(stats(6).found[Source::storage], 3U);
  ASSERT_TRUE(acquire(7, keys_of({5, 6})).has_value());
  EXPECT_EQ(stats(7).found[Source::storage], 0U);
}

TEST(LoadOrRecomputeConfig, that_makes_no_sense_is_refused_and_it_says_why) {
  ManagerConfig config = sizes(4);
  config.unit_prefill_seconds = -1;
  EXPECT_THROW(validate(config), std::invalid_argument);
}

}  // namespace
}  // namespace terrace::test
