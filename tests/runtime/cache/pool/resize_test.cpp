// Pools that become larger and smaller while they serve.

#include "runtime/cache/control/cache_manager.hpp"
#include "runtime/cache/types/config.hpp"
#include "tests/runtime/fixture.hpp"

namespace terrace::test {
namespace {

class Resize : public CacheFixture {
 protected:
  [[nodiscard]] Result<void> resize(Tier tier, Blocks blocks) {
    const Result<void> done = cache->resize(tier, blocks);
    cache->manager().check_invariants();
    return done;
  }
  [[nodiscard]] MatchResult found(const std::vector<BlockKey>& keys) const { return cache->match(keys); }
};

TEST_F(Resize, a_larger_device_pool_serves_what_did_not_fit_and_keeps_what_is_cached) {
  device_blocks_max = 70;
  make(sizes(4));
  run(1, keys_of({1, 2, 3}));
  ASSERT_TRUE(acquire(2, keys_of({1})).has_value());
  EXPECT_EQ(acquire(3, keys_of({11, 12, 13, 14, 15})).error(), Errc::never_fits);
  ASSERT_TRUE(resize(Tier::device, 70).has_value());
  EXPECT_EQ(free_on_device(), 67U);
  ASSERT_TRUE(acquire(3, keys_of({11, 12, 13, 14, 15})).has_value());
  EXPECT_TRUE(ready(3));
  EXPECT_EQ(found(keys_of({1, 2, 3})).found[Source::device], 3U);
  EXPECT_EQ(cache->manager().usage(Tier::device).blocks, 70U);
}

TEST_F(Resize, new_device_slots_are_loaded_into) {
  device_blocks_max = 8;
  make(sizes(2, 8));
  run(1, keys_of({1, 2}));
  run(2, keys_of({5, 6}));
  ASSERT_TRUE(resize(Tier::device, 8).has_value());
  ASSERT_TRUE(acquire(3, keys_of({7, 8})).has_value());
  ASSERT_TRUE(acquire(4, keys_of({1, 2})).has_value());
  ASSERT_TRUE(ready_when_settled(4));
  EXPECT_EQ(stats(4).found[Source::host], 2U);
  EXPECT_GE(table(4)[0].value(), 4U);
}

TEST_F(Resize, free_slots_retire_at_once_and_nothing_is_lost) {
  make(sizes(8));
  run(1, keys_of({1, 2, 3}));
  ASSERT_TRUE(resize(Tier::device, 3).has_value());
  EXPECT_EQ(cache->retiring(Tier::device), 0U);
  EXPECT_EQ(found(keys_of({1, 2, 3})).found[Source::device], 3U);
  EXPECT_EQ(cache->manager().device_ledger().retired, 5U);
  EXPECT_EQ(acquire(2, keys_of({11, 12, 13, 14})).error(), Errc::never_fits);
  run(3, keys_of({11, 12, 13}));
  EXPECT_EQ(found(keys_of({11, 12, 13})).found[Source::device], 3U);
}

TEST_F(Resize, what_is_cached_in_the_highest_slots_goes_down_with_what_follows_it) {
  make(sizes(6, 8));
  ASSERT_TRUE(acquire(9, keys_of({9, 8})).has_value());  // slots 0 and 1
  run(1, keys_of({1, 2, 3, 4}));                         // slots 2 to 5
  ASSERT_TRUE(commit(9, keys_of({9, 8})).has_value());
  release(9);
  run(2, keys_of({1, 2, 3, 4}));
  ASSERT_TRUE(resize(Tier::device, 3).has_value());
  EXPECT_EQ(cache->retiring(Tier::device), 3U);  // until the device has confirmed the copies
  settle();
  EXPECT_EQ(cache->retiring(Tier::device), 0U);
  EXPECT_EQ(found(keys_of({1, 2, 3, 4})).found[Source::device], 1U);
  EXPECT_EQ(found(keys_of({1, 2, 3, 4})).found[Source::host], 3U);
  EXPECT_EQ(found(keys_of({9, 8})).found[Source::device], 2U);
}

TEST_F(Resize, without_a_tier_below_it_is_dropped) {
  make(sizes(6));
  run(1, keys_of({1, 2, 3, 4}));
  ASSERT_TRUE(resize(Tier::device, 2).has_value());
  EXPECT_EQ(cache->retiring(Tier::device), 0U);
  EXPECT_EQ(found(keys_of({1, 2, 3, 4})).found[Source::device], 2U);
}

TEST_F(Resize, under_write_back_it_is_stored) {
  make(with_storage(sizes(4), WritePolicy::write_back));
  run(1, keys_of({1, 2, 3, 4}));
  ASSERT_TRUE(resize(Tier::device, 1).has_value());
  settle();
  EXPECT_EQ(cache->retiring(Tier::device), 0U);
  EXPECT_EQ(found(keys_of({1, 2, 3, 4})).found[Source::device], 1U);
  EXPECT_EQ(found(keys_of({1, 2, 3, 4})).found[Source::storage], 3U);
  EXPECT_EQ(cache->manager().device_ledger().retired, 3U);
}

TEST_F(Resize, what_is_held_retires_when_its_holder_lets_go) {
  make(sizes(8));
  ASSERT_TRUE(acquire(1, keys_of({1, 2})).has_value());
  ASSERT_TRUE(acquire(2, keys_of({5, 6})).has_value());
  release(1);
  ASSERT_TRUE(resize(Tier::device, 2).has_value());
  EXPECT_EQ(cache->retiring(Tier::device), 2U);
  ASSERT_TRUE(commit(2, keys_of({5, 6})).has_value());  // cached now, and still held
  EXPECT_EQ(cache->retiring(Tier::device), 2U);
  ASSERT_TRUE(acquire(3, keys_of({5})).has_value());
  release(2);
  EXPECT_EQ(cache->retiring(Tier::device), 1U);
  EXPECT_EQ(found(keys_of({5, 6})).found[Source::device], 1U);
  release(3);
  EXPECT_EQ(cache->retiring(Tier::device), 0U);
  EXPECT_EQ(resident(Tier::device), 0U);
}

TEST_F(Resize, notices_the_end_of_a_pin_though_another_pin_has_begun) {
  make(sizes(8));
  run(1, keys_of({1}));                                     // slot 0
  ASSERT_TRUE(acquire(9, keys_of({9, 8, 7})).has_value());  // slots 1 to 3
  run(2, keys_of({5}));                                     // slot 4
  release(9);
  const PinId pin = cache->pin(keys_of({5})).value();
  ASSERT_TRUE(resize(Tier::device, 4).has_value());
  ASSERT_EQ(cache->retiring(Tier::device), 1U);
  ASSERT_TRUE(cache->pin(keys_of({1})).has_value());
  ASSERT_TRUE(cache->unpin(pin).has_value());
  EXPECT_EQ(cache->retiring(Tier::device), 0U);
}

TEST_F(Resize, less_than_is_held_pinned_and_promised_is_refused) {
  make(sizes(8, 8));
  run(1, keys_of({1, 2}));
  const PinId pin = cache->pin(keys_of({1, 2})).value();
  run(2, keys_of({21, 22, 23, 24}));
  ASSERT_TRUE(acquire(3, keys_of({3})).has_value());
  ASSERT_TRUE(acquire(4, keys_of({31, 32})).has_value());
  ASSERT_FALSE(ready(4));  // one of its slots is still being swapped out
  EXPECT_EQ(resize(Tier::device, 4).error(), Errc::no_room);
  EXPECT_EQ(cache->retiring(Tier::device), 0U);
  ASSERT_TRUE(resize(Tier::device, 5).has_value());
  EXPECT_TRUE(ready_when_settled(4));
  EXPECT_EQ(found(keys_of({1, 2})).found[Source::device], 2U);
  ASSERT_TRUE(cache->unpin(pin).has_value());
}

TEST_F(Resize, a_request_that_was_accepted_before_is_planned_again_by_what_it_needs_now) {
  make(sizes(8, 16));
  run(1, keys_of({1, 2}));
  run(2, keys_of({11, 12, 13, 14, 15, 16, 17, 18}));
  ASSERT_EQ(found(keys_of({1, 2})).found[Source::host], 2U);
  const auto keys = keys_of({1, 2, 3, 4, 5, 6});
  AcquireRequest wanted = request(3, keys);
  wanted.new_units_max = 1;  // two blocks are loaded, one is computed, three come later
  device->stuck(Direction::swap_in, true);
  leases[3] = cache->acquire(wanted).value();
  settle();
  ASSERT_EQ(device->commands(Direction::swap_in), 1U);
  EXPECT_EQ(resize(Tier::device, 2).error(), Errc::no_room) << "it holds three slots";
  ASSERT_TRUE(resize(Tier::device, 4).has_value());
  device->fail_next(Direction::swap_in);
  device->stuck(Direction::swap_in, false);
  settle();
  EXPECT_EQ(cache->manager().stats().replans, 1U);
  ASSERT_TRUE(ready(3));
  EXPECT_EQ(stats(3).found[Source::host], 2U);
  // Now it runs as far as the pool allows, and the engine is told. A new request of this size is refused.
  EXPECT_EQ(cache->extend(leases.at(3), 3).error(), Errc::never_fits);
  EXPECT_TRUE(cache->extend(leases.at(3), 1).has_value());
  EXPECT_EQ(acquire(4, keys_of({21, 22, 23, 24, 25, 26})).error(), Errc::never_fits);
}

TEST_F(Resize, a_slot_that_will_retire_is_promised_to_nobody) {
  make(sizes(6));
  run(1, keys_of({1, 2, 3}));
  ASSERT_TRUE(acquire(2, keys_of({5, 6, 7})).has_value());  // the upper half
  ASSERT_TRUE(acquire(3, keys_of({1})).has_value());
  ASSERT_TRUE(commit(2, keys_of({5, 6, 7})).has_value());
  ASSERT_TRUE(resize(Tier::device, 4).has_value());
  // Slots 1 and 2 can be used; 0 and 3 are held, and 4 and 5 have cached blocks but must retire.
  EXPECT_EQ(acquire(4, keys_of({8, 9, 10})).error(), Errc::no_room);
  ASSERT_TRUE(acquire(4, keys_of({8, 9})).has_value());
  ASSERT_TRUE(ready(4));
  EXPECT_EQ(cache->extend(leases.at(4), 1).error(), Errc::no_room);
  for (const SlotId slot : table(4)) EXPECT_LT(slot.value(), 4U);
  release(2);
  EXPECT_EQ(cache->retiring(Tier::device), 0U);
  ASSERT_TRUE(cache->extend(leases.at(4), 1).has_value());
  EXPECT_LT(table(4).back().value(), 4U);
}

TEST_F(Resize, nor_is_a_slot_that_retires_as_soon_as_its_copy_has_gone_down) {
  make(sizes(6, 12, InclusionPolicy::inclusive));
  run(1, keys_of({1, 2, 3}));
  ASSERT_TRUE(acquire(2, keys_of({5, 6, 7})).has_value());  // the upper half
  ASSERT_TRUE(acquire(3, keys_of({1})).has_value());
  ASSERT_TRUE(commit(2, keys_of({5, 6, 7})).has_value());
  release(2);
  ASSERT_EQ(cache->manager().readers(), 3U);
  ASSERT_TRUE(resize(Tier::device, 4).has_value());
  // Slots 1 to 5 are not held, but two of them must retire: three can be used, and the usage says so.
  EXPECT_EQ(cache->manager().usage(Tier::device).evictable, 3U);
  EXPECT_EQ(acquire(4, keys_of({8, 9, 10, 11})).error(), Errc::no_room);
  ASSERT_TRUE(acquire(4, keys_of({8, 9, 10})).has_value());
  ASSERT_TRUE(ready_when_settled(4));
  for (const SlotId slot : table(4)) EXPECT_LT(slot.value(), 4U);
}

TEST_F(Resize, what_is_committed_into_a_retiring_slot_is_known_after_the_prefix_it_came_with_has_gone) {
  make(sizes(8, 16));
  run(1, keys_of({1, 2, 3}));
  run(2, keys_of({1, 2, 4}));
  run(3, keys_of({11, 12, 13, 14, 15, 16, 17, 18}));  // the others are in the host now
  ASSERT_EQ(cache->drop(keys_of({11, 12, 13, 14, 15, 16, 17, 18})).value(), 8U);
  ASSERT_TRUE(acquire(9, keys_of({21, 22, 23, 24, 25})).has_value());  // slots 0 to 4
  const auto keys = keys_of({1, 2, 3});
  acquire_with(4, keys, [](AcquireRequest& wanted) { wanted.hit_units_max = 0; });
  release(9);
  ASSERT_TRUE(resize(Tier::device, 5).has_value());
  ASSERT_EQ(cache->retiring(Tier::device), 3U);
  ASSERT_TRUE(commit(4, keys).has_value());
  ASSERT_TRUE(acquire(5, keys_of({1, 2})).has_value());
  release(4);
  EXPECT_EQ(cache->retiring(Tier::device), 2U);
  ASSERT_TRUE(cache->drop(keys).has_value());  // the third block has left the tree, and its place there is used by others
  run(6, keys_of({31}));
  cache->manager().check_invariants();
  release(5);
  EXPECT_EQ(cache->retiring(Tier::device), 0U);
  EXPECT_EQ(cache->match(keys_of({1, 2, 4})).found[Source::host], 3U);
}

TEST_F(Resize, a_second_resize_takes_the_place_of_the_first) {
  make(sizes(8));
  ASSERT_TRUE(acquire(1, keys_of({1, 2, 3, 4})).has_value());
  ASSERT_TRUE(acquire(2, keys_of({5, 6})).has_value());  // slots 4 and 5
  release(1);
  ASSERT_TRUE(resize(Tier::device, 3).has_value());
  EXPECT_EQ(cache->retiring(Tier::device), 2U);
  ASSERT_TRUE(resize(Tier::device, 5).has_value());
  EXPECT_EQ(cache->retiring(Tier::device), 1U);
  EXPECT_EQ(free_on_device(), 4U);
  ASSERT_TRUE(resize(Tier::device, 8).has_value());
  EXPECT_EQ(cache->retiring(Tier::device), 0U);
  EXPECT_EQ(free_on_device(), 6U);
  ASSERT_TRUE(commit(2, keys_of({5, 6})).has_value());
  release(2);
  EXPECT_EQ(found(keys_of({5, 6})).found[Source::device], 2U);
}

TEST_F(Resize, a_larger_host_tier_takes_in_more) {
  make(sizes(2, 2));
  EXPECT_EQ(resize(Tier::host, Copy::slots_max).error(), Errc::never_fits);
  ASSERT_TRUE(resize(Tier::host, 8).has_value());
  settle();
  for (std::uint32_t id = 1; id <= 5; ++id) run(id, keys_of({id * 10, id * 10 + 1}));
  EXPECT_EQ(resident(Tier::host), 8U);
  EXPECT_EQ(found(keys_of({10, 11})).found[Source::host], 2U);
}

TEST_F(Resize, a_host_tier_can_begin_and_end) {
  make(sizes(2));
  ASSERT_TRUE(resize(Tier::host, 4).has_value());
  settle();
  run(1, keys_of({1, 2}));
  run(2, keys_of({5, 6}));
  EXPECT_EQ(found(keys_of({1, 2})).found[Source::host], 2U);
  ASSERT_TRUE(resize(Tier::host, 0).has_value());
  EXPECT_EQ(cache->retiring(Tier::host), 0U);
  EXPECT_EQ(resident(Tier::host), 0U);
  run(3, keys_of({7, 8}));
  EXPECT_EQ(resident(Tier::host), 0U);
}

TEST_F(Resize, a_smaller_host_tier_keeps_what_was_used_last) {
  make(sizes(2, 8));
  for (std::uint32_t id = 1; id <= 5; ++id) run(id, keys_of({id * 10, id * 10 + 1}));
  ASSERT_EQ(resident(Tier::host), 8U);
  ASSERT_TRUE(resize(Tier::host, 4).has_value());
  EXPECT_EQ(cache->retiring(Tier::host), 0U);
  EXPECT_EQ(found(keys_of({10, 11})).found[Source::host] + found(keys_of({20, 21})).found[Source::host], 0U);
  EXPECT_EQ(found(keys_of({30, 31})).found[Source::host], 2U);
  EXPECT_EQ(found(keys_of({40, 41})).found[Source::host], 2U);
  EXPECT_EQ(cache->manager().host_ledger().retired, 4U);
}

TEST_F(Resize, a_smaller_host_tier_writes_back_what_lives_nowhere_else) {
  make(with_storage(sizes(2, 6), WritePolicy::write_back));
  for (std::uint32_t id = 1; id <= 4; ++id) run(id, keys_of({id * 10, id * 10 + 1}));
  ASSERT_EQ(store->stat().blocks, 0U);
  ASSERT_TRUE(resize(Tier::host, 2).has_value());
  EXPECT_EQ(resident(Tier::host), 2U);
  EXPECT_EQ(store->stat().blocks, 0U) << "written later, from slots that are staging now";
  EXPECT_EQ(cache->manager().host_ledger().held, 4U);
  settle();
  EXPECT_EQ(cache->manager().host_ledger().held, 0U);
  EXPECT_EQ(cache->retiring(Tier::host), 0U);
  for (const std::uint32_t prefix : {10U, 20U, 30U}) EXPECT_EQ(found(keys_of({prefix, prefix + 1})).total(), 2U);
}

TEST_F(Resize, what_a_smaller_host_tier_still_has_to_save_is_not_dropped_for_an_eviction) {
  make(with_storage(sizes(2, 20), WritePolicy::write_back));
  for (std::uint32_t id = 1; id <= 11; ++id) run(id, keys_of({id * 10, id * 10 + 1}));
  ASSERT_EQ(resident(Tier::host), 20U);
  ASSERT_TRUE(resize(Tier::host, 4).has_value());
  ASSERT_EQ(resident(Tier::host), 16U) << "staging takes four at a time";
  EXPECT_EQ(cache->usage(Tier::host).evictable, 4U) << "the other copies go";
  run(12, keys_of({120, 121}));
  settle();
  EXPECT_EQ(resident(Tier::host), 4U);
  std::uint32_t lost = 0;
  for (std::uint32_t id = 1; id <= 11; ++id) lost += 2 - found(keys_of({id * 10, id * 10 + 1})).total();
  EXPECT_EQ(lost, cache->manager().stats().store_no_room);
  EXPECT_LE(lost, 2U) << "those that had to leave the device at once, at most";
}

TEST_F(Resize, a_smaller_host_tier_saves_though_storage_failed_a_write_long_ago) {
  make(with_storage(sizes(2, 20), WritePolicy::write_back));
  for (std::uint32_t id = 1; id <= 11; ++id) run(id, keys_of({id * 10, id * 10 + 1}));
  store->fail_next_write();
  ASSERT_TRUE(resize(Tier::host, 19).has_value());
  settle();
  ASSERT_EQ(cache->manager().stats().store_failed, 1U);
  ASSERT_TRUE(resize(Tier::host, 4).has_value());
  settle();
  EXPECT_EQ(resident(Tier::host), 4U);
  EXPECT_EQ(cache->manager().stats().store_failed, 1U);
  for (std::uint32_t id = 2; id <= 11; ++id) EXPECT_EQ(found(keys_of({id * 10, id * 10 + 1})).total(), 2U) << id;
}

TEST_F(Resize, storage_becomes_larger_and_smaller) {
  make(with_storage(sizes(2, 0), WritePolicy::write_through));
  const std::uint64_t before = store->stat().capacity_blocks;
  for (std::uint32_t id = 1; id <= 6; ++id) run(id, keys_of({id * 10, id * 10 + 1}));
  settle();
  ASSERT_EQ(store->stat().blocks, 12U);
  ASSERT_TRUE(resize(Tier::storage, 4).has_value());
  settle();
  EXPECT_EQ(store->stat().capacity_blocks, 4U);
  for (const std::uint32_t prefix : {50U, 60U}) EXPECT_EQ(found(keys_of({prefix, prefix + 1})).total(), 2U);
  for (const std::uint32_t prefix : {10U, 20U, 30U, 40U}) EXPECT_EQ(found(keys_of({prefix, prefix + 1})).total(), 0U);
  ASSERT_TRUE(resize(Tier::storage, Blocks{static_cast<std::uint32_t>(before) + 7}).has_value());
  for (std::uint32_t id = 7; id <= 9; ++id) run(id, keys_of({id * 10, id * 10 + 1}));
  settle();
  EXPECT_EQ(store->stat().capacity_blocks, before + 7);
  for (std::uint32_t prefix = 50; prefix <= 90; prefix += 10)
    EXPECT_EQ(found(keys_of({prefix, prefix + 1})).total(), 2U) << prefix;
  EXPECT_EQ(resize(Tier::storage, 0).error(), Errc::invalid_argument);
}

TEST_F(Resize, what_makes_no_sense_is_refused) {
  ManagerConfig config = sizes(4);
  config.pools[0].null_block = true;
  make(config);
  EXPECT_EQ(resize(Tier::device, 1).error(), Errc::invalid_argument);
  EXPECT_EQ(resize(Tier::storage, 4).error(), Errc::invalid_argument);
  EXPECT_EQ(resize(Tier::device, Copy::slots_max).error(), Errc::never_fits);
  EXPECT_EQ(cache->manager().usage(Tier::device).blocks, 3U);
}

}  // namespace
}  // namespace terrace::test
