// Several groups with tiers below the device: the content of a window or a state comes back byte for byte.

#include "runtime/cache/control/cache_manager.hpp"
#include "runtime/cache/types/config.hpp"
#include "runtime/engine/cache_parts.hpp"
#include "tests/runtime/fixture.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>

namespace terrace {
namespace {

class GroupsTiers : public test::CacheFixture {
 protected:
  static constexpr GroupId full{0};
  static constexpr GroupId window{1};
  static constexpr PoolId small{0};
  static constexpr PoolId large{1};

  static ManagerConfig model(std::uint32_t host_blocks, bool storage) {
    ManagerConfig config;
    GroupConfig attention;
    GroupConfig sliding;
    sliding.kind = GroupKind::sliding_window;
    sliding.span_tokens = 3;
    sliding.pool = large;
    config.groups = {attention, sliding};
    PoolSizes pool;
    pool.null_block = true;
    pool.device_blocks = 8;
    pool.host_blocks = host_blocks;
    config.pools[0].device_blocks = 8;
    config.pools[0].host_blocks = host_blocks;
    config.pools.push_back(pool);
    config.storage = storage;
    if (storage) config.write_policy = WritePolicy::write_through;
    return config;
  }
  [[nodiscard]] static std::byte mark(GroupId group, std::size_t block) {
    return static_cast<std::byte>(16 * (group.value() + 1) + block);
  }
  /// Acquires, writes a mark into every block, commits and releases.
  void compute(std::uint64_t id, const std::vector<BlockKey>& keys) {
    ASSERT_TRUE(acquire(id, keys).has_value());
    ASSERT_TRUE(ready_when_settled(id));
    const auto work = [&](GroupId group, PoolId pool) {
      return device->launch([group, pool, slots = table(id, group)](BlockAccess& access) {
        std::vector<std::byte> scratch(block_bytes_of(pool));
        for (std::size_t i = 0; i < slots.size(); ++i) {
          std::ranges::fill(access.write_target(pool, slots[i], scratch), mark(group, i));
          access.written(pool, slots[i], scratch);
        }
      });
    };
    work(full, small);
    const Fence written = work(window, large);
    ASSERT_TRUE(cache->commit(leases.at(id), keys, written).has_value());
    release(id);
    settle();
  }
  /// True if all blocks in the table have their marks.
  [[nodiscard]] bool reads(std::uint64_t id, GroupId group, PoolId pool, std::size_t from, std::size_t to) {
    bool right = true;
    const auto slots = table(id, group);
    device->launch([&](BlockAccess& access) {
      std::vector<std::byte> scratch(block_bytes_of(pool));
      for (std::size_t i = from; i < to; ++i) {
        const auto block = access.read(pool, slots[i], scratch);
        right &= block.size() == block_bytes_of(pool);
        right &= std::ranges::all_of(block, [&](std::byte b) { return b == mark(group, i); });
      }
    });
    settle();
    return right;
  }
};

TEST_F(GroupsTiers, what_left_for_the_host_comes_back_byte_for_byte_in_every_group) {
  make(model(20, false));
  const auto keys = test::keys_of({1, 1, 1, 1, 1});
  compute(1, keys);
  compute(2, test::keys_of({2, 2, 2, 2, 2, 2}));
  compute(3, test::keys_of({3, 3, 3, 3, 3, 3}));
  EXPECT_EQ(cache->match(keys).found[Source::host], 5U);
  ASSERT_TRUE(acquire(4, keys).has_value());
  ASSERT_TRUE(ready_when_settled(4));
  EXPECT_EQ(stats(4).found[Source::host], 5U);
  EXPECT_TRUE(reads(4, full, small, 0, 5));
  EXPECT_TRUE(reads(4, window, large, 3, 5));
  EXPECT_EQ(table(4, window)[2], SlotId{0});
}

TEST_F(GroupsTiers, a_prefetch_brings_what_each_group_needs_up_to_the_host) {
  make(model(20, true));
  const auto keys = test::keys_of({1, 1, 1, 1, 1});
  compute(1, keys);
  ASSERT_TRUE(cache->drop(keys).has_value());
  ASSERT_EQ(cache->match(keys).found[Source::storage], 5U);
  PrefetchOrder order;
  order.keys = keys;
  ASSERT_TRUE(cache->prefetch(order).has_value());
  settle();
  EXPECT_EQ(cache->match(keys).found[Source::host], 5U);
  EXPECT_EQ(cache->prefetch_totals().from_storage, 5U + 2U) << "of the window only the last blocks";
  ASSERT_TRUE(acquire(2, keys).has_value());
  ASSERT_TRUE(ready_when_settled(2));
  EXPECT_EQ(stats(2).found[Source::host], 5U);
  EXPECT_TRUE(reads(2, full, small, 0, 5));
  EXPECT_TRUE(reads(2, window, large, 3, 5));
}

TEST_F(GroupsTiers, a_hit_counts_under_the_lowest_tier_that_any_group_wants_it_from) {
  make(model(20, false));
  const auto keys = test::keys_of({1, 1, 1, 1, 1});
  compute(1, keys);
  // Evicts the window blocks and no others: five of these and two of that prompt fit the small pool.
  ASSERT_TRUE(acquire(2, test::keys_of({1, 1, 1, 1, 1, 2, 2})).has_value());
  settle();
  release(2);
  const auto there = cache->match(keys);
  EXPECT_EQ(there.total(), 5U);
  std::vector<BlockKey> window_keys{key_in_group(keys[4], window)};
  const PrefixTree& tree = cache->manager().residency(large).tree();
  EXPECT_EQ(tree.find(window_keys).length, 1U);
}

TEST_F(GroupsTiers, a_failed_load_of_one_group_is_planned_again_for_all) {
  make(model(20, false));
  const auto keys = test::keys_of({1, 1, 1, 1, 1});
  compute(1, keys);
  compute(2, test::keys_of({2, 2, 2, 2, 2, 2}));
  compute(3, test::keys_of({3, 3, 3, 3, 3, 3}));
  // The load of each group is one transfer. Both fail twice, so that the request does not try the hit a third time.
  for (int i = 0; i < 4; ++i) device->fail_next(Direction::swap_in);
  ASSERT_TRUE(acquire(4, keys).has_value());
  ASSERT_TRUE(ready_when_settled(4));
  EXPECT_EQ(stats(4).miss, 5U);
  EXPECT_GT(cache->manager().stats().replans, 0U);
  for (const SlotId slot : table(4, window)) EXPECT_NE(slot, SlotId{0});
}

TEST_F(GroupsTiers, whoever_counts_on_any_block_of_a_failed_load_plans_again) {
  ManagerConfig config = model(20, false);
  config.pools[0].device_blocks = 40;
  make(config);
  const auto keys = test::keys_of({1, 1, 1, 1, 1, 1});
  compute(1, keys);
  compute(2, test::keys_of({2, 2, 2, 2, 2, 2, 2}));  // of the first prompt, only window blocks are evicted
  ASSERT_EQ(cache->match(keys).found[Source::host], 2U);
  // One load brings the fourth and the fifth block. The other request waits for the fifth and the sixth.
  AcquireRequest shorter = request(3, keys);
  shorter.hit_units_max = 5;
  leases[3] = cache->acquire(shorter).value();
  ASSERT_TRUE(acquire(4, keys).has_value());
  ASSERT_FALSE(ready(4));
  device->fail_next(Direction::swap_in);
  ASSERT_TRUE(ready_when_settled(3));
  ASSERT_TRUE(ready(4));
  EXPECT_EQ(cache->manager().stats().replans, 2U);
  EXPECT_TRUE(reads(4, window, large, 4, 6));
}

/// The slot of a window block that was given up is filled from the host while compute may still read or write the slot.
class GivenUp : public GroupsTiers {
 protected:
  const std::vector<BlockKey> in_host = test::keys_of({2, 2});

  void SetUp() override {
    ManagerConfig config = model(20, false);
    config.pools[0].device_blocks = 40;
    make(config);
    compute(1, in_host);
    compute(2, test::keys_of({1, 1, 1, 1, 1, 1, 1}));  // takes all seven slots of the window pool
    ASSERT_EQ(cache->match(in_host).found[Source::host], 2U);
  }
  /// True if the swap-in of the blocks in the host can begin before compute continues.
  [[nodiscard]] bool swap_in_overtakes_compute() {
    if (!acquire(9, in_host)) return true;
    for (int i = 0; i < 20; ++i) {
      for (const SimulatedDevice::Part part : device->step_options()) {
        if (part == SimulatedDevice::Part::swap_in) return true;
        if (part != SimulatedDevice::Part::compute) device->step(part);
      }
      poll();
    }
    return false;
  }
};

TEST_F(GivenUp, what_was_hit_is_not_overwritten_before_compute_has_read_it) {
  const auto keys = test::keys_of({1, 1, 1, 1, 1, 1, 1, 5, 5, 5});
  AcquireRequest wanted = request(3, keys);
  wanted.new_units_max = 3;
  leases[3] = cache->acquire(wanted).value();  // two hits and three new blocks; the other two slots still have cached blocks
  ASSERT_TRUE(ready_when_settled(3));
  leases[4] = cache->acquire(request(4, test::keys_of({6, 6}))).value();  // takes these two slots
  ASSERT_TRUE(ready_when_settled(4));
  const Fence reading = device->launch([](BlockAccess&) {});
  ASSERT_TRUE(cache->advance(leases.at(3), 9, reading).has_value());
  EXPECT_FALSE(swap_in_overtakes_compute());
  EXPECT_TRUE(ready_when_settled(9));
}

TEST_F(GivenUp, what_was_computed_for_nobody_else_is_not_overwritten_before_it_has_been_written) {
  const auto keys = test::keys_of({5, 5, 5, 5, 5, 5, 5});
  ASSERT_TRUE(acquire(3, keys).has_value());
  ASSERT_TRUE(ready_when_settled(3));
  const Fence writing = device->launch([](BlockAccess&) {});
  // The blocks are not committed, so their slots become free as soon as they are given up.
  ASSERT_TRUE(cache->advance(leases.at(3), 7, writing).has_value());
  EXPECT_FALSE(swap_in_overtakes_compute());
  EXPECT_TRUE(ready_when_settled(9));
}

TEST_F(GroupsTiers, each_pool_has_a_store_and_what_they_hold_is_found_after_a_restart) {
  make(model(0, true));
  const auto keys = test::keys_of({1, 1, 1, 1, 1});
  compute(1, keys);
  ASSERT_EQ(store->stat().blocks, 5U);
  ASSERT_EQ(other_stores.front()->stat().blocks, 5U);
  other_stores.front()->for_each([&](const StoredBlock& block) {
    EXPECT_EQ(block.group, window);
    EXPECT_EQ(block.depth, 0U);
  });

  // Another process, which has the same stores.
  const CacheParts parts{
      *transfers, {{arena.get(), store.get()}, {other_arenas.front().get(), other_stores.front().get()}}, clock};
  const ManagerConfig config = cache->manager().config();
  cache.reset();
  cache = std::make_unique<Cache>(config, parts);
  EXPECT_EQ(cache->match(keys).found[Source::storage], 5U);
  cache->record_events();
  ASSERT_TRUE(acquire(1, keys).has_value());
  ASSERT_TRUE(ready_when_settled(1));
  EXPECT_TRUE(reads(1, full, small, 0, 5));
  EXPECT_TRUE(reads(1, window, large, 3, 5));
  std::vector<KvEvent> told;
  cache->take_events(told);
  ASSERT_EQ(told.size(), 7U);
  for (const KvEvent& event : told) {
    EXPECT_NE(std::ranges::find(keys, event.key), keys.end());
    EXPECT_EQ(event.depth > 0 || event.key == keys.front(), event.group == full);
  }
}

}  // namespace
}  // namespace terrace
