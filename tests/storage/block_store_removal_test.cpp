// The contract in terrace/block_store.hpp for blocks that leave the store: removed, damaged, reported with their tokens,
// and at random. For every kind of store.

#include "base/random.hpp"
#include "tests/storage/fixtures.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>

namespace terrace::test {
namespace {

using Kind = StoreEvent::Kind;

class BlockStoreRemoval : public EveryStore {};

INSTANTIATE_TEST_SUITE_P(Stores, BlockStoreRemoval, testing::ValuesIn(store_kinds()),
                         [](const auto& param) { return to_string(param.param); });

TEST_P(BlockStoreRemoval, a_slot_is_bad_also_where_nobody_waits_for_its_write_any_more) {
  StoreHarness& h = make(3);
  const auto prefix = prefix_of(1, 2);
  h.write({prefix[0]});
  h.fail_write_of(prefix[1].key);
  h.start_write({prefix[1]});
  h.store().remove({&prefix[0].key, 1}, 5);
  EXPECT_EQ(outcome(h.drain(), Kind::written, prefix[1].key), Errc::parent_missing);
  EXPECT_EQ(h.store().stat().quarantined, 1U);
  EXPECT_EQ(h.store().stat().free, 2U);
}

TEST_P(BlockStoreRemoval, a_removed_block_takes_its_descendants_along) {
  StoreHarness& h = make(8);
  const auto prefix = prefix_of(1, 4);
  h.write(prefix);
  h.write({child_of(prefix[1], 50), root_block(60)});
  h.store().remove({&prefix[1].key, 1}, 77);
  const auto events = h.drain();
  ASSERT_EQ(events.size(), 4U);
  for (const StoreEvent& event : events) {
    EXPECT_EQ(event.kind, Kind::removed);
    EXPECT_EQ(event.token, event.key == prefix[1].key ? 77U : 0U);
  }
  EXPECT_EQ(h.store().stat().blocks, 2U);
  EXPECT_TRUE(h.reads_back(prefix[0].key));
  EXPECT_FALSE(h.reads_back(prefix[3].key));
  EXPECT_TRUE(h.reads_back(key_of(60)));
}

TEST_P(BlockStoreRemoval, every_key_that_was_named_and_there_is_reported_with_the_token) {
  StoreHarness& h = make(8);
  const auto prefix = prefix_of(1, 3);
  h.write(prefix);
  const std::vector keys{prefix[0].key, prefix[2].key, key_of(999)};
  h.store().remove(keys, 5);
  const auto events = h.drain();
  ASSERT_EQ(events.size(), 3U);
  for (const StoreEvent& event : events) EXPECT_EQ(event.token, event.key == prefix[1].key ? 0U : 5U);
}

TEST_P(BlockStoreRemoval, a_block_that_is_removed_while_being_written_goes_when_it_is_written) {
  StoreHarness& h = make(8);
  const auto prefix = prefix_of(1, 3);
  h.start_write({prefix[0], prefix[1]});
  h.store().remove({&prefix[0].key, 1}, 5);
  h.start_write({prefix[2], prefix[0]});  // a grandchild of the removed block, and the block itself
  h.start_write({child_of(prefix[0], 40)});
  const auto events = h.drain();
  EXPECT_EQ(outcome(events, Kind::written, key_of(40)), Errc::parent_missing);
  std::vector<ErrorCode> of_root;
  for (const StoreEvent& event : events) {
    if (event.kind == Kind::written && event.key == prefix[0].key) of_root.push_back(event.error);
  }
  ASSERT_EQ(of_root.size(), 2U);
  EXPECT_EQ(of_root[0], Errc::refused) << "the second write came while the block was on its way out";
  EXPECT_FALSE(of_root[1]);
  EXPECT_EQ(keys_of(events, Kind::removed).back(), prefix[0].key);
  EXPECT_EQ(h.store().stat().blocks, 0U);
  EXPECT_EQ(h.store().stat().free, 8U);
  for (const StoredBlock& block : prefix) EXPECT_FALSE(h.has(block.key));
}

TEST_P(BlockStoreRemoval, removing_a_parent_fails_the_write_of_its_child) {
  StoreHarness& h = make(4);
  const auto prefix = prefix_of(1, 2);
  h.write({prefix[0]});
  h.start_write({prefix[1]});
  h.store().remove({&prefix[0].key, 1}, 5);
  EXPECT_EQ(h.store().stat().quarantined, 1U) << "the child's slot, until its write has ended";
  const auto events = h.drain();
  EXPECT_EQ(outcome(events, Kind::written, prefix[1].key), Errc::parent_missing);
  EXPECT_FALSE(outcome(events, Kind::removed, prefix[0].key));
  EXPECT_EQ(h.store().stat().free, 4U);
}

TEST_P(BlockStoreRemoval, a_read_under_way_survives_the_removal_of_its_block) {
  StoreHarness& h = make(1);
  h.write({root_block(1)});
  const std::uint64_t token = h.start_read(key_of(1));
  const BlockKey key = key_of(1);
  h.store().remove({&key, 1}, 5);
  EXPECT_EQ(h.store().stat().quarantined, 1U);
  h.start_write({root_block(2)});  // the only slot is still being read
  const auto events = h.drain();
  EXPECT_FALSE(outcome(events, Kind::read, key));
  EXPECT_TRUE(holds(h.content(token), key));
  EXPECT_EQ(outcome(events, Kind::written, key_of(2)), Errc::full);
  EXPECT_FALSE(h.has(key));
  EXPECT_EQ(h.store().stat().free, 1U);
}

TEST_P(BlockStoreRemoval, removing_what_is_not_there_says_nothing) {
  StoreHarness& h = make(4);
  const BlockKey key = key_of(1);
  h.store().remove({&key, 1}, 5);
  h.store().touch({&key, 1});
  EXPECT_TRUE(h.drain().empty());
}

TEST_P(BlockStoreRemoval, what_leaves_is_named_by_the_token_of_the_write_that_stored_it) {
  StoreHarness& h = make(3);
  const auto prefix = prefix_of(1, 2);
  h.write(prefix);            // tokens 1 and 2
  h.write({root_block(50)});  // 3
  h.write({root_block(50)});  // 4: the events name the latest writer
  const auto first = h.write({root_block(60)});
  ASSERT_EQ(keys_of(first, Kind::evicted), std::vector{prefix[1].key});
  EXPECT_EQ(first.front().write_token, 2U);

  h.store().adopt_all([&](std::span<const StoredBlock> blocks, std::span<std::optional<std::uint64_t>> tokens) {
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      if (blocks[i].key == prefix[0].key) tokens[i] = 77;
    }
  });
  const std::vector keys{prefix[0].key, key_of(50)};
  h.store().remove(keys, 9);
  for (const StoreEvent& event : h.drain()) EXPECT_EQ(event.write_token, event.key == prefix[0].key ? 77U : 4U);
}

TEST_P(BlockStoreRemoval, a_refused_write_knows_nothing_of_the_block) {
  StoreHarness& h = make(3);
  const BlockKey key = key_of(1);
  h.start_write({root_block(1)});
  h.store().remove({&key, 1}, 9);
  h.start_write({root_block(1)});
  for (const StoreEvent& event : h.drain()) EXPECT_EQ(event.write_token, event.kind == Kind::removed ? 1U : 0U);
}

TEST_P(BlockStoreRemoval, a_flipped_bit_is_a_miss_and_costs_the_descendants) {
  StoreHarness& h = make(8);
  const auto prefix = prefix_of(1, 4);
  h.write(prefix);
  h.write({root_block(50)});
  h.damage(prefix[1].key);
  EXPECT_TRUE(h.reads_back(prefix[0].key));
  h.start_read(prefix[1].key);
  h.start_read(prefix[1].key);
  const auto events = h.drain();
  const auto reads = keys_of(events, Kind::read);
  EXPECT_EQ(reads.size(), 2U);
  for (const StoreEvent& event : events) {
    EXPECT_EQ(event.error, event.kind == Kind::read ? ErrorCode{Errc::corrupt} : ErrorCode{});
    EXPECT_TRUE(event.kind == Kind::read || (event.kind == Kind::evicted && event.token == 0));
  }
  auto evicted = keys_of(events, Kind::evicted);
  EXPECT_EQ(evicted, (std::vector{prefix[3].key, prefix[2].key, prefix[1].key}));
  EXPECT_EQ(h.read(prefix[1].key), Errc::not_found);
  EXPECT_EQ(h.read(prefix[2].key), Errc::not_found);
  EXPECT_TRUE(h.reads_back(prefix[0].key));
  EXPECT_TRUE(h.reads_back(key_of(50)));
  const StoreStat stat = h.store().stat();
  EXPECT_EQ(stat.corrupt, 2U);
  EXPECT_EQ(stat.blocks, 2U);
  EXPECT_EQ(stat.free, 6U);
  h.write(prefix);
  EXPECT_TRUE(h.reads_back(prefix[3].key)) << "and may be stored again";
}

TEST_P(BlockStoreRemoval, a_flipped_bit_is_found_while_what_builds_on_the_block_is_read) {
  StoreHarness& h = make(8);
  const auto prefix = prefix_of(1, 4);
  h.write(prefix);
  h.damage(prefix[1].key);
  h.start_read(prefix[1].key);
  const std::array below{h.start_read(prefix[2].key), h.start_read(prefix[3].key)};
  const auto events = h.drain();
  EXPECT_EQ(outcome(events, Kind::read, prefix[1].key), Errc::corrupt);
  for (std::size_t n = 0; n < below.size(); ++n) {
    const BlockKey& key = prefix[2 + n].key;
    EXPECT_FALSE(outcome(events, Kind::read, key));
    EXPECT_TRUE(holds(h.content(below[n]), key)) << "its own bytes are good";
  }
  EXPECT_EQ(keys_of(events, Kind::evicted), (std::vector{prefix[3].key, prefix[2].key, prefix[1].key}));
  const StoreStat stat = h.store().stat();
  EXPECT_EQ(stat.corrupt, 1U);
  EXPECT_EQ(stat.blocks, 1U);
  EXPECT_EQ(stat.free, 7U);
}

TEST_P(BlockStoreRemoval, stays_closed_under_parent_whatever_happens) {
  const std::uint64_t seed = seed_from_env_or(1);
  SCOPED_TRACE("TERRACE_SEED=" + std::to_string(seed));
  Random random{seed};
  StoreHarness& h = make(24);
  std::vector<StoredBlock> known;  // every block that was ever named, parents first
  for (std::uint64_t n = 0; n < 60; ++n) {
    known.push_back(n < 4 || random.chance(0.1) ? root_block(n) : child_of(known[random.below(known.size())], n));
  }
  const auto any = [&]() -> const StoredBlock& { return known[random.below(known.size())]; };

  std::vector<BlockKey> readable;  // according to the events
  std::vector<StoreEvent> events;
  std::size_t served = 0;
  for (int step = 0; step < 2500; ++step) {
    switch (random.below(12)) {
      case 0:
      case 1:
      case 2:
      case 3: h.start_write({any(), any(), any()}); break;
      case 4:
        if (random.chance(0.03)) {
          h.fail_write_of(known.front().key);
          h.start_write({known.front()});
        }
        break;
      case 5: {
        const std::vector keys{any().key, any().key};
        if (random.chance(0.2)) h.store().remove(keys, 9);
        break;
      }
      case 6: {
        const std::vector keys{any().key, any().key};
        h.store().touch(keys);
        break;
      }
      case 7:
        if (!readable.empty() && random.chance(0.1) && h.store().in_flight() == 0) {
          h.damage(readable[random.below(readable.size())]);
        }
        break;
      case 8: h.advance(); break;
      default: h.start_read(any().key);
    }
    events.clear();
    if (random.chance(0.5)) h.store().poll(events);
    if (step % 100 == 0 || h.store().stat().quarantined > 12) {
      const auto rest = h.drain();
      events.insert(events.end(), rest.begin(), rest.end());
    }
    for (const StoreEvent& event : events) {
      if (event.kind == Kind::written && !event.error) readable.push_back(event.key);
      if (event.kind == Kind::removed || event.kind == Kind::evicted) std::erase(readable, event.key);
      if (event.kind == Kind::read && !event.error) {
        ++served;
        EXPECT_TRUE(holds(h.content(event.token), event.key)) << "a wrong block was served";
      }
    }
    std::sort(readable.begin(), readable.end());
    readable.erase(std::unique(readable.begin(), readable.end()), readable.end());
    h.store().check_invariants();
    const StoreStat stat = h.store().stat();
    ASSERT_EQ(stat.orphans, 0U);
    ASSERT_EQ(stat.free + stat.blocks + stat.writing + stat.quarantined, stat.capacity_blocks);
    if (stat.quarantined > 16) break;  // too many slots have failed to test much more
    if (!events.empty() && h.store().in_flight() == 0) {
      std::vector<BlockKey> there;
      h.store().for_each([&](const StoredBlock& block) { there.push_back(block.key); });
      std::sort(there.begin(), there.end());
      ASSERT_EQ(there, readable) << "the events tell what is there";
    }
  }
  EXPECT_GT(served, 100U);
}

}  // namespace
}  // namespace terrace::test
