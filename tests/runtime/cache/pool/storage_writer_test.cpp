// Blocks on their way to storage: no request waits for them, and blocks that are not stored are counted.

#include "runtime/cache/control/cache_manager.hpp"
#include "runtime/cache/types/config.hpp"
#include "tests/runtime/fixture.hpp"

#include <numeric>

namespace terrace::test {
namespace {

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
  [[nodiscard]] const ManagerStats& totals() const { return cache->manager().stats(); }
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
  std::vector<std::uint32_t> names(StorageWriter::wishes_max + extra);
  std::iota(names.begin(), names.end(), 1U);
  compute(1, keys_of(names));
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
  WriteBackOrder order;
  order.scope = WriteBackOrder::Scope::all;
  const WriteBackId id = cache->start_write_back(order).value();
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
  WriteBackOrder order;
  order.scope = WriteBackOrder::Scope::all;
  const WriteBackId id = cache->start_write_back(order).value();
  ASSERT_TRUE(acquire(2, keys_of({9})).has_value());
  EXPECT_TRUE(cache->extend(leases.at(2), 2).has_value());
  settle();
  EXPECT_EQ(cache->write_back(id)->of(WriteBackOutcome::stored), 1U);
  EXPECT_EQ(cache->write_back(id)->of(WriteBackOutcome::dropped_gone), 2U);
  release(2);
}

}  // namespace
}  // namespace terrace::test
