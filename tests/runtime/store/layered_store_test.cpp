#include "runtime/store/layered_store.hpp"

#include "base/waker.hpp"
#include "runtime/store/tier_batches.hpp"
#include "terrace/host_memory.hpp"
#include "tests/runtime/store/gated_stores.hpp"
#include "tests/runtime/store/keys_and_rows.hpp"
#include "tests/storage/blocks.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <vector>

namespace terrace::test {
namespace {

using namespace std::chrono_literals;

/// A TierBatches over a local store of 8 blocks and a shared store.
class LayeredStoreTest : public ::testing::Test {
 protected:
  static constexpr std::uint32_t rows_max = 16;

  void put_elsewhere(std::uint64_t first, std::size_t count) {
    for (const BlockKey& key : keys_from(first, count)) {
      std::vector<std::byte> block(block_size);
      test::fill(block, key);
      shared.blocks[key] = block;
    }
  }
  void submit_put(std::uint64_t id, const std::vector<BlockKey>& names) {
    const auto at = rows_from(0, names.size());
    for (std::size_t i = 0; i < names.size(); ++i) test::fill(memory.rows().row(at[i]), names[i]);
    ASSERT_TRUE(batches.submit_put({BatchId{id}, names, region, at, {}, never}));
  }
  std::vector<BatchResult> poll(int times = 4) {
    std::vector<BatchResult> results;
    for (int i = 0; i < times; ++i) {
      batches.poll(results);
      batches.check_invariants();
      layered.check_invariants();
    }
    return results;
  }
  BatchResult put(const std::vector<BlockKey>& names) {
    submit_put(77, names);
    return poll().at(0);
  }
  /// Checks the bytes of what has arrived.
  BatchResult get(const std::vector<BlockKey>& names) {
    const auto at = rows_from(0, names.size());
    for (const std::uint32_t row : at) std::ranges::fill(memory.rows().row(row), std::byte{0xEE});
    EXPECT_TRUE(batches.submit_get({BatchId{78}, names, region, at, never}));
    BatchResult result = poll().at(0);
    for (std::size_t i = 0; i < names.size(); ++i) {
      EXPECT_EQ(holds(memory.rows().row(at[i]), names[i]), !result.errors[i]) << i;
    }
    return result;
  }
  std::uint32_t probe(const std::vector<BlockKey>& names) {
    EXPECT_TRUE(batches.submit_probe({BatchId{79}, names, clock.now() + 20ms}));
    const std::vector<BatchResult> results = poll();
    EXPECT_EQ(results.at(0).kind, BatchKind::probe);
    return results.at(0).succeeded;
  }

  ManualClock clock;
  NullWaker nobody;
  PrivateRegion memory{rows_max, Bytes{block_size}, MemoryCheck::no};
  GatedStore local{8, Bytes{block_size}, nullptr};
  GatedSharedStore shared;
  LayeredStore layered{local, shared, clock, {.renew = 1min}};
  TierBatches batches{layered, nullptr, nullptr, clock, nobody, {}, &layered};
  HostRegionId region = batches.regions().add(memory.rows(), Bytes{block_size}, nullptr).value();
};

TEST_F(LayeredStoreTest, brings_what_only_the_shared_store_has) {
  put_elsewhere(0, 4);
  ASSERT_EQ(put(keys_from(4, 2)).succeeded, 2U);
  const BatchResult result = get(keys_from(0, 7));
  EXPECT_EQ(result.succeeded, 6U);
  EXPECT_EQ(result.errors[6], Errc::not_found);
  EXPECT_EQ(shared.reads, 5U) << "a block of the local store is not asked for elsewhere";
  EXPECT_EQ(batches.statistics().shared_hits, 4U);
  EXPECT_EQ(batches.statistics().shared_misses, 1U);
}

TEST_F(LayeredStoreTest, brings_what_the_local_disk_cannot_read) {
  ASSERT_EQ(put(keys_from(0, 2)).succeeded, 2U);
  local.reads_fail = true;
  EXPECT_EQ(get(keys_from(0, 2)).succeeded, 2U);
  shared.blocks.clear();
  const BatchResult result = get(keys_from(0, 2));
  EXPECT_EQ(result.errors[0], Errc::io_failed) << "the reason of the local store";
}

TEST_F(LayeredStoreTest, counts_trouble_at_the_shared_store_as_a_miss) {
  put_elsewhere(0, 2);
  for (const Errc trouble : {Errc::deadline_exceeded, Errc::io_failed, Errc::refused, Errc::cancelled}) {
    shared.fails_with = trouble;
    EXPECT_EQ(get(keys_from(0, 1)).errors[0], Errc::not_found) << make_error_code(trouble).message();
  }
  shared.fails_with = Errc::corrupt;
  EXPECT_EQ(get(keys_from(0, 1)).errors[0], Errc::corrupt);
}

TEST_F(LayeredStoreTest, writes_to_both_and_sends_nothing_that_is_there) {
  put_elsewhere(0, 3);
  ASSERT_EQ(put(keys_from(0, 5)).succeeded, 5U);
  EXPECT_EQ(shared.writes, 2U);
  EXPECT_EQ(shared.renewed, 3U);
  EXPECT_EQ(shared.blocks.size(), 5U);
  EXPECT_EQ(batches.statistics().shared_present, 3U);
  EXPECT_EQ(batches.statistics().shared_stored, 2U);
  for (const auto& [key, block] : shared.blocks) EXPECT_TRUE(holds(block, key));
}

TEST_F(LayeredStoreTest, a_put_does_not_fail_because_of_the_shared_store) {
  shared.fails_with = Errc::full;
  EXPECT_EQ(put(keys_from(0, 2)).succeeded, 2U);
  EXPECT_EQ(batches.statistics().shared_not_stored, 2U);
  EXPECT_TRUE(shared.blocks.empty());
}

TEST_F(LayeredStoreTest, a_get_that_needs_the_shared_store_and_a_probe_are_waits_for_it) {
  put_elsewhere(0, 2);
  ASSERT_EQ(put(keys_from(4, 1)).succeeded, 1U);
  (void)get(keys_from(4, 1));
  EXPECT_EQ(batches.waits().totals().loads[Source::storage].requests, 1U);
  shared.held = true;
  const auto names = keys_from(0, 2);
  const auto at = rows_from(0, 2);
  ASSERT_TRUE(batches.submit_get({BatchId{1}, names, region, at, never}));
  ASSERT_TRUE(batches.submit_probe({BatchId{2}, names, never}));
  poll();
  clock.advance(250ms);
  shared.held = false;
  ASSERT_EQ(poll().size(), 2U);
  const WaitTotals& waits = batches.waits().totals();
  EXPECT_EQ(waits.loads[Source::storage].requests, 1U);
  EXPECT_EQ(waits.loads[Source::shared].requests, 1U);
  EXPECT_EQ(waits.loads[Source::shared].seconds, 0.25);
  EXPECT_EQ(waits.looking.requests, 1U);
  EXPECT_EQ(waits.looking.seconds, 0.25);
}

/// Orders are the sum of the results and of the failures by reason.
void check_sums(const TierStatistics& counts) {
  EXPECT_EQ(counts.gets,
            counts.hits + counts.misses + counts.corrupt + counts.get_failures + counts.gets_cancelled + counts.gets_late);
  EXPECT_EQ(counts.puts, counts.stored + counts.put_failures + counts.puts_cancelled + counts.puts_late);
  EXPECT_EQ(counts.shared_gets, counts.shared_hits + counts.shared_misses + counts.shared_gets_declined);
  EXPECT_EQ(counts.shared_puts, counts.shared_stored + counts.shared_present + counts.shared_not_stored +
                                    counts.shared_puts_cancelled + counts.shared_puts_declined);
}

TEST_F(LayeredStoreTest, what_a_dead_shared_store_does_not_do_is_counted) {
  shared.is_usable = false;
  ASSERT_EQ(put(keys_from(0, 4)).succeeded, 4U);
  EXPECT_EQ(get(keys_from(2, 4)).succeeded, 2U);
  const TierStatistics counts = batches.statistics();
  EXPECT_EQ(counts.shared_puts, 4U);
  EXPECT_EQ(counts.shared_puts_declined, 4U);
  EXPECT_EQ(counts.shared_gets, 2U);
  EXPECT_EQ(counts.shared_gets_declined, 2U);
  check_sums(counts);
}

TEST_F(LayeredStoreTest, the_counts_of_what_was_ordered_are_sums_under_faults) {
  put_elsewhere(0, 3);
  ASSERT_EQ(put(keys_from(0, 5)).succeeded, 5U);
  shared.fails_with = Errc::io_failed;
  put(keys_from(20, 3));
  get(keys_from(30, 3));
  shared.fails_with = {};
  local.reads_fail = true;
  get(keys_from(0, 2));
  local.reads_fail = false;
  shared.held = true;
  submit_put(1, keys_from(40, 2));
  poll();
  ASSERT_TRUE(batches.remove(keys_from(40, 1)));
  ASSERT_TRUE(batches.clear());
  shared.held = false;
  poll(20);
  put(keys_from(50, 2));
  get(keys_from(60, 2));
  const TierStatistics counts = batches.statistics();
  EXPECT_EQ(counts.shared_puts, 12U);
  EXPECT_EQ(counts.shared_puts_cancelled, 2U);
  EXPECT_EQ(counts.shared_puts_declined, 2U);
  check_sums(counts);
}

TEST_F(LayeredStoreTest, probes_are_counted_as_questions) {
  put_elsewhere(0, 3);
  EXPECT_EQ(probe(keys_from(0, 5)), 3U);
  EXPECT_EQ(batches.statistics().asked, 5U);
  EXPECT_EQ(batches.statistics().found, 3U);
}

TEST_F(LayeredStoreTest, the_memory_of_a_put_is_in_use_until_both_have_ended) {
  shared.held = true;
  submit_put(1, keys_from(0, 1));
  EXPECT_TRUE(poll().empty());
  EXPECT_TRUE(layered.contains(key_of(0)));
  const std::vector<std::uint32_t> row{0};
  EXPECT_EQ(batches.submit_get({BatchId{2}, keys_from(5, 1), region, row, never}).error(), Errc::in_use);
  shared.held = false;
  EXPECT_EQ(poll().size(), 1U);
}

TEST_F(LayeredStoreTest, a_block_is_told_as_stored_before_it_is_told_as_evicted) {
  shared.held = true;
  submit_put(1, keys_from(0, 1));
  EXPECT_TRUE(poll().empty());
  local.memory().remove(keys_from(0, 1), 0);
  submit_put(2, keys_from(0, 1));
  EXPECT_TRUE(poll().empty());
  std::vector<TierEvent> events;
  batches.poll_events(events);
  EXPECT_TRUE(events.empty());
  shared.held = false;
  EXPECT_EQ(poll().size(), 2U);
  batches.poll_events(events);
  ASSERT_EQ(events.size(), 3U);
  EXPECT_EQ(events[0].kind, TierEvent::Kind::stored);
  EXPECT_EQ(events[1].kind, TierEvent::Kind::removed);
  EXPECT_EQ(events[2].kind, TierEvent::Kind::stored);
}

TEST_F(LayeredStoreTest, a_probe_asks_both) {
  ASSERT_EQ(put(keys_from(0, 1)).succeeded, 1U);
  put_elsewhere(1, 2);
  ASSERT_EQ(put(keys_from(3, 1)).succeeded, 1U);
  shared.blocks.erase(key_of(0));
  shared.blocks.erase(key_of(3));
  EXPECT_EQ(probe(keys_from(0, 6)), 4U);
  EXPECT_EQ(probe(keys_from(0, 1)), 1U);
  EXPECT_EQ(probe(keys_from(9, 1)), 0U);
  EXPECT_EQ(probe({}), 0U);
  shared.fails_with = Errc::deadline_exceeded;
  EXPECT_EQ(probe(keys_from(0, 6)), 1U) << "no answer: nothing is there";
}

TEST_F(LayeredStoreTest, asks_nothing_of_a_shared_store_that_cannot_be_used) {
  put_elsewhere(0, 2);
  shared.is_usable = false;
  ASSERT_EQ(put(keys_from(4, 1)).succeeded, 1U);
  EXPECT_EQ(get(keys_from(0, 2)).succeeded, 0U);
  EXPECT_EQ(probe(keys_from(0, 2)), 0U);
  EXPECT_EQ(shared.probes + shared.reads + shared.writes, 0U);
}

TEST_F(LayeredStoreTest, renews_a_block_that_is_used_at_most_once_a_minute) {
  put_elsewhere(0, 1);
  for (int i = 0; i < 3; ++i) ASSERT_EQ(get(keys_from(0, 1)).succeeded, 1U);
  layered.touch(keys_from(0, 1));
  EXPECT_EQ(shared.renewed, 1U);
  clock.advance(1min);
  layered.touch(keys_from(0, 1));
  EXPECT_EQ(shared.renewed, 2U);
}

TEST_F(LayeredStoreTest, removes_a_block_from_both) {
  ASSERT_EQ(put(keys_from(0, 2)).succeeded, 2U);
  ASSERT_TRUE(batches.remove(keys_from(0, 1)));
  poll();
  EXPECT_FALSE(layered.contains(key_of(0)));
  EXPECT_EQ(get(keys_from(0, 2)).succeeded, 1U);
}

TEST_F(LayeredStoreTest, a_block_that_is_removed_while_it_is_written_is_in_neither) {
  shared.held = true;
  submit_put(1, keys_from(0, 1));  // the shared store is asked whether it has the block
  ASSERT_TRUE(batches.remove(keys_from(0, 1)));
  shared.held = false;
  poll();
  EXPECT_EQ(shared.writes, 0U);
  submit_put(2, keys_from(1, 1));
  poll(1);
  EXPECT_EQ(shared.writes, 1U) << "it ends in the next poll";
  ASSERT_TRUE(batches.remove(keys_from(1, 1)));
  poll();
  EXPECT_TRUE(shared.blocks.empty());
  EXPECT_EQ(get(keys_from(0, 2)).succeeded, 0U);
}

TEST_F(LayeredStoreTest, removes_nothing_from_a_shared_store_that_is_only_read_or_left) {
  put_elsewhere(0, 1);
  LayeredStore reader{local, shared, clock, {.writes = false}};
  reader.remove(keys_from(0, 1), 0);
  EXPECT_EQ(shared.blocks.size(), 1U);
  ASSERT_TRUE(batches.clear());
  ASSERT_TRUE(batches.remove(keys_from(0, 1)));
  EXPECT_EQ(shared.blocks.size(), 1U);
}

TEST_F(LayeredStoreTest, is_alone_after_a_clear_until_the_weights_are_named) {
  ASSERT_EQ(put(keys_from(0, 2)).succeeded, 2U);
  ASSERT_TRUE(batches.clear());
  poll();
  EXPECT_TRUE(layered.shared_is_left());
  EXPECT_EQ(get(keys_from(0, 2)).succeeded, 0U);
  EXPECT_EQ(probe(keys_from(0, 2)), 0U);
  const std::uint64_t writes = shared.writes;
  const std::uint64_t renewed = shared.renewed;
  ASSERT_EQ(put(keys_from(4, 1)).succeeded, 1U);
  layered.touch(keys_from(0, 4));
  EXPECT_EQ(shared.writes, writes);
  EXPECT_EQ(shared.renewed, renewed);
  layered.resume_shared();
  EXPECT_EQ(probe(keys_from(0, 2)), 2U);
  EXPECT_EQ(get(keys_from(0, 2)).succeeded, 2U);
  ASSERT_EQ(put(keys_from(5, 1)).succeeded, 1U);
  EXPECT_EQ(shared.writes, writes + 1);
}

TEST_F(LayeredStoreTest, brings_finds_and_writes_nothing_that_a_clear_has_overtaken) {
  put_elsewhere(0, 3);
  const std::vector<std::uint32_t> row{8};
  shared.held = true;
  ASSERT_TRUE(batches.submit_get({BatchId{1}, keys_from(0, 1), region, row, never}));
  ASSERT_TRUE(batches.submit_probe({BatchId{2}, keys_from(1, 2), never}));
  submit_put(3, keys_from(6, 1));  // the shared store is asked whether it has the block
  EXPECT_TRUE(poll().empty());
  ASSERT_TRUE(batches.clear());
  layered.resume_shared();  // for other weights
  shared.held = false;
  std::vector<BatchResult> results = poll();
  ASSERT_EQ(results.size(), 3U);
  std::ranges::sort(results, {}, [](const BatchResult& result) { return result.id.value(); });
  EXPECT_EQ(results[0].errors[0], Errc::not_found);
  EXPECT_EQ(results[1].succeeded, 0U);
  EXPECT_EQ(shared.writes, 0U) << "a block of the weights of before, under the name of the new ones";
  EXPECT_EQ(get(keys_from(0, 1)).succeeded, 1U);
}

TEST_F(LayeredStoreTest, does_not_ask_elsewhere_for_a_read_that_a_clear_has_overtaken) {
  ASSERT_EQ(put(keys_from(0, 1)).succeeded, 1U);
  local.reads_fail = true;
  local.held = true;
  const std::vector<std::uint32_t> row{8};
  ASSERT_TRUE(batches.submit_get({BatchId{1}, keys_from(0, 1), region, row, never}));
  ASSERT_TRUE(batches.clear());
  layered.resume_shared();
  local.held = false;
  EXPECT_EQ(poll().at(0).errors[0], Errc::not_found);
  EXPECT_EQ(shared.reads, 0U);
}

}  // namespace
}  // namespace terrace::test
