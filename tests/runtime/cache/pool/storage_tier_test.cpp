// Which blocks reach storage, when, and how they come back.

#include "runtime/cache/control/cache_manager.hpp"
#include "runtime/cache/types/config.hpp"
#include "runtime/engine/cache_parts.hpp"
#include "tests/runtime/fixture.hpp"

#include <stdexcept>
#include <string>

namespace terrace::test {
namespace {

class StorageTier : public CacheFixture {};

TEST_F(StorageTier, write_policy_none_stores_nothing) {
  make(with_storage(sizes(2, 2), WritePolicy::none));
  run(1, keys_of({1, 2}));
  run(2, keys_of({5, 6}));
  run(3, keys_of({7, 8}));
  EXPECT_EQ(store->stat().blocks, 0U);
}

TEST_F(StorageTier, write_through_stores_on_insertion) {
  make(with_storage(sizes(4), WritePolicy::write_through));
  run(1, keys_of({1, 2, 3}));
  EXPECT_EQ(store->stat().blocks, 3U);
  EXPECT_EQ(store->stat().orphans, 0U);
  EXPECT_EQ(cache->moved().storage_writes.blocks, 3U);
}

TEST_F(StorageTier, selective_stores_what_is_hit) {
  make(with_storage(sizes(8), WritePolicy::selective));
  run(1, keys_of({1, 2, 3}));
  EXPECT_EQ(store->stat().blocks, 0U);
  run(2, keys_of({1, 2, 9}));
  EXPECT_EQ(store->stat().blocks, 2U);
}

TEST_F(StorageTier, selective_stores_at_the_hit_that_was_asked_for) {
  ManagerConfig config = with_storage(sizes(8), WritePolicy::selective);
  config.selective_hits = 3;
  make(config);
  run(1, keys_of({1, 2, 3}));
  run(2, keys_of({1, 2, 3}));
  run(3, keys_of({1, 2}));
  EXPECT_EQ(store->stat().blocks, 0U);
  EXPECT_EQ(cache->manager().stats().backup_candidates, 3U);
  EXPECT_EQ(cache->manager().stats().backed_up, 0U);
  run(4, keys_of({1, 2, 3}));  // the third hit of the first two, the second of the last
  EXPECT_EQ(store->stat().blocks, 2U);
  EXPECT_EQ(cache->manager().stats().backed_up, 2U);
  run(5, keys_of({1, 2, 3}));
  EXPECT_EQ(store->stat().blocks, 3U);
  EXPECT_EQ(store->stat().orphans, 0U);
  EXPECT_EQ(cache->manager().stats().backed_up, 3U);
  EXPECT_EQ(cache->manager().stats().backup_candidates, 3U);
}

TEST_F(StorageTier, back_ups_that_wait_for_staging_go_with_the_next_batch) {
  ManagerConfig config = with_storage(sizes(16), WritePolicy::selective);
  config.pools[0].staging_blocks = 2;
  make(config);
  run(1, keys_of({1, 2, 3}));
  run(2, keys_of({11, 12, 13}));
  // Four of the six blocks, of both prompts, wait until the first two have been written.
  ASSERT_TRUE(acquire(3, keys_of({1, 2, 3})).has_value());
  ASSERT_TRUE(acquire(4, keys_of({11, 12, 13})).has_value());
  EXPECT_EQ(cache->manager().stats().backed_up, 6U);
  const std::uint64_t plans = cache->transfers_in_flight();
  for (int i = 0; i < 100; ++i) {
    poll();
    EXPECT_GT(cache->next_deadline(), clock.now()) << "a loop would turn without rest";
    EXPECT_EQ(cache->transfers_in_flight(), plans) << "nothing starts before there is room";
  }
  settle();
  EXPECT_EQ(plans, 1U);
  EXPECT_EQ(store->stat().blocks, 6U);
}

TEST(SelectiveConfig, that_makes_no_sense_is_refused_and_it_says_why) {
  for (const std::uint32_t hits : {0U, 256U}) {
    ManagerConfig config = with_storage(sizes(4), WritePolicy::selective);
    config.pools[0].staging_blocks = 1;
    config.selective_hits = hits;
    try {
      const CacheManager manager{config};
      FAIL() << "accepted " << hits;
    } catch (const std::invalid_argument& e) {
      EXPECT_NE(std::string{e.what()}.find("selective_hits is"), std::string::npos);
    }
  }
}

TEST_F(StorageTier, a_request_can_do_without_the_tiers_below_one) {
  make(with_storage(sizes(2, 2), WritePolicy::write_through));
  run(1, keys_of({1, 2}));
  run(2, keys_of({5, 6}));
  run(3, keys_of({7, 8}));  // {1, 2} is only in storage; {5, 6} is also in the host
  EXPECT_EQ(cache->match(keys_of({1, 2})).found[Source::storage], 2U);
  EXPECT_EQ(cache->match(keys_of({1, 2}), Source::host).total(), 0U);
  EXPECT_EQ(cache->match(keys_of({5, 6}), Source::host).found[Source::host], 2U);
  EXPECT_EQ(cache->match(keys_of({5, 6}), Source::device).total(), 0U);
  // A source that this build does not know is farther than all that it knows.
  EXPECT_EQ(cache->match(keys_of({1, 2}), static_cast<Source>(200)).found[Source::storage], 2U);
  const auto keys = keys_of({1, 2});
  acquire_with(4, keys, [](AcquireRequest& wanted) { wanted.farthest_source = Source::host; });
  ASSERT_TRUE(ready_when_settled(4));
  EXPECT_EQ(stats(4).miss, 2U);
  EXPECT_EQ(cache->moved().storage_reads.blocks, 0U);
  ASSERT_TRUE(commit(4, keys).has_value());
  EXPECT_EQ(cache->match(keys).found[Source::device], 2U);
}

TEST_F(StorageTier, a_request_that_does_without_storage_joins_no_load_from_there) {
  make(with_storage(sizes(4), WritePolicy::write_through));
  run(1, keys_of({1, 2}));
  run(2, keys_of({5, 6, 7, 8}));
  ASSERT_TRUE(acquire(3, keys_of({1, 2})).has_value());
  const auto keys = keys_of({1, 2});
  acquire_with(4, keys, [](AcquireRequest& wanted) { wanted.farthest_source = Source::host; });
  EXPECT_EQ(stats(4).miss, 2U);
  EXPECT_TRUE(ready_when_settled(3));
  EXPECT_TRUE(ready(4));
  EXPECT_EQ(commit(4, keys)->size(), 2U);  // the blocks that it computed are cached by now
}

TEST_F(StorageTier, requests_for_a_block_on_its_way_up_share_one_read) {
  make(with_storage(sizes(6), WritePolicy::write_through));
  run(1, keys_of({1, 2}));
  run(2, keys_of({3, 4, 5, 6, 7, 8}));
  ASSERT_TRUE(acquire(3, keys_of({1, 2})).has_value());
  ASSERT_TRUE(acquire(4, keys_of({1, 2, 9})).has_value());
  EXPECT_FALSE(ready(3));
  EXPECT_FALSE(ready(4));
  EXPECT_EQ(stats(4).joined, 2U);
  EXPECT_EQ(stats(4).found[Source::storage], 2U);
  EXPECT_TRUE(ready_when_settled(3));
  EXPECT_TRUE(ready(4));
  EXPECT_EQ(cache->moved().storage_reads.blocks, 2U);
  EXPECT_EQ(table(3)[0], table(4)[0]);
}

TEST_F(StorageTier, an_aborted_load_returns_its_slots_at_once) {
  make(with_storage(sizes(6), WritePolicy::write_through));
  run(1, keys_of({1, 2}));
  run(2, keys_of({3, 4, 5, 6, 7, 8}));
  ASSERT_TRUE(acquire(3, keys_of({1, 2}), 1).has_value());
  ASSERT_FALSE(ready(3));
  release(3);
  EXPECT_EQ(cache->manager().device_ledger().held, 0U);  // the slots for blocks that it would have computed
  EXPECT_EQ(cache->manager().device_ledger().filling, 0U);
  settle();
  EXPECT_FALSE(cache->has_pending_work());
  EXPECT_EQ(cache->manager().host_ledger().held, 0U);
  run(4, keys_of({1, 2}));
  EXPECT_EQ(cache->match(keys_of({1, 2})).found[Source::device], 2U);
}

TEST_F(StorageTier, write_back_stores_when_the_last_copy_above_goes) {
  make(with_storage(sizes(2, 2), WritePolicy::write_back));
  run(1, keys_of({1, 2}));
  run(2, keys_of({5, 6}));
  EXPECT_EQ(store->stat().blocks, 0U);  // still in the host
  run(3, keys_of({7, 8}));
  EXPECT_EQ(store->stat().blocks, 2U);
  const MatchResult found = cache->match(keys_of({1, 2}));
  EXPECT_EQ(found.found[Source::storage], 2U);
}

TEST_F(StorageTier, write_back_works_without_a_host_tier) {
  make(with_storage(sizes(2), WritePolicy::write_back));
  run(1, keys_of({1, 2}));
  run(2, keys_of({5, 6}));
  EXPECT_EQ(cache->match(keys_of({1, 2})).found[Source::storage], 2U);
  run(3, keys_of({1, 2}));
  EXPECT_EQ(cache->moved().storage_reads.blocks, 2U);
  EXPECT_EQ(cache->match(keys_of({1, 2})).found[Source::device], 2U);
}

TEST_F(StorageTier, missing_ancestors_are_stored_first_and_stay_where_they_are) {
  make(with_storage(sizes(4), WritePolicy::write_back));
  run(1, keys_of({1, 2, 3}));
  ASSERT_TRUE(acquire(2, keys_of({1, 2})).has_value());
  run(3, keys_of({9, 8}));  // only the third block can be evicted
  EXPECT_EQ(store->stat().blocks, 3U);
  EXPECT_EQ(store->stat().orphans, 0U);
  EXPECT_EQ(cache->match(keys_of({1, 2, 3})).found[Source::device], 2U);
  EXPECT_EQ(cache->match(keys_of({1, 2, 3})).found[Source::storage], 1U);
}

TEST_F(StorageTier, a_storage_hit_comes_back_byte_for_byte) {
  make(with_storage(sizes(2, 2), WritePolicy::write_through));
  const auto keys = keys_of({1, 2});
  ASSERT_TRUE(acquire(1, keys).has_value());
  const auto slots = table(1);
  const Fence fence = device->launch([slots](BlockAccess& access) {
    std::vector<std::byte> scratch(block_bytes);
    for (std::size_t i = 0; i < slots.size(); ++i) {
      const auto block = access.write_target(slots[i], scratch);
      std::memset(block.data(), static_cast<int>(i + 1), block.size());
      access.written(slots[i], scratch);
    }
  });
  ASSERT_TRUE(cache->commit(leases.at(1), keys, fence).has_value());
  settle();
  release(1);
  run(2, keys_of({5, 6}));
  run(3, keys_of({7, 8}));
  ASSERT_EQ(cache->match(keys).found[Source::storage], 2U);
  ASSERT_TRUE(acquire(4, keys).has_value());
  ASSERT_TRUE(ready_when_settled(4));
  EXPECT_EQ(stats(4).found[Source::storage], 2U);
  const auto loaded = table(4);
  std::vector<std::byte> first(2);
  device->launch([&](BlockAccess& access) {
    std::vector<std::byte> scratch(block_bytes);
    for (std::size_t i = 0; i < 2; ++i) first[i] = access.read(loaded[i], scratch)[block_bytes - 1];
  });
  device->run();
  EXPECT_EQ(first[0], std::byte{1});
  EXPECT_EQ(first[1], std::byte{2});
}

TEST_F(StorageTier, a_block_that_does_not_verify_is_a_miss_and_so_is_what_follows_it) {
  make(with_storage(sizes(3, 0), WritePolicy::write_through));
  const auto keys = keys_of({1, 2, 3});
  run(1, keys);
  run(2, keys_of({5, 6, 7}));
  ASSERT_EQ(cache->match(keys).found[Source::storage], 3U);
  store->raw(keys[1])[7] ^= std::byte{1};
  ASSERT_TRUE(acquire(3, keys).has_value());
  ASSERT_TRUE(ready_when_settled(3));
  EXPECT_EQ(stats(3).found[Source::storage], 1U);
  EXPECT_EQ(stats(3).miss, 2U);
  EXPECT_EQ(store->stat().corrupt, 1U);
}

TEST_F(StorageTier, what_storage_gives_up_is_no_hit_any_more) {
  make(with_storage(sizes(2), WritePolicy::write_through), 3);
  run(1, keys_of({1, 2}));
  run(2, keys_of({5, 6}));
  settle();
  EXPECT_EQ(cache->match(keys_of({1, 2})).found[Source::storage], 1U);
  EXPECT_EQ(cache->manager().stats().stored_evicted, 1U);
}

TEST_F(StorageTier, a_block_that_is_written_back_is_a_hit_again_when_it_is_stored) {
  make(with_storage(sizes(4, 2), WritePolicy::write_back));
  run(1, keys_of({1, 2}));
  run(2, keys_of({5, 6}));
  run(3, keys_of({7, 8}));  // {1, 2} in the host
  ASSERT_EQ(cache->match(keys_of({1, 2})).found[Source::host], 2U);
  ASSERT_TRUE(acquire(4, keys_of({10, 11})).has_value());  // {5, 6} needs slots in the host, and {1, 2} must be written back
  EXPECT_EQ(cache->match(keys_of({1, 2})).total(), 0U);
  settle();
  EXPECT_EQ(cache->match(keys_of({1, 2})).found[Source::storage], 2U);
}

TEST_F(StorageTier, a_refused_write_loses_the_block_and_nothing_else) {
  make(with_storage(sizes(2), WritePolicy::write_back));
  run(1, keys_of({1, 2}));
  store->fail_next_write();
  run(2, keys_of({5, 6}));
  EXPECT_EQ(cache->match(keys_of({5, 6})).found[Source::device], 2U);
  EXPECT_GE(cache->manager().stats().store_failed, 1U);
  EXPECT_EQ(store->stat().orphans, 0U);
}

TEST_F(StorageTier, a_decode_instance_keeps_no_tree_and_stores_nothing) {
  // A decode instance of the same store as a prefill instance leaves the blocks of that one alone.
  make(with_storage(sizes(8, 4), WritePolicy::write_through));
  run(1, keys_of({1, 2, 3}));
  ASSERT_EQ(store->stat().blocks, 3U);
  ManagerConfig decode = cache->manager().config();
  decode.caching = false;
  CacheParts parts{*transfers, {{arena.get(), store.get()}}, clock};
  cache = std::make_unique<Cache>(decode, parts);
  ASSERT_TRUE(acquire(2, keys_of({1, 2, 3}), 1).has_value());
  EXPECT_TRUE(ready(2));
  EXPECT_EQ(stats(2).miss, 3U);
  ASSERT_TRUE(cache->extend(leases.at(2), 2).has_value());
  ASSERT_TRUE(commit(2, keys_of({1, 2, 3, 4, 5})).has_value());
  release(2);
  settle();
  EXPECT_EQ(free_on_device(), 8U);
  EXPECT_EQ(resident(Tier::device) + resident(Tier::host), 0U);
  EXPECT_EQ(cache->moved().storage_writes.blocks + cache->moved().swap_out.blocks, 0U);
  EXPECT_EQ(store->stat().blocks, 3U);
}

TEST_F(StorageTier, restores_what_an_earlier_process_stored) {
  make(with_storage(sizes(4), WritePolicy::write_through));
  run(1, keys_of({1, 2, 3}));
  run(2, keys_of({1, 2, 4}));
  leases.clear();
  CacheParts parts{*transfers, {{arena.get(), store.get()}}, clock};
  const ManagerConfig config = cache->manager().config();
  cache = std::make_unique<Cache>(config, parts);
  EXPECT_EQ(cache->match(keys_of({1, 2, 3})).found[Source::storage], 3U);
  EXPECT_EQ(cache->match(keys_of({1, 2, 4})).found[Source::storage], 3U);
  run(3, keys_of({1, 2, 4}));
  EXPECT_EQ(cache->match(keys_of({1, 2, 4})).found[Source::device], 3U);
}

TEST_F(StorageTier, a_refused_extend_drops_nothing) {
  make(with_storage(sizes(6), WritePolicy::write_through));
  const auto old = keys_of({1, 1});
  const auto busy = keys_of({2, 2});
  run(1, old);
  ASSERT_TRUE(acquire(2, keys_of({3})).has_value());
  // Committed and released, but the copies to storage are still under way.
  ASSERT_TRUE(acquire(3, busy).has_value());
  ASSERT_TRUE(ready(3));
  ASSERT_TRUE(commit(3, busy).has_value());
  release(3);
  ASSERT_EQ(cache->manager().readers(), 2U);
  // One slot is free and two copies could be evicted; two more are being read.
  EXPECT_EQ(cache->extend(leases.at(2), 4).error(), Errc::no_room);
  EXPECT_EQ(cache->match(old, Source::device).found[Source::device], 2U);
  EXPECT_EQ(cache->match(busy, Source::device).found[Source::device], 2U);
  EXPECT_EQ(free_on_device(), 1U);
  EXPECT_EQ(table(2).size(), 1U);
  ASSERT_TRUE(cache->extend(leases.at(2), 3).has_value());
  EXPECT_EQ(cache->match(old, Source::device).found[Source::device], 0U);
  EXPECT_EQ(table(2).size(), 4U);
}

// ---- blocks on their way to storage: no request waits for them, and blocks that are not stored are counted

class StorageWriterRoom : public CacheFixture {
 protected:
  /// `staging` blocks can be on their way at a time. Nothing is written before the next poll().
  void make_with_staging(ManagerConfig config, std::uint32_t staging) {
    config.pools[0].staging_blocks = staging;
    make(config, 1024);
  }
  /// Commits and releases while nothing moves.
  void compute(std::uint64_t id, const std::vector<BlockKey>& keys) {
    ASSERT_TRUE(acquire(id, keys).has_value());
    ASSERT_TRUE(ready(id));
    ASSERT_TRUE(commit(id, keys).has_value());
    release(id);
  }
  /// The link moves everything that it was given.
  void move() {
    poll();
    device->run();
    poll();
  }
};

TEST_F(StorageWriterRoom, blocks_that_wait_to_be_stored_can_be_given_up_by_extend) {
  make_with_staging(with_storage(sizes(4), WritePolicy::write_through), 1);
  compute(1, keys_of({1, 2, 3}));  // the first is being staged, the others wait as wishes
  ASSERT_TRUE(acquire(2, keys_of({9})).has_value());
  EXPECT_TRUE(cache->extend(leases.at(2), 2).has_value());
  settle();
  EXPECT_EQ(store->stat().blocks, 1U);
  EXPECT_EQ(totals().store_gone, 2U);
  EXPECT_EQ(totals().store_failed, 0U);
  release(2);
}

TEST_F(StorageWriterRoom, blocks_that_wait_to_be_stored_make_no_request_wait) {
  make_with_staging(with_storage(sizes(4), WritePolicy::write_through), 1);
  compute(1, keys_of({1, 2, 3}));
  ASSERT_TRUE(acquire(2, keys_of({7, 8, 9})).has_value());
  EXPECT_TRUE(ready(2));
}

TEST_F(StorageWriterRoom, a_wish_that_is_not_in_the_way_is_granted_however_late) {
  make_with_staging(with_storage(sizes(16), WritePolicy::write_through), 1);
  compute(1, keys_of({1, 2, 3, 4, 5, 6, 7}));
  settle();
  EXPECT_EQ(store->stat().blocks, 7U);
  EXPECT_EQ(store->stat().orphans, 0U);
}

TEST_F(StorageWriterRoom, a_full_host_gives_up_a_block_that_is_to_be_written_back_at_once) {
  make_with_staging(with_storage(sizes(2, 2), WritePolicy::write_back), 2);
  run(1, keys_of({1, 2}));
  run(2, keys_of({5, 6}));  // {1, 2} is only in the host
  ASSERT_TRUE(acquire(3, keys_of({7, 8})).has_value());
  EXPECT_EQ(cache->match(keys_of({1, 2})).total(), 0U) << "nothing has been written yet, and both have left the host";
  EXPECT_EQ(cache->manager().host_ledger().held, 2U) << "their slots are staging now";
  move();
  EXPECT_TRUE(ready(3));
  settle();
  EXPECT_EQ(cache->match(keys_of({1, 2})).found[Source::storage], 2U);
  EXPECT_EQ(totals().store_no_room, 0U);
}

TEST_F(StorageWriterRoom, what_finds_no_staging_is_dropped_and_counted) {
  make_with_staging(with_storage(sizes(2, 2), WritePolicy::write_back), 1);
  run(1, keys_of({1, 2}));
  run(2, keys_of({5, 6}));
  ASSERT_TRUE(acquire(3, keys_of({7, 8})).has_value());
  EXPECT_TRUE(ready_when_settled(3));
  // The second block needs the first one to be stored too, and there was only one staging slot. The first block found it.
  EXPECT_EQ(totals().store_no_room, 1U);
  EXPECT_EQ(cache->match(keys_of({1, 2})).found[Source::storage], 1U);
  EXPECT_EQ(store->stat().orphans, 0U);
}

TEST_F(StorageWriterRoom, without_a_host_what_finds_no_staging_is_dropped_and_counted) {
  make_with_staging(with_storage(sizes(2), WritePolicy::write_back), 1);
  run(1, keys_of({1, 2}));
  ASSERT_TRUE(acquire(2, keys_of({5, 6})).has_value());
  move();
  EXPECT_TRUE(ready(2)) << "waits for the link alone";
  settle();
  EXPECT_EQ(totals().store_no_room, 1U);
  EXPECT_EQ(cache->match(keys_of({1, 2})).found[Source::storage], 1U);
}

TEST_F(StorageWriterRoom, more_wishes_than_the_bound_are_refused_and_counted) {
  constexpr std::uint32_t extra = 100;
  make_with_staging(with_storage(sizes(StorageWriter::wishes_max + extra), WritePolicy::write_through), 1);
  compute(1, keys_from(1, StorageWriter::wishes_max + extra));
  EXPECT_EQ(totals().store_skipped, extra);
}

TEST_F(StorageWriterRoom, what_builds_on_a_block_that_storage_failed_is_counted_apart) {
  make_with_staging(with_storage(sizes(4), WritePolicy::write_through), 4);
  store->fail_next_write();
  run(1, keys_of({1, 2, 3}));
  EXPECT_EQ(totals().store_failed, 1U);
  EXPECT_EQ(totals().store_orphaned, 2U);
  EXPECT_EQ(totals().store_gone + totals().store_cancelled, 0U);
}

/// The store holds two blocks of the prefix. Of the next two, one fails for want of room and the other for want of its parent.
TEST_F(StorageWriterRoom, a_prefix_longer_than_the_store_is_dropped_from_the_host_and_not_written_again_and_again) {
  ManagerConfig config = with_storage(sizes(7, 7), WritePolicy::write_back);
  config.pools[0].staging_blocks = 2;
  make(config, 2);
  run(1, keys_of({1, 2, 3, 4, 5, 6, 7}));
  run(2, keys_of({11, 12, 13, 14, 15, 16, 17}));
  ASSERT_EQ(resident(Tier::host), 7U);
  ASSERT_TRUE(cache->resize(Tier::host, 3).has_value());
  settle();
  EXPECT_LE(resident(Tier::host), 3U);
  EXPECT_FALSE(cache->has_pending_work());
}

TEST_F(StorageWriterRoom, what_nobody_wants_any_more_is_counted_apart) {
  make_with_staging(with_storage(sizes(4), WritePolicy::none), 1);
  compute(1, keys_of({1, 2, 3}));
  const WriteBackId id = cache->start_write_back({.scope = WriteBackOrder::Scope::all}).value();
  poll();
  ASSERT_TRUE(cache->cancel_write_back(id).has_value());
  settle();
  EXPECT_EQ(store->stat().blocks + totals().store_cancelled, 3U);
  EXPECT_GE(totals().store_cancelled, 2U);
  EXPECT_EQ(totals().store_failed + totals().store_orphaned + totals().store_gone, 0U);
}

TEST_F(StorageWriterRoom, a_block_that_waits_to_be_stored_is_not_in_use) {
  make_with_staging(with_storage(sizes(4), WritePolicy::write_through), 1);
  ASSERT_TRUE(acquire(1, keys_of({1, 2, 3})).has_value());
  const std::vector<SlotId> slots = table(1);
  ASSERT_TRUE(commit(1, keys_of({1, 2, 3})).has_value());
  release(1);
  const EvictedBlocks evicted = cache->evict(std::span{slots}.last(1)).value();
  EXPECT_EQ(evicted.evicted, 1U);
  EXPECT_TRUE(evicted.in_use.empty());
  settle();
  EXPECT_EQ(cache->match(keys_of({1, 2, 3})).found[Source::storage] + cache->match(keys_of({1, 2, 3})).found[Source::device], 2U);
  EXPECT_EQ(store->stat().blocks, 2U);
  EXPECT_EQ(totals().store_gone, 1U);
}

TEST_F(StorageWriterRoom, a_job_waits_for_its_blocks_but_not_with_slots_of_requests) {
  make_with_staging(with_storage(sizes(4), WritePolicy::none), 1);
  compute(1, keys_of({1, 2, 3}));
  const WriteBackId id = cache->start_write_back({.scope = WriteBackOrder::Scope::all}).value();
  ASSERT_TRUE(acquire(2, keys_of({9})).has_value());
  EXPECT_TRUE(cache->extend(leases.at(2), 2).has_value());
  settle();
  EXPECT_EQ(cache->write_back(id)->of(WriteBackOutcome::stored), 1U);
  EXPECT_EQ(cache->write_back(id)->of(WriteBackOutcome::dropped_gone), 2U);
  release(2);
}

}  // namespace
}  // namespace terrace::test
