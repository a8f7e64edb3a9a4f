#include "runtime/store/tier_batches.hpp"

#include "tests/runtime/store/gated_stores.hpp"
#include "tests/runtime/store/keys_and_rows.hpp"
#include "tests/storage/blocks.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <vector>

namespace terrace::test {
namespace {

using namespace std::chrono_literals;

class CountingWaker final : public Waker {
 public:
  void wake() noexcept override { ++woken; }
  int woken = 0;
};

class TierBatchesTest : public ::testing::Test {
 protected:
  static constexpr std::uint32_t rows_max = 16;

  void open(TierLimits limits = {}, std::optional<ResilienceOptions> resilience = {}, std::uint32_t blocks = 32) {
    store.emplace(blocks, Bytes{block_size}, nullptr);
    if (resilience) guard.emplace(*store, clock, *resilience, &waker);
    open_again(limits);
    region = batches->regions().add(memory.rows(), Bytes{block_size}, nullptr).value();
  }
  void open_again(TierLimits limits = {}) {
    BlockStore& front = guard ? static_cast<BlockStore&>(*guard) : *store;
    batches.emplace(front, guard ? &*guard : nullptr, nullptr, clock, waker, limits);
  }

  Result<void> put(std::uint64_t id, std::span<const BlockKey> names, std::span<const std::uint32_t> at,
                   TimePoint deadline = never, std::span<const BlockKey> parents = {}) {
    for (std::size_t i = 0; i < std::min(names.size(), at.size()); ++i) {
      if (at[i] < rows_max) fill(memory.rows().row(at[i]), names[i]);
    }
    return batches->submit_put({BatchId{id}, names, region, at, parents, deadline});
  }
  Result<void> get(std::uint64_t id, std::span<const BlockKey> names, std::span<const std::uint32_t> at,
                   TimePoint deadline = never) {
    return batches->submit_get({BatchId{id}, names, region, at, deadline});
  }
  std::vector<BatchResult> poll() {
    std::vector<BatchResult> results;
    batches->poll(results);
    batches->check_invariants();
    return results;
  }
  std::vector<BatchResult> poll_until_idle() {
    std::vector<BatchResult> results;
    for (int i = 0; i < 100 && !batches->is_idle(); ++i) batches->poll(results);
    EXPECT_TRUE(batches->is_idle());
    batches->poll(results);
    return results;
  }
  void store_blocks(std::uint64_t first, std::size_t count) {
    const auto names = keys_from(first, count);
    const auto at = rows_from(0, count);
    ASSERT_TRUE(put(999, names, at));
    const auto results = poll_until_idle();
    ASSERT_EQ(results.size(), 1U);
    ASSERT_EQ(results[0].succeeded, count);
  }
  std::vector<TierEvent> events() {
    std::vector<TierEvent> all;
    batches->poll_events(all);
    return all;
  }

  ManualClock clock;
  CountingWaker waker;
  PrivateRegion memory{rows_max, Bytes{block_size}, MemoryCheck::no};
  std::optional<GatedStore> store;
  std::optional<ResilientStore> guard;
  std::optional<TierBatches> batches;
  HostRegionId region;
};

TEST_F(TierBatchesTest, refuse_what_cannot_be_and_change_nothing) {
  open({.blocks_max = 4});
  const auto names = keys_from(0, 4);
  EXPECT_EQ(put(1, names, rows_from(0, 3)).error(), Errc::invalid_argument);
  EXPECT_EQ(put(1, names, rows_from(13, 4)).error(), Errc::invalid_argument) << "row 16 does not exist";
  EXPECT_EQ(put(1, names, rows_from(0, 4), never, keys_from(0, 3)).error(), Errc::invalid_argument);
  EXPECT_EQ(put(1, keys_from(0, 5), rows_from(0, 5)).error(), Errc::never_fits);
  const std::vector<std::uint32_t> twice{1, 2, 1, 3};
  EXPECT_EQ(get(1, names, twice).error(), Errc::invalid_argument);
  const std::vector<std::uint32_t> far{0, 1, 2, ~0U};
  EXPECT_EQ(get(1, names, far).error(), Errc::invalid_argument);
  EXPECT_EQ(batches->submit_get({BatchId{1}, names, HostRegionId{77}, rows_from(0, 4)}).error(), Errc::not_found);
  EXPECT_EQ(batches->cancel(BatchId{1}).error(), Errc::not_found);
  EXPECT_EQ(batches->statistics().waiting, 0U);
  EXPECT_TRUE(batches->is_idle());

  store->held = true;
  ASSERT_TRUE(put(1, keys_from(0, 3), rows_from(0, 3)));
  EXPECT_EQ(put(1, keys_from(5, 1), rows_from(5, 1)).error(), Errc::duplicate_request);
  EXPECT_EQ(batches->submit_flush(BatchId{1}).error(), Errc::duplicate_request);
  EXPECT_EQ(put(2, keys_from(5, 2), rows_from(5, 2)).error(), Errc::refused);
  EXPECT_EQ(batches->statistics().refused, 1U);
  ASSERT_TRUE(put(2, keys_from(5, 1), rows_from(5, 1)));
  batches->stop_accepting();
  EXPECT_EQ(put(3, {}, {}).error(), Errc::stopped);
  EXPECT_EQ(batches->submit_flush(BatchId{3}).error(), Errc::stopped);
  store->held = false;
  EXPECT_EQ(poll_until_idle().size(), 2U);
}

TEST_F(TierBatchesTest, guard_rows_that_are_in_use) {
  open();
  store->held = true;
  ASSERT_TRUE(put(1, keys_from(0, 2), rows_from(0, 2)));
  EXPECT_TRUE(put(2, keys_from(0, 2), rows_from(0, 2))) << "several puts may read a row";
  EXPECT_EQ(get(3, keys_from(0, 2), rows_from(1, 2)).error(), Errc::in_use);
  ASSERT_TRUE(get(3, keys_from(0, 2), rows_from(4, 2)));
  EXPECT_EQ(put(4, keys_from(0, 2), rows_from(5, 2)).error(), Errc::in_use);
  EXPECT_EQ(get(4, keys_from(0, 1), rows_from(5, 1)).error(), Errc::in_use);
  EXPECT_TRUE(get(4, keys_from(0, 1), rows_from(6, 1))) << "a refused call has taken no row";
  EXPECT_EQ(batches->regions().remove(region).error(), Errc::in_use);
  store->held = false;
  EXPECT_EQ(poll_until_idle().size(), 4U);
  EXPECT_TRUE(batches->regions().remove(region));
  EXPECT_EQ(batches->regions().remove(region).error(), Errc::not_found);
  EXPECT_EQ(put(9, keys_from(0, 1), rows_from(0, 1)).error(), Errc::not_found);
}

TEST_F(TierBatchesTest, refuse_memory_that_overlaps_or_does_not_fit) {
  open();
  RegionTable& regions = batches->regions();
  HostRows rows = memory.rows();
  EXPECT_EQ(regions.add(rows, Bytes{block_size}, nullptr).error(), Errc::in_use);
  rows.address += rows.extent() / Bytes{2};
  EXPECT_EQ(regions.add(rows, Bytes{block_size}, nullptr).error(), Errc::in_use);
  rows = memory.rows();
  rows.row_bytes = Bytes{block_size / 2};
  EXPECT_EQ(regions.add(rows, Bytes{block_size}, nullptr).error(), Errc::invalid_argument);
  rows.row_bytes = Bytes{block_size};
  rows.row_stride = Bytes{block_size - 1};
  EXPECT_EQ(regions.add(rows, Bytes{block_size}, nullptr).error(), Errc::invalid_argument);
  EXPECT_EQ(regions.add({}, Bytes{block_size}, nullptr).error(), Errc::invalid_argument);
  std::vector<std::byte> beside(block_size);
  const auto owner = std::make_shared<int>();
  const Result<HostRegionId> added = regions.add({beside.data(), 1, Bytes{block_size}}, Bytes{block_size}, owner);
  ASSERT_TRUE(added);
  EXPECT_EQ(owner.use_count(), 2);
  EXPECT_TRUE(regions.remove(*added));
  EXPECT_EQ(owner.use_count(), 1);
}

TEST_F(TierBatchesTest, give_the_disk_a_bounded_number_and_cancel_the_others) {
  open({.gets_under_way_max = 2, .puts_under_way_max = 3});
  store_blocks(0, 8);
  events();
  store->held = true;
  ASSERT_TRUE(get(1, keys_from(0, 6), rows_from(0, 6)));
  ASSERT_TRUE(put(2, keys_from(20, 6), rows_from(6, 6)));
  TierStatistics now = batches->statistics();
  EXPECT_EQ(now.under_way, 5U);
  EXPECT_EQ(now.waiting, 7U);
  waker.woken = 0;
  EXPECT_TRUE(batches->cancel(BatchId{1}));
  EXPECT_TRUE(batches->cancel(BatchId{2}));
  EXPECT_EQ(waker.woken, 0) << "the disk still has some";
  EXPECT_EQ(batches->statistics().waiting, 0U);
  EXPECT_TRUE(poll().empty());
  store->held = false;
  std::vector<BatchResult> results = poll_until_idle();
  ASSERT_EQ(results.size(), 2U);
  std::ranges::sort(results, {}, [](const BatchResult& result) { return result.id; });
  EXPECT_EQ(results[0].succeeded, 2U);
  EXPECT_EQ(results[1].succeeded, 3U);
  EXPECT_EQ(results[0].errors[2], Errc::cancelled);
  EXPECT_EQ(results[1].errors[5], Errc::cancelled);
  EXPECT_EQ(batches->statistics().gets_cancelled, 4U);
  EXPECT_EQ(batches->statistics().puts_cancelled, 3U);
}

TEST_F(TierBatchesTest, wake_for_results_that_come_without_the_disk) {
  open({.gets_under_way_max = 1});
  waker.woken = 0;
  ASSERT_TRUE(get(1, {}, {}));
  EXPECT_EQ(waker.woken, 1);
  const auto results = poll();
  ASSERT_EQ(results.size(), 1U);
  EXPECT_EQ(results[0].id, BatchId{1});
  EXPECT_TRUE(results[0].errors.empty());
  store->held = true;
  ASSERT_TRUE(get(2, keys_from(0, 1), rows_from(0, 1)));
  ASSERT_TRUE(get(3, keys_from(0, 1), rows_from(1, 1)));
  EXPECT_TRUE(batches->cancel(BatchId{3}));
  EXPECT_EQ(waker.woken, 2);
  EXPECT_EQ(poll().at(0).errors.at(0), Errc::cancelled);
}

TEST_F(TierBatchesTest, end_at_their_deadline_and_say_when_their_memory_is_free) {
  open({.gets_under_way_max = 2});
  store_blocks(0, 4);
  events();
  store->held = true;
  ASSERT_TRUE(get(1, keys_from(0, 4), rows_from(0, 4), clock.now() + 10ms));
  EXPECT_EQ(batches->next_deadline(), clock.now() + 10ms);
  EXPECT_TRUE(poll().empty());
  clock.advance(10ms);
  const auto results = poll();
  ASSERT_EQ(results.size(), 1U);
  EXPECT_TRUE(results[0].memory_in_use);
  EXPECT_EQ(results[0].succeeded, 0U);
  EXPECT_EQ(results[0].duration, 10ms);
  for (const ErrorCode& error : results[0].errors) EXPECT_EQ(error, Errc::deadline_exceeded);
  EXPECT_EQ(get(2, keys_from(0, 1), rows_from(1, 1)).error(), Errc::in_use) << "the disk may still write to it";
  EXPECT_TRUE(get(2, keys_from(0, 1), rows_from(3, 1))) << "this row was not begun";
  EXPECT_EQ(get(1, keys_from(0, 1), rows_from(5, 1)).error(), Errc::duplicate_request);
  EXPECT_EQ(batches->cancel(BatchId{1}).error(), Errc::not_found);
  EXPECT_EQ(batches->next_deadline(), never);
  EXPECT_TRUE(events().empty());
  store->held = false;
  EXPECT_EQ(poll_until_idle().size(), 1U) << "only the second batch";
  const auto told = events();
  ASSERT_EQ(told.size(), 1U);
  EXPECT_EQ(told[0].kind, TierEvent::Kind::memory_free);
  EXPECT_EQ(told[0].batch, BatchId{1});
  EXPECT_TRUE(get(1, keys_from(0, 1), rows_from(1, 1)));
  EXPECT_EQ(batches->statistics().gets_late, 4U);
  EXPECT_EQ(poll_until_idle().size(), 1U);
}

TEST_F(TierBatchesTest, that_are_late_before_the_disk_begins_use_no_memory) {
  open({.puts_under_way_max = 1});
  store->held = true;
  ASSERT_TRUE(put(1, keys_from(0, 1), rows_from(0, 1)));
  ASSERT_TRUE(put(2, keys_from(1, 2), rows_from(1, 2), clock.now()));
  const auto results = poll();
  ASSERT_EQ(results.size(), 1U);
  EXPECT_EQ(results[0].id, BatchId{2});
  EXPECT_FALSE(results[0].memory_in_use);
  EXPECT_TRUE(get(2, keys_from(1, 2), rows_from(1, 2)));
}

TEST_F(TierBatchesTest, tell_damage_from_a_miss) {
  open();
  store_blocks(0, 3);
  events();
  store->memory().raw(key_of(1))[77] ^= std::byte{1};
  ASSERT_TRUE(get(1, keys_from(0, 4), rows_from(0, 4)));
  const auto results = poll_until_idle();
  ASSERT_EQ(results.size(), 1U);
  EXPECT_FALSE(results[0].errors[0]);
  EXPECT_EQ(results[0].errors[1], Errc::corrupt);
  EXPECT_FALSE(results[0].errors[2]);
  EXPECT_EQ(results[0].errors[3], Errc::not_found);
  EXPECT_FALSE(batches->contains(key_of(1)));
  const auto told = events();
  ASSERT_EQ(told.size(), 1U);
  EXPECT_EQ(told[0].kind, TierEvent::Kind::evicted);
  EXPECT_EQ(told[0].key, key_of(1));
  const TierStatistics now = batches->statistics();
  EXPECT_EQ(now.corrupt, 1U);
  EXPECT_EQ(now.misses, 1U);
  EXPECT_EQ(now.hits, 2U);
}

TEST_F(TierBatchesTest, find_nothing_while_the_disk_fails_and_probe_it_by_themselves) {
  ResilienceOptions resilience;
  resilience.read_retries = 0;
  resilience.breaker.failures_max = 2;
  open({}, resilience);
  store_blocks(0, 3);
  store->reads_fail = true;
  ASSERT_TRUE(get(1, keys_from(0, 2), rows_from(0, 2)));
  const auto results = poll_until_idle();
  EXPECT_EQ(results.at(0).errors[0], Errc::io_failed);
  ASSERT_EQ(guard->read_breaker().state(), BreakerState::open);
  EXPECT_TRUE(guard->contains(key_of(0)));
  EXPECT_FALSE(batches->contains(key_of(0)));
  EXPECT_EQ(batches->next_deadline(), guard->read_breaker().next_probe());

  // The probe fails, and the next one comes later.
  const TimePoint first = guard->read_breaker().next_probe();
  clock.advance(first - clock.now());
  const std::uint64_t reads = store->reads;
  poll();
  EXPECT_EQ(store->reads, reads + 1);
  poll();
  poll();
  EXPECT_EQ(store->reads, reads + 1);
  EXPECT_FALSE(batches->contains(key_of(0)));
  EXPECT_GT(guard->read_breaker().next_probe(), first);

  store->reads_fail = false;
  for (int i = 0; i < 20 && guard->read_breaker().state() != BreakerState::closed; ++i) {
    clock.advance(1s);
    poll();
  }
  EXPECT_EQ(guard->read_breaker().state(), BreakerState::closed);
  EXPECT_TRUE(batches->contains(key_of(0)));
}

TEST_F(TierBatchesTest, let_a_caller_probe_the_disk_if_they_know_no_block_themselves) {
  ResilienceOptions resilience;
  resilience.read_retries = 0;
  resilience.breaker.failures_max = 1;
  open({}, resilience, 64);
  store_blocks(0, 8);
  for (std::uint64_t first = 100; first < 132; first += 8) store_blocks(first, 8);
  // Only blocks that were not used lately are left.
  for (std::uint64_t first = 100; first < 132; first += 8) ASSERT_TRUE(batches->remove(keys_from(first, 8)));
  poll();
  store->reads_fail = true;
  ASSERT_TRUE(get(1, keys_from(0, 1), rows_from(0, 1)));
  poll_until_idle();
  ASSERT_EQ(guard->read_breaker().state(), BreakerState::open);
  EXPECT_FALSE(batches->contains(key_of(1)));
  EXPECT_EQ(batches->next_deadline(), never) << "there is nothing to do for poll()";
  clock.advance(1s);
  EXPECT_TRUE(batches->contains(key_of(1)));
  store->reads_fail = false;
  ASSERT_TRUE(get(2, keys_from(1, 1), rows_from(0, 1)));
  EXPECT_EQ(poll_until_idle().at(0).succeeded, 1U);
  EXPECT_EQ(guard->read_breaker().state(), BreakerState::closed);
}

TEST_F(TierBatchesTest, keep_a_parent_longer_than_its_children) {
  open({}, {}, 3);
  const auto names = keys_from(0, 3);
  const std::vector<BlockKey> parents{BlockKey{}, key_of(0), key_of(1)};
  ASSERT_TRUE(put(1, names, rows_from(0, 3), never, parents));
  EXPECT_EQ(poll_until_idle().at(0).succeeded, 3U);
  ASSERT_TRUE(put(2, keys_from(10, 1), rows_from(0, 1)));
  poll_until_idle();
  EXPECT_TRUE(batches->contains(key_of(0)));
  EXPECT_TRUE(batches->contains(key_of(1)));
  EXPECT_FALSE(batches->contains(key_of(2))) << "the youngest, but the deepest";
  EXPECT_EQ(batches->statistics().without_parent, 0U);
}

TEST_F(TierBatchesTest, know_parents_again_after_a_restart) {
  open({}, {}, 4);
  ASSERT_TRUE(put(1, keys_from(0, 2), rows_from(0, 2), never, std::vector<BlockKey>{BlockKey{}, key_of(0)}));
  poll_until_idle();
  batches.reset();
  open_again();
  region = batches->regions().add(memory.rows(), Bytes{block_size}, nullptr).value();
  ASSERT_TRUE(put(2, keys_from(2, 1), rows_from(0, 1), never, keys_from(1, 1)));
  poll_until_idle();
  std::uint32_t deepest = 0;
  store->for_each([&](const StoredBlock& block) { deepest = std::max(deepest, block.depth); });
  EXPECT_EQ(deepest, 2U);
}

TEST_F(TierBatchesTest, store_a_block_alone_if_its_parent_is_not_there_or_fails) {
  open();
  ASSERT_TRUE(put(1, keys_from(1, 1), rows_from(0, 1), never, keys_from(0, 1)));
  EXPECT_EQ(poll_until_idle().at(0).succeeded, 1U);
  EXPECT_EQ(batches->statistics().without_parent, 1U);
  const std::vector<BlockKey> self{key_of(2)};
  ASSERT_TRUE(put(2, self, rows_from(0, 1), never, self));
  EXPECT_EQ(poll_until_idle().at(0).succeeded, 1U);
  // The parent is being stored, and its write fails.
  store->memory().fail_next_write();
  ASSERT_TRUE(put(3, keys_from(5, 2), rows_from(0, 2), never, std::vector<BlockKey>{BlockKey{}, key_of(5)}));
  const auto results = poll_until_idle();
  EXPECT_EQ(results.at(0).errors[0], Errc::io_failed);
  EXPECT_FALSE(results.at(0).errors[1]);
  EXPECT_TRUE(batches->contains(key_of(6)));
  EXPECT_EQ(batches->statistics().without_parent, 2U);
  EXPECT_EQ(batches->statistics().put_failures, 1U);
}

TEST_F(TierBatchesTest, are_removed_whether_stored_under_way_or_waiting) {
  open({.puts_under_way_max = 2});
  store_blocks(0, 2);
  events();
  // 10 and its child 11 are under way, 12 waits.
  ASSERT_TRUE(put(1, keys_from(10, 3), rows_from(0, 3), never, std::vector<BlockKey>{BlockKey{}, key_of(10), BlockKey{}}));
  EXPECT_EQ(batches->statistics().under_way, 2U);
  EXPECT_TRUE(batches->clear());
  const auto results = poll_until_idle();
  for (int i = 0; i < 3; ++i) poll();
  for (const std::uint64_t n : {0, 1, 10, 11, 12}) EXPECT_FALSE(batches->contains(key_of(n))) << n;
  ASSERT_EQ(results.size(), 1U);
  for (const ErrorCode& error : results[0].errors) EXPECT_EQ(error, Errc::cancelled);
  EXPECT_EQ(batches->statistics().puts_cancelled, 3U);
  std::size_t removed = 0;
  std::size_t stored = 0;
  for (const TierEvent& event : events()) {
    removed += event.kind == TierEvent::Kind::removed;
    stored += event.kind == TierEvent::Kind::stored;
  }
  EXPECT_EQ(removed, stored + 2) << "each block that was told to be stored is told to be gone";
  EXPECT_EQ(store->stat().blocks, 0U);
}

TEST_F(TierBatchesTest, of_a_get_that_a_clear_overtakes_bring_nothing_of_before) {
  open();
  store_blocks(0, 2);
  store->held = true;
  ASSERT_TRUE(get(1, keys_from(0, 2), rows_from(0, 2)));
  ASSERT_TRUE(batches->remove(keys_from(0, 1)));
  store->held = false;
  const auto results = poll_until_idle();
  ASSERT_EQ(results.size(), 1U);
  EXPECT_EQ(results[0].errors[0], Errc::not_found);
  EXPECT_EQ(results[0].succeeded, 1U) << "the other block is as it was";
}

TEST_F(TierBatchesTest, erase_until_a_flush_has_ended_and_what_was_overtaken_too) {
  open();
  store_blocks(0, 2);
  EXPECT_FALSE(batches->is_erasing());
  store->held = true;
  store->memory().hold_flushes(true);
  ASSERT_TRUE(put(1, keys_from(10, 1), rows_from(0, 1)));
  waker.woken = 0;
  ASSERT_TRUE(batches->clear());
  EXPECT_GT(waker.woken, 0) << "the next poll begins the flush";
  poll();
  store->memory().hold_flushes(false);
  poll();
  EXPECT_TRUE(batches->is_erasing()) << "a put that was overtaken is under way";
  store->held = false;
  store->memory().hold_flushes(true);
  const auto results = poll_until_idle();
  EXPECT_EQ(results.at(0).errors.at(0), Errc::cancelled);
  EXPECT_FALSE(batches->is_erasing());

  store->memory().fail_flushes(Errc::io_failed);
  ASSERT_TRUE(batches->clear()) << "though there is nothing left, it asks the disk again";
  poll();
  EXPECT_TRUE(batches->is_erasing());
  store->memory().hold_flushes(false);
  poll();
  EXPECT_FALSE(batches->is_erasing());
  EXPECT_EQ(batches->erase_error(), Errc::io_failed);
  store->memory().fail_flushes({});
  EXPECT_EQ(batches->next_deadline(), clock.now() + 1s) << "it tries again, although there is no interval";
  clock.advance(1s);
  poll();
  poll();
  EXPECT_FALSE(batches->erase_error());
}

TEST_F(TierBatchesTest, do_not_come_back_if_they_are_removed_with_their_parent) {
  open();
  store_blocks(10, 1);
  ASSERT_TRUE(put(1, keys_from(11, 1), rows_from(0, 1), never, keys_from(10, 1)));
  EXPECT_TRUE(batches->remove(keys_from(10, 2)));
  poll_until_idle();
  for (int i = 0; i < 3; ++i) poll();
  EXPECT_FALSE(batches->contains(key_of(10)));
  EXPECT_FALSE(batches->contains(key_of(11)));
}

TEST_F(TierBatchesTest, flush_at_intervals_and_when_asked) {
  open({.flush_interval = 5s});
  store_blocks(0, 3);
  EXPECT_EQ(batches->statistics().not_flushed, 3U);
  EXPECT_EQ(batches->next_deadline(), clock.now() + 5s);
  clock.advance(5s);
  poll();
  poll();
  EXPECT_EQ(batches->statistics().flushes, 1U);
  EXPECT_EQ(batches->statistics().not_flushed, 0U);
  EXPECT_EQ(batches->next_deadline(), never);

  store_blocks(10, 2);
  ASSERT_TRUE(batches->submit_flush(BatchId{5}));
  const auto results = poll_until_idle();
  ASSERT_EQ(results.size(), 1U);
  EXPECT_EQ(results[0].kind, BatchKind::flush);
  EXPECT_EQ(results[0].succeeded, 1U);
  EXPECT_EQ(batches->statistics().not_flushed, 0U);

  store_blocks(20, 1);
  store->memory().fail_flushes(Errc::io_failed);
  ASSERT_TRUE(batches->submit_flush(BatchId{6}));
  EXPECT_EQ(poll_until_idle().at(0).errors[0], Errc::io_failed);
  EXPECT_EQ(batches->flush_error(), Errc::io_failed);
  EXPECT_EQ(batches->statistics().not_flushed, 1U);
  EXPECT_EQ(batches->statistics().flush_failures, 1U);
}

TEST_F(TierBatchesTest, drop_the_oldest_events_when_nobody_takes_them) {
  open({.events_max = 4});
  store_blocks(0, 6);
  const auto told = events();
  ASSERT_EQ(told.size(), 4U);
  EXPECT_EQ(told[0].key, key_of(2));
  EXPECT_EQ(batches->statistics().events_dropped, 2U);
}

TEST_F(TierBatchesTest, count_a_block_once_that_several_puts_store) {
  open();
  ASSERT_TRUE(put(1, keys_from(0, 1), rows_from(0, 1)));
  ASSERT_TRUE(put(2, keys_from(0, 1), rows_from(1, 1)));
  EXPECT_EQ(poll_until_idle().size(), 2U);
  ASSERT_TRUE(put(3, keys_from(0, 1), rows_from(1, 1)));
  EXPECT_EQ(poll_until_idle().at(0).succeeded, 1U);
  EXPECT_EQ(events().size(), 1U);
  EXPECT_EQ(batches->statistics().stored, 3U);
}

}  // namespace
}  // namespace terrace::test
