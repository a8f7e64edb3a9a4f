// Inclusion policy lazy-exclusive: which host copies go first, and what keeps them.

#include "runtime/cache/index/duplicates.hpp"
#include "runtime/cache/control/cache_manager.hpp"
#include "runtime/cache/types/config.hpp"
#include "tests/runtime/fixture.hpp"

#include <optional>
#include <vector>

namespace terrace::test {
namespace {

// ---- the list

class DuplicatesTest : public testing::Test {
 protected:
  static BlockRef block(std::uint32_t depth) { return {NodeId{1}, depth}; }
  /// The depths in the order in which the copies go.
  std::vector<std::uint32_t> order() {
    std::vector<std::uint32_t> depths;
    while (const auto first = list.first()) {
      depths.push_back(first->depth);
      list.remove(SlotId{first->depth});
    }
    return depths;
  }
  void add(std::uint32_t depth, std::optional<SlotId> before = std::nullopt) { list.add(block(depth), SlotId{depth}, before); }

  Duplicates list;
};

TEST_F(DuplicatesTest, go_from_the_last_that_came) {
  for (const std::uint32_t depth : {3U, 1U, 2U}) add(depth);
  EXPECT_EQ(list.size(), 3U);
  EXPECT_EQ(order(), (std::vector<std::uint32_t>{2, 1, 3}));
  EXPECT_EQ(list.size(), 0U);
}

TEST_F(DuplicatesTest, of_one_prefix_go_from_its_begin) {
  add(7);
  add(0);
  for (const std::uint32_t depth : {1U, 2U, 3U}) add(depth, SlotId{depth - 1});
  EXPECT_EQ(order(), (std::vector<std::uint32_t>{0, 1, 2, 3, 7}));
}

TEST_F(DuplicatesTest, do_not_follow_one_that_has_gone_or_that_is_not_the_last) {
  add(0);
  list.remove(SlotId{0});
  add(1, SlotId{0});
  add(5);
  add(2, SlotId{1});
  EXPECT_EQ(order(), (std::vector<std::uint32_t>{2, 5, 1}));
}

TEST_F(DuplicatesTest, can_leave_from_anywhere_and_come_back) {
  for (const std::uint32_t depth : {1U, 2U, 3U}) add(depth);
  list.remove(SlotId{2});
  list.remove(SlotId{2});
  list.remove(SlotId{60});
  EXPECT_FALSE(list.contains(SlotId{2}));
  add(2);
  EXPECT_TRUE(list.contains(SlotId{2}));
  EXPECT_EQ(order(), (std::vector<std::uint32_t>{2, 3, 1}));
}

// ---- the tiers. Device and host have four slots each, if not said otherwise.

class LazyExclusive : public CacheFixture {
 protected:
  void make_tiers(std::uint32_t host_blocks = 4) { make(sizes(4, host_blocks, InclusionPolicy::lazy_exclusive)); }
  [[nodiscard]] const Residency& residency() const { return cache->manager().residency(); }
  [[nodiscard]] std::uint32_t copies(Tier tier, const std::vector<BlockKey>& keys) const {
    const Prefix prefix = residency().tree().find(keys);
    std::uint32_t count = 0;
    for (std::uint32_t depth = 0; depth < prefix.length; ++depth) {
      count += residency().copy(residency().tree().at(prefix, depth), tier).usable() ? 1 : 0;
    }
    return count;
  }
  [[nodiscard]] std::uint32_t in_host(const std::vector<BlockKey>& keys) const { return copies(Tier::host, keys); }
  [[nodiscard]] std::uint32_t on_device(const std::vector<BlockKey>& keys) const { return copies(Tier::device, keys); }
  [[nodiscard]] std::uint64_t down() const { return cache->moved().swap_out.blocks; }
  [[nodiscard]] std::uint64_t lost() const { return cache->manager().stats().dropped_lost; }
  /// Afterwards the device has {5, 6}, {1, 2}, and the host {1, 2} and {7, 8} of {5, 6, 7, 8}.
  void bring_up() {
    run(1, keys_of({1, 2}));
    run(2, keys_of({5, 6, 7, 8}));
    run(3, keys_of({1, 2}));
    ASSERT_EQ(on_device(keys_of({1, 2})), 2U);
    ASSERT_EQ(in_host(keys_of({1, 2})), 2U);
    ASSERT_EQ(in_host(keys_of({5, 6, 7, 8})), 2U);
  }
};

TEST_F(LazyExclusive, a_copy_stays_after_a_swap_in_as_long_as_the_host_has_free_slots) {
  make_tiers(8);
  bring_up();
  run(4, keys_of({11, 12, 13, 14}));
  EXPECT_EQ(down(), 6U) << "{1, 2} had their copies";
  EXPECT_EQ(in_host(keys_of({1, 2})), 2U);
  EXPECT_EQ(lost(), 0U);
}

TEST_F(LazyExclusive, it_goes_before_all_others) {
  make_tiers();
  bring_up();
  run(4, keys_of({11, 12}));
  EXPECT_EQ(on_device(keys_of({1, 2})), 2U);
  EXPECT_EQ(in_host(keys_of({1, 2})), 0U);
  EXPECT_EQ(in_host(keys_of({5, 6, 7, 8})), 4U);
  EXPECT_EQ(lost(), 0U);
}

TEST_F(LazyExclusive, that_of_the_block_that_leaves_the_device_last_goes_first) {
  make_tiers(5);
  run(1, keys_of({1}));
  run(2, keys_of({2}));
  run(3, keys_of({5, 6, 7, 8}));  // {1} and {2} go down
  run(4, keys_of({1}));           // {8} goes down
  run(5, keys_of({2}));           // {7} goes down
  run(6, keys_of({9}));           // {6} goes down: the host is full
  run(7, keys_of({10}));          // {5} goes down
  EXPECT_EQ(in_host(keys_of({1})), 1U);
  EXPECT_EQ(in_host(keys_of({2})), 0U);
  const std::uint64_t before = down();
  run(8, keys_of({11}));
  EXPECT_EQ(on_device(keys_of({1})), 0U) << "the oldest on the device";
  EXPECT_EQ(down(), before) << "it needed no copy";
  EXPECT_EQ(lost(), 0U);
}

TEST_F(LazyExclusive, it_goes_although_copies_that_only_the_host_has_follow_it) {
  make_tiers();
  run(1, keys_of({1, 2}));
  run(2, keys_of({5, 6, 7, 8}));
  run(3, keys_of({1, 3}));  // loads {1}; {2} stays in the host alone
  ASSERT_EQ(in_host(keys_of({1, 2})), 2U);
  run(4, keys_of({11}));  // {8}, {7} and {6} have gone down: a slot was wanted
  EXPECT_EQ(in_host(keys_of({1})), 0U);
  EXPECT_EQ(cache->match(keys_of({1, 2})).total(), 2U);
  // When the first block leaves the device, it goes down again, and the second one keeps its support.
  run(5, keys_of({21, 22, 23, 24}));
  EXPECT_EQ(on_device(keys_of({1, 2})), 0U);
  EXPECT_EQ(in_host(keys_of({1})), 1U);
  cache->manager().check_invariants();
}

TEST_F(LazyExclusive, a_device_victim_whose_copy_fails_takes_with_it_what_follows_in_the_host) {
  make_tiers();
  run(1, keys_of({1, 2}));
  run(2, keys_of({5, 6, 7}));  // {2} goes down
  ASSERT_EQ(in_host(keys_of({1, 2})), 1U);
  device->fail_next(Direction::swap_out);
  run(3, keys_of({8}));
  EXPECT_EQ(cache->match(keys_of({1, 2})).total(), 0U);
  EXPECT_EQ(resident(Tier::host), 0U);
  cache->manager().check_invariants();
}

TEST_F(LazyExclusive, a_device_victim_for_which_the_host_has_no_slot_is_dropped) {
  make_tiers(1);
  run(1, keys_of({1}));
  run(2, keys_of({5, 6, 7, 8}));  // {1} goes down
  ASSERT_TRUE(cache->pin(keys_of({1})).has_value());
  run(3, keys_of({11}));
  EXPECT_EQ(in_host(keys_of({1})), 1U);
  EXPECT_EQ(cache->match(keys_of({5, 6, 7, 8})).total(), 3U);
  EXPECT_EQ(lost(), 1U);
}

TEST_F(LazyExclusive, a_copy_that_is_being_loaded_stays) {
  make_tiers();
  run(1, keys_of({1, 2}));
  run(2, keys_of({5, 6, 7, 8}));
  device->stuck(Direction::swap_in, true);
  ASSERT_TRUE(acquire(3, keys_of({1, 2})).has_value());
  ASSERT_TRUE(acquire(4, keys_of({11, 12})).has_value());
  settle();
  EXPECT_FALSE(ready(3));
  EXPECT_TRUE(ready(4));
  EXPECT_EQ(in_host(keys_of({1, 2})), 2U) << "they are read";
  EXPECT_FALSE(residency().duplicate().has_value());
  device->stuck(Direction::swap_in, false);
  EXPECT_TRUE(ready_when_settled(3));
  EXPECT_EQ(stats(3).found[Source::host], 2U);
  EXPECT_TRUE(residency().duplicate().has_value());
}

TEST_F(LazyExclusive, a_block_that_stays_because_it_is_hit_while_it_leaves_has_such_a_copy) {
  make_tiers(8);
  run(1, keys_of({1, 2}));
  run(2, keys_of({5, 6}));
  ASSERT_TRUE(acquire(3, keys_of({8, 9})).has_value());  // evicts {1, 2}
  EXPECT_FALSE(residency().duplicate().has_value());
  ASSERT_TRUE(acquire(4, keys_of({1, 2})).has_value());
  settle();
  EXPECT_EQ(on_device(keys_of({1, 2})), 2U);
  EXPECT_EQ(in_host(keys_of({1, 2})), 2U);
  EXPECT_TRUE(residency().duplicate().has_value());
}

TEST_F(LazyExclusive, the_copy_of_a_pinned_block_goes_because_the_device_keeps_the_block) {
  make_tiers();
  bring_up();
  const PinId pin = cache->pin(keys_of({1, 2})).value();
  run(4, keys_of({11, 12}));
  EXPECT_EQ(in_host(keys_of({1, 2})), 0U);
  run(5, keys_of({21, 22}));
  EXPECT_EQ(on_device(keys_of({1, 2})), 2U);
  ASSERT_TRUE(cache->unpin(pin).has_value());
}

TEST_F(LazyExclusive, the_copy_of_a_retained_block_goes_and_the_block_stays_before_others) {
  make_tiers();
  bring_up();
  ASSERT_TRUE(cache->retain(keys_of({1, 2}), highest_priority).has_value());
  run(4, keys_of({11, 12}));
  EXPECT_EQ(in_host(keys_of({1, 2})), 0U);
  run(5, keys_of({21, 22}));
  run(6, keys_of({31, 32}));
  run(7, keys_of({41, 42}));
  run(8, keys_of({51, 52}));
  EXPECT_EQ(cache->match(keys_of({1, 2})).total(), 2U);
}

TEST_F(LazyExclusive, whoever_is_over_a_quota_the_copy_of_a_block_on_the_device_goes_first) {
  make_tiers();
  ASSERT_TRUE(cache->set_quota(TenantId{}, {4, 1}).has_value());
  bring_up();
  run(4, keys_of({11, 12}));
  EXPECT_EQ(in_host(keys_of({1, 2})), 0U);
  EXPECT_EQ(in_host(keys_of({5, 6, 7, 8})), 4U) << "they are over the quota, but what goes first costs nothing";
  EXPECT_EQ(lost(), 0U);
}

TEST_F(LazyExclusive, it_is_not_written_to_storage_before_it_goes) {
  make(with_storage(sizes(4, 4, InclusionPolicy::lazy_exclusive), WritePolicy::write_back));
  bring_up();
  run(4, keys_of({11, 12}));
  settle();
  EXPECT_EQ(in_host(keys_of({1, 2})), 0U);
  EXPECT_EQ(cache->moved().storage_writes.blocks, 0U);
}

TEST(Residency, keeps_the_bytes_of_a_duplicate_that_goes_while_it_is_being_written) {
  ManagerConfig config = sizes(2, 2, InclusionPolicy::lazy_exclusive);
  config.pools[0].staging_blocks = 1;
  KvEvents events;
  Residency residency{config, config.pools[0], events};
  const auto keys = keys_of({1});
  const Prefix prefix = residency.extend_pinned({}, keys, {}, {});
  std::vector<SlotId> slots;
  residency.take_device(1, std::nullopt, slots);
  residency.adopt_added(prefix, slots, Fence{});
  const SlotId slot = residency.take_host(Residency::PrefixOrder::from_begin).value();
  residency.begin_fill(prefix.last(), Tier::host, slot);
  EXPECT_FALSE(residency.duplicate().has_value()) << "its bytes are on their way";
  residency.publish(prefix.last(), Tier::host);

  ASSERT_EQ(residency.lend_host(prefix.last()), slot);
  ASSERT_TRUE(residency.duplicate().has_value());
  residency.drop(*residency.duplicate(), Tier::host);
  EXPECT_FALSE(residency.duplicate().has_value());
  EXPECT_EQ(residency.slots_of(Tier::host).state(slot), SlotState::held) << "the writer still reads it";
  EXPECT_EQ(residency.host_free(), 2U) << "the host has its room all the same";
  EXPECT_EQ(residency.staging_free(), 0U);
  residency.check_invariants();
  residency.end_staging(slot);
  EXPECT_EQ(residency.slots_of(Tier::host).state(slot), SlotState::free);
  residency.unpin(prefix);
  residency.check_invariants();
}

TEST_F(LazyExclusive, what_comes_from_storage_evicts_no_copy_that_only_the_host_has) {
  ManagerConfig config = with_storage(sizes(4, 4, InclusionPolicy::lazy_exclusive), WritePolicy::write_through);
  config.loads = LoadPolicy::always;
  make(config);
  run(1, keys_of({1, 2}));
  ASSERT_EQ(cache->drop(keys_of({1, 2})).value(), 2U);
  run(2, keys_of({5, 6, 7, 8}));
  run(3, keys_of({11, 12, 13, 14}));  // the host is full with {5, 6, 7, 8}
  ASSERT_EQ(cache->drop(keys_of({11, 12, 13, 14})).value(), 4U);
  run(4, keys_of({1, 2}));
  EXPECT_EQ(cache->moved().storage_reads.blocks, 2U);
  EXPECT_EQ(in_host(keys_of({1, 2})), 0U);
  EXPECT_EQ(in_host(keys_of({5, 6, 7, 8})), 4U);
}

TEST_F(LazyExclusive, what_is_prefetched_takes_the_slots_of_duplicates_first) {
  ManagerConfig config = with_storage(sizes(4, 4, InclusionPolicy::lazy_exclusive), WritePolicy::write_through);
  config.loads = LoadPolicy::always;
  make(config);
  run(10, keys_of({31}));
  ASSERT_EQ(cache->drop(keys_of({31})).value(), 1U);
  bring_up();
  PrefetchOrder order;
  const auto wanted = keys_of({31});
  order.keys = wanted;
  ASSERT_TRUE(cache->prefetch(order).has_value());
  settle();
  EXPECT_EQ(in_host(wanted), 1U);
  EXPECT_EQ(in_host(keys_of({1, 2})), 1U);
  EXPECT_EQ(in_host(keys_of({5, 6, 7, 8})), 2U);
}

TEST_F(LazyExclusive, a_host_that_is_made_smaller_gives_them_up_first) {
  make_tiers();
  bring_up();
  ASSERT_TRUE(cache->resize(Tier::host, Blocks{2}).has_value());
  settle();
  EXPECT_EQ(in_host(keys_of({1, 2})), 0U);
  EXPECT_EQ(in_host(keys_of({5, 6, 7, 8})), 2U);
  EXPECT_EQ(cache->match(keys_of({1, 2})).found[Source::device], 2U);
  EXPECT_EQ(lost(), 0U);
}

}  // namespace
}  // namespace terrace::test
