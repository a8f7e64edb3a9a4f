// The contract in terrace/block_store.hpp, for every kind of store.

#include "tests/storage/fixtures.hpp"

#include <gtest/gtest.h>

#include <algorithm>

namespace terrace::test {
namespace {

using Kind = StoreEvent::Kind;

class BlockStoreContract : public EveryStore {};

INSTANTIATE_TEST_SUITE_P(Stores, BlockStoreContract, testing::ValuesIn(store_kinds()),
                         [](const auto& param) { return to_string(param.param); });

TEST_P(BlockStoreContract, a_block_comes_back_byte_for_byte) {
  StoreHarness& h = make(8);
  const auto prefix = prefix_of(1, 5);
  const auto events = h.write(prefix);
  for (const StoredBlock& block : prefix) {
    EXPECT_FALSE(outcome(events, Kind::written, block.key));
    EXPECT_TRUE(h.reads_back(block.key));
  }
  const StoreStat stat = h.store().stat();
  EXPECT_EQ(stat.blocks, 5U);
  EXPECT_EQ(stat.free, 3U);
  EXPECT_EQ(stat.writes, 5U);
  EXPECT_EQ(stat.reads, 5U);
  EXPECT_EQ(count(stat.written), 5 * block_size);
  EXPECT_EQ(count(stat.read), 5 * block_size);
}

TEST_P(BlockStoreContract, keys_that_agree_in_their_first_eight_bytes_are_two_blocks) {
  StoreHarness& h = make(8);
  const StoredBlock parent = root_block(1);
  StoredBlock child = child_of(parent, 2);
  child.key = with_prefix64_of(parent.key, 2);
  StoredBlock other = root_block(3);
  other.key = with_prefix64_of(parent.key, 3);
  const BlockKey unknown = with_prefix64_of(parent.key, 4);
  h.write({parent, child});
  EXPECT_FALSE(h.has(other.key));
  EXPECT_EQ(h.read(other.key), Errc::not_found);
  h.write({other});
  for (const StoredBlock& block : {parent, child, other}) EXPECT_TRUE(h.reads_back(block.key));
  EXPECT_FALSE(h.has(unknown));
  EXPECT_EQ(h.read(unknown), Errc::not_found);
  EXPECT_EQ(h.store().stat().blocks, 3U);
}

TEST_P(BlockStoreContract, each_flush_ends_in_one_event_whatever_else_is_under_way) {
  StoreHarness& h = make(8);
  h.store().flush(100);
  h.start_write(prefix_of(1, 5));
  h.store().flush(101);
  h.store().flush(102);
  EXPECT_GE(h.store().in_flight(), 8U);
  std::vector<std::uint64_t> flushed;
  for (const StoreEvent& event : h.drain()) {
    if (event.kind != Kind::flushed) continue;
    EXPECT_FALSE(event.error);
    flushed.push_back(event.token);
  }
  std::ranges::sort(flushed);
  EXPECT_EQ(flushed, (std::vector<std::uint64_t>{100, 101, 102}));
}

TEST_P(BlockStoreContract, what_was_never_written_is_not_found) {
  StoreHarness& h = make(2);
  EXPECT_EQ(h.read(key_of(1)), Errc::not_found);
  EXPECT_FALSE(h.has(key_of(1)));
}

TEST_P(BlockStoreContract, a_block_is_stored_only_after_its_parent) {
  StoreHarness& h = make(4);
  const auto prefix = prefix_of(1, 3);
  EXPECT_EQ(outcome(h.write({prefix[1]}), Kind::written, prefix[1].key), Errc::parent_missing);
  h.write({prefix[0]});
  EXPECT_EQ(outcome(h.write({prefix[2]}), Kind::written, prefix[2].key), Errc::parent_missing);
  StoredBlock too_deep = prefix[1];
  too_deep.depth = 5;
  EXPECT_EQ(outcome(h.write({too_deep}), Kind::written, prefix[1].key), Errc::parent_missing);
  EXPECT_FALSE(outcome(h.write({prefix[1]}), Kind::written, prefix[1].key));
  EXPECT_EQ(h.store().stat().blocks, 2U);
}

TEST_P(BlockStoreContract, a_parent_that_is_being_written_will_do) {
  StoreHarness& h = make(16);
  const auto prefix = prefix_of(1, 12);
  h.start_write({prefix[0]});
  h.start_write({prefix.begin() + 1, prefix.end()});
  EXPECT_EQ(h.store().stat().writing, 12U);
  const auto written = keys_of(h.drain(), Kind::written);
  ASSERT_EQ(written.size(), 12U);
  for (std::size_t n = 0; n < 12; ++n) EXPECT_EQ(written[n], prefix[n].key) << "parents become readable first";
}

TEST_P(BlockStoreContract, a_write_that_fails_takes_those_that_wait_for_it_along) {
  StoreHarness& h = make(8);
  const auto prefix = prefix_of(1, 4);
  const StoredBlock other = root_block(100);
  h.fail_write_of(prefix[0].key);
  const auto events = h.write({prefix[0], prefix[1], prefix[2], prefix[3], other});
  EXPECT_EQ(outcome(events, Kind::written, prefix[0].key), Errc::io_failed);
  for (std::size_t n = 1; n < 4; ++n) EXPECT_EQ(outcome(events, Kind::written, prefix[n].key), Errc::parent_missing);
  EXPECT_FALSE(outcome(events, Kind::written, other.key));
  const StoreStat stat = h.store().stat();
  EXPECT_EQ(stat.blocks, 1U);
  EXPECT_EQ(stat.writing, 0U);
  EXPECT_EQ(stat.quarantined, 1U) << "the slot whose write failed, and no other";
  EXPECT_EQ(stat.free, 6U);
  EXPECT_EQ(stat.io_errors, 1U);
  EXPECT_FALSE(outcome(h.write({prefix[0]}), Kind::written, prefix[0].key)) << "another slot is tried";
  EXPECT_TRUE(h.reads_back(prefix[0].key));
}

TEST_P(BlockStoreContract, a_bad_slot_is_never_used_again) {
  StoreHarness& h = make(2);
  h.fail_write_of(key_of(1));
  h.write({root_block(1)});
  for (std::uint64_t n = 10; n < 20; ++n) {
    h.write({root_block(n)});
    EXPECT_EQ(h.store().stat().blocks, 1U);
    EXPECT_EQ(h.store().stat().quarantined, 1U);
  }
}

TEST_P(BlockStoreContract, writing_again_changes_nothing) {
  StoreHarness& h = make(4);
  const StoredBlock block = root_block(1);
  h.write({block});
  EXPECT_FALSE(outcome(h.write({block}), Kind::written, block.key));
  EXPECT_EQ(h.store().stat().writes, 1U);
  EXPECT_EQ(h.store().stat().blocks, 1U);
  EXPECT_TRUE(h.reads_back(block.key));
}

TEST_P(BlockStoreContract, two_writes_of_one_key_share_one_write) {
  StoreHarness& h = make(4);
  const StoredBlock block = root_block(1);
  h.start_write({block, block});
  h.start_write({block});
  EXPECT_EQ(h.store().in_flight(), 3U);
  const auto events = h.drain();
  EXPECT_EQ(keys_of(events, Kind::written), std::vector(3, block.key));
  std::vector<std::uint64_t> tokens;
  for (const StoreEvent& event : events) tokens.push_back(event.token);
  std::sort(tokens.begin(), tokens.end());
  EXPECT_EQ(tokens, (std::vector<std::uint64_t>{1, 2, 3}));
  EXPECT_EQ(h.store().stat().writes, 1U);
}

TEST_P(BlockStoreContract, a_block_being_written_is_not_found_yet) {
  StoreHarness& h = make(4);
  h.start_write({root_block(1)});
  h.start_read(key_of(1));
  const BlockKey key = key_of(1);
  EXPECT_FALSE(h.store().contains(key));
  const auto events = h.drain();
  EXPECT_EQ(outcome(events, Kind::read, key), Errc::not_found);
  EXPECT_FALSE(outcome(events, Kind::written, key));
  EXPECT_TRUE(h.reads_back(key));
}

TEST_P(BlockStoreContract, capacity_is_never_exceeded) {
  StoreHarness& h = make(5);
  for (std::uint64_t n = 0; n < 40; ++n) {
    h.start_write({root_block(n)});
    const StoreStat stat = h.store().stat();
    EXPECT_LE(stat.blocks + stat.writing + stat.quarantined, 5U);
    EXPECT_EQ(stat.free + stat.blocks + stat.writing + stat.quarantined, 5U);
    if (n % 3 == 0) h.drain();
  }
  h.drain();
  EXPECT_EQ(h.store().stat().blocks, 5U);
}

TEST_P(BlockStoreContract, the_least_recently_used_goes_first) {
  StoreHarness& h = make(4);
  for (std::uint64_t n = 1; n <= 4; ++n) h.write({root_block(n)});
  EXPECT_TRUE(h.reads_back(key_of(1)));
  const BlockKey touched = key_of(2);
  h.store().touch({&touched, 1});
  h.write({root_block(3)});  // a second time
  std::vector<BlockKey> evicted;
  for (std::uint64_t n = 11; n <= 14; ++n) {
    const auto keys = keys_of(h.write({root_block(n)}), Kind::evicted);
    evicted.insert(evicted.end(), keys.begin(), keys.end());
  }
  EXPECT_EQ(evicted, (std::vector{key_of(4), key_of(1), key_of(2), key_of(3)}));
  EXPECT_EQ(h.store().stat().evicted, 4U);
  for (const BlockKey& key : evicted) EXPECT_FALSE(h.has(key));
}

TEST_P(BlockStoreContract, of_two_equally_old_leaves_the_deeper_one_goes_first) {
  StoreHarness& h = make(3);
  const StoredBlock shallow = root_block(1);
  const auto prefix = prefix_of(10, 2);
  h.write({prefix[0], prefix[1], shallow});
  EXPECT_EQ(keys_of(h.write({root_block(20)}), Kind::evicted), std::vector{prefix[1].key});
}

TEST_P(BlockStoreContract, a_block_whose_children_are_stored_stays) {
  StoreHarness& h = make(4);
  const auto prefix = prefix_of(1, 3);
  h.write(prefix);
  h.write({root_block(50)});
  // The prefix is older than block 50, and is evicted from its end.
  std::vector<BlockKey> evicted;
  for (std::uint64_t n = 51; n <= 53; ++n) {
    const auto keys = keys_of(h.write({root_block(n)}), Kind::evicted);
    evicted.insert(evicted.end(), keys.begin(), keys.end());
  }
  EXPECT_EQ(evicted, (std::vector{prefix[2].key, prefix[1].key, prefix[0].key}));
}

TEST_P(BlockStoreContract, room_is_never_made_by_the_parent_of_what_comes) {
  StoreHarness& h = make(2);
  const auto prefix = prefix_of(1, 3);
  h.write({prefix[0]});
  h.write({prefix[1]});
  EXPECT_EQ(outcome(h.write({prefix[2]}), Kind::written, prefix[2].key), Errc::full);
  EXPECT_TRUE(h.has(prefix[0].key));
  EXPECT_TRUE(h.has(prefix[1].key));
  // The last block of the prefix can still be evicted.
  EXPECT_EQ(keys_of(h.write({root_block(9)}), Kind::evicted), std::vector{prefix[1].key});
}

TEST_P(BlockStoreContract, a_block_that_is_being_read_or_written_is_not_evicted) {
  StoreHarness& h = make(2);
  h.write({root_block(1)});
  const std::uint64_t token = h.start_read(key_of(1));
  h.start_write({root_block(2)});
  h.start_write({root_block(3)});
  const auto events = h.drain();
  EXPECT_EQ(outcome(events, Kind::written, key_of(3)), Errc::full);
  EXPECT_FALSE(outcome(events, Kind::written, key_of(2)));
  EXPECT_FALSE(outcome(events, Kind::read, key_of(1)));
  EXPECT_TRUE(holds(h.content(token), key_of(1)));
  EXPECT_FALSE(outcome(h.write({root_block(3)}), Kind::written, key_of(3))) << "afterwards it may go";
}

TEST_P(BlockStoreContract, says_at_once_what_it_contains_and_that_is_no_use_of_a_block) {
  StoreHarness& h = make(2);
  h.write({root_block(1)});
  h.write({root_block(2)});
  EXPECT_TRUE(h.store().contains(key_of(1)));
  EXPECT_TRUE(h.store().contains(key_of(2)));
  EXPECT_FALSE(h.store().contains(key_of(9)));
  EXPECT_EQ(h.store().in_flight(), 0U) << "an answer, and no event";
  h.write({root_block(3)});
  EXPECT_FALSE(h.store().contains(key_of(1))) << "the oldest as before";
  EXPECT_TRUE(h.store().contains(key_of(3)));
}

TEST_P(BlockStoreContract, for_each_goes_depth_first) {
  StoreHarness& h = make(32);
  const auto prefix = prefix_of(1, 6);
  h.write(prefix);
  std::vector<StoredBlock> stored = prefix;
  for (std::uint64_t n = 0; n < 8; ++n) stored.push_back(child_of(stored[n * 3 % stored.size()], 100 + n));
  h.write({stored.begin() + 6, stored.end()});
  std::vector<StoredBlock> visited;
  std::vector<BlockKey> trail;  // the ancestors of the present block, by depth
  h.store().for_each([&](const StoredBlock& block) {
    ASSERT_LE(block.depth, trail.size());
    if (block.depth > 0) {
      EXPECT_EQ(trail[block.depth - 1], block.parent);
    }
    trail.resize(block.depth);
    trail.push_back(block.key);
    visited.push_back(block);
  });
  EXPECT_TRUE(std::is_permutation(visited.begin(), visited.end(), stored.begin(), stored.end()));
}

TEST_P(BlockStoreContract, operations_are_in_flight_until_their_event_is_polled) {
  StoreHarness& h = make(4);
  EXPECT_EQ(h.store().in_flight(), 0U);
  h.start_write({root_block(1), root_block(2)});
  h.start_read(key_of(9));
  EXPECT_EQ(h.store().in_flight(), 3U);
  EXPECT_EQ(h.drain().size(), 3U);
  EXPECT_EQ(h.store().in_flight(), 0U);
  EXPECT_EQ(h.store().block_bytes(), Bytes{block_size});
}

}  // namespace
}  // namespace terrace::test
