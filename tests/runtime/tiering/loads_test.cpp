// Loads that several requests wait for, and loads that no request waits for any more.

#include "tests/runtime/fixture.hpp"

namespace terrace {
namespace {

using test::keys_of;
using test::sizes;

/// Blocks 1 and 2 are in the host, and other blocks fill the device.
class SharedLoads : public test::CacheFixture {
 protected:
  void make_with_full_device(ManagerConfig config) {
    config.policy = lru_policy;
    make(config);
    run(1, keys_of({1, 2}));
    run(2, keys_of({11, 12, 13, 14, 15, 16}));
    run(3, keys_of({21, 22}));
    ASSERT_EQ(cache->match(keys_of({1, 2})).host, 2U);
    events.clear();
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
  EXPECT_EQ(cache->match(keys_of({1, 2})).device, 2U);
  EXPECT_EQ(totals().load_failures, 0U);
  EXPECT_EQ(totals().replans, 0U);
  EXPECT_TRUE(events.empty());
  device->stuck(Direction::swap_out, false);
  settle();
  for (const std::uint64_t id : {5U, 6U}) {
    ASSERT_TRUE(ready(id)) << id;
    EXPECT_EQ(stats(id).host, 2U);
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
  EXPECT_EQ(cache->match(keys_of({1, 2})).host, 2U);
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
  settle();
  EXPECT_EQ(totals().load_failures, 2U) << "the load was cancelled";
  EXPECT_EQ(totals().replans, 0U) << "the request has kept its place in the line";
  ASSERT_TRUE(ready(5));
  EXPECT_EQ(stats(5).host, 2U);
}

}  // namespace
}  // namespace terrace
