// Loads that several requests wait for, and loads that no request waits for any more.

#include "runtime/cache/control/cache_manager.hpp"
#include "runtime/cache/types/config.hpp"
#include "tests/runtime/fixture.hpp"

#include <chrono>

namespace terrace {
namespace {

using namespace std::chrono_literals;
using test::keys_of;
using test::sizes;

class SharedLoads : public test::CacheFixture {
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
    AcquireRequest wanted = request(id, keys);
    wanted.deadline = deadline;
    leases[id] = cache->acquire(wanted).value();
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
  [[nodiscard]] const ManagerStats& totals() const { return cache->manager().stats(); }
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
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(events[0].id, RequestId{4});
  EXPECT_EQ(events[0].error, Errc::deadline_exceeded);
  EXPECT_EQ(cache->manager().device_ledger().quarantined, 0U);
  EXPECT_GT(cache->next_deadline(), clock.now() + 10s) << "only the link is looked at again";
  device->stuck(Direction::swap_in, false);
  settle();
  ASSERT_TRUE(ready(5));
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

class ReleasedLoads : public test::CacheFixture {};

TEST_F(ReleasedLoads, give_their_device_slots_back_though_storage_stands_still) {
  ManagerConfig config = test::with_storage(sizes(6), WritePolicy::write_through);
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

}  // namespace
}  // namespace terrace
