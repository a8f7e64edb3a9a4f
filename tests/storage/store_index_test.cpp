#include "storage/index/store_index.hpp"

#include "base/random.hpp"
#include "tests/storage/blocks.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

namespace terrace::test {
namespace {

using IndexState = StoreIndex::State;

/// The same rules with plain maps, which are searched completely every time.
class NaiveIndex {
 public:
  struct Entry {
    StoredBlock block;
    IndexState state = IndexState::writing;
    std::uint64_t last_use = 0;
    unsigned readers = 0;
    bool marked_for_removal = false;
  };
  std::map<BlockKey, Entry> entries;
  std::size_t capacity = 0;
  std::size_t untouchable = 0;  ///< slots that are being removed, or are bad

  [[nodiscard]] bool has_child(const BlockKey& key) const {
    return std::any_of(entries.begin(), entries.end(),
                       [&](const auto& e) { return e.second.block.depth > 0 && e.second.block.parent == key; });
  }
  [[nodiscard]] bool takes_child(const StoredBlock& block) const {
    if (block.depth == 0) return true;
    const auto parent = entries.find(block.parent);
    return parent != entries.end() && !parent->second.marked_for_removal && parent->second.block.depth + 1 == block.depth;
  }
  /// The blocks that may be evicted for a child of `parent`: all that are equally first.
  [[nodiscard]] std::set<BlockKey> victims(const StoredBlock& newcomer) const {
    std::set<BlockKey> best;
    std::pair<std::uint64_t, std::uint64_t> least{~0ULL, 0};
    for (const auto& [key, e] : entries) {
      if (e.state != IndexState::ready || e.readers > 0 || has_child(key)) continue;
      if (newcomer.depth > 0 && key == newcomer.parent) continue;
      const std::pair<std::uint64_t, std::uint64_t> rank{e.last_use, ~std::uint64_t{e.block.depth}};
      if (rank < least) best.clear();
      if (rank <= least) best.insert(key);
      least = std::min(rank, least);
    }
    return best;
  }
  void descend(const BlockKey& key, std::set<BlockKey>& into) const {
    into.insert(key);
    for (const auto& [child, e] : entries) {
      if (e.block.depth > 0 && e.block.parent == key) descend(child, into);
    }
  }
  void settle(std::set<BlockKey>& became_ready) {
    for (bool again = true; again;) {
      again = false;
      for (auto& [key, e] : entries) {
        if (e.state != IndexState::awaiting_parent || entries.at(e.block.parent).state != IndexState::ready) continue;
        e.state = IndexState::ready;
        became_ready.insert(key);
        again = true;
      }
    }
  }
};

std::set<BlockKey> keys_at(const StoreIndex& index, const std::vector<SlotId>& slots) {
  std::set<BlockKey> keys;
  for (const SlotId slot : slots) keys.insert(index.at(slot).key);
  return keys;
}

TEST(StoreIndex, agrees_with_plain_maps_over_random_operations) {
  const std::uint64_t seed = seed_from_env_or(1);
  SCOPED_TRACE("TERRACE_SEED=" + std::to_string(seed));
  Random random{seed};
  std::size_t evictions = 0;
  for (const std::uint32_t capacity : {1U, 3U, 17U, 40U}) {
    StoreIndex index{capacity};
    NaiveIndex naive;
    naive.capacity = capacity;
    std::vector<StoredBlock> known{root_block(0)};
    for (std::uint64_t n = 1; n < 3 * capacity + 4; ++n) {
      known.push_back(random.chance(0.2) ? root_block(n) : child_of(known[random.below(known.size())], n));
    }
    std::vector<std::pair<SlotId, bool>> held;  // slots on which the test has a hold; true: for a write
    for (int step = 0; step < 20000; ++step) {
      const StoredBlock& block = known[random.below(known.size())];
      const std::optional<SlotId> slot = index.find(block.key);
      const auto mine = naive.entries.find(block.key);
      ASSERT_EQ(slot.has_value(), mine != naive.entries.end());
      ASSERT_TRUE(!slot || index.at(*slot).state == mine->second.state);
      index.advance();
      switch (random.below(8)) {
        case 0:
        case 1:
        case 2: {  // place
          if (slot) break;
          const auto placed = index.place(block);
          const std::set<BlockKey> victims = naive.victims(block);
          const bool is_full = naive.entries.size() + naive.untouchable == capacity;
          if (!naive.takes_child(block)) {
            ASSERT_EQ(placed.error(), Errc::parent_missing);
          } else if (is_full && victims.empty()) {
            ASSERT_EQ(placed.error(), Errc::full);
          } else {
            ASSERT_TRUE(placed.has_value());
            ASSERT_EQ(placed->evicted.has_value(), is_full);
            if (is_full) {
              ++evictions;
              ASSERT_TRUE(victims.contains(placed->evicted->key));
              naive.entries.erase(placed->evicted->key);
            }
            naive.entries[block.key] = {block, IndexState::writing, index.now(), 0, false};
          }
          break;
        }
        case 3: {  // the data of a block have arrived
          if (!slot || mine->second.state != IndexState::writing) break;
          ASSERT_EQ(index.block(*slot), block);
          std::vector<SlotId> ready;
          index.data_arrived(*slot, ready);
          std::set<BlockKey> expected;
          const bool waits = block.depth > 0 && naive.entries.at(block.parent).state != IndexState::ready;
          mine->second.state = waits ? IndexState::awaiting_parent : IndexState::ready;
          if (!waits) expected.insert(block.key);
          naive.settle(expected);
          ASSERT_EQ(keys_at(index, ready), expected);
          for (std::size_t n = 1; n < ready.size(); ++n) {
            ASSERT_LE(index.at(ready[n - 1]).depth, index.at(ready[n]).depth) << "parents first";
          }
          // A store does the same: a block that is marked for removal is dropped when its write has ended.
          for (const BlockKey& key : expected) {
            if (!naive.entries.contains(key) || !naive.entries.at(key).marked_for_removal) continue;
            std::vector<StoreIndex::Dropped> gone;
            index.drop(*index.find(key), gone);
            std::set<BlockKey> subtree;
            naive.descend(key, subtree);
            for (const auto& d : gone) {
              if (d.was == IndexState::writing) held.emplace_back(d.slot, true), ++naive.untouchable;
            }
            for (const BlockKey& k : subtree) naive.entries.erase(k);
          }
          break;
        }
        case 4: {  // drop
          if (!slot || !random.chance(0.1)) break;
          std::set<BlockKey> subtree;
          naive.descend(block.key, subtree);
          std::vector<StoreIndex::Dropped> gone;
          index.drop(*slot, gone);
          std::set<BlockKey> dropped;
          for (const StoreIndex::Dropped& d : gone) {
            ASSERT_EQ(d.was, naive.entries.at(d.key).state);
            dropped.insert(d.key);
            if (d.was == IndexState::writing) held.emplace_back(d.slot, true);
            if (d.was == IndexState::writing || naive.entries.at(d.key).readers > 0) ++naive.untouchable;
          }
          ASSERT_EQ(gone.back().key, block.key) << "children first";
          ASSERT_EQ(dropped, subtree);
          for (const BlockKey& key : subtree) naive.entries.erase(key);
          break;
        }
        case 5:  // hold
          if (!slot || mine->second.state != IndexState::ready) break;
          index.hold(*slot);
          ++mine->second.readers;
          held.emplace_back(*slot, false);
          break;
        case 6: {  // release
          if (held.empty()) break;
          const std::size_t which = random.below(held.size());
          const SlotId released = held[which].first;
          held.erase(held.begin() + static_cast<std::ptrdiff_t>(which));
          const StoreIndex::Entry& e = index.at(released);
          const bool last = e.operations == 1;
          if (e.state == IndexState::removing) {
            const bool slot_retired = last && random.chance(0.01);
            if (slot_retired) index.retire_slot(released);
            if (last && !slot_retired) --naive.untouchable;
          } else {
            --naive.entries.at(e.key).readers;
          }
          index.release(released);
          break;
        }
        case 7:  // use, mark for removal
          if (!slot) break;
          if (mine->second.state != IndexState::ready && random.chance(0.2)) {
            index.mark_for_removal(*slot);
            mine->second.marked_for_removal = true;
          } else {
            index.use(*slot);
            mine->second.last_use = index.now();
          }
          break;
        default: break;
      }
      index.check_invariants();
      ASSERT_EQ(index.count_orphans(), 0U);
      ASSERT_EQ(index.count(IndexState::removing) + index.count(IndexState::bad), naive.untouchable);
      ASSERT_EQ(index.free(), capacity - naive.entries.size() - naive.untouchable);
    }
    for (const auto& [slot, is_write] : held) index.release(slot);
    index.check_invariants();
  }
  EXPECT_GT(evictions, 500U);
}

TEST(StoreIndex, lays_a_prefix_side_by_side) {
  StoreIndex index{64};
  std::vector<SlotId> ready;
  const auto write = [&](const StoredBlock& block) {
    const SlotId slot = index.place(block).value().slot;
    index.data_arrived(slot, ready);
    return slot.value();
  };
  EXPECT_EQ(write(root_block(1)), 0U);
  EXPECT_EQ(write(root_block(2)), 1U);
  const auto prefix = prefix_of(10, 4);
  for (std::uint32_t n = 0; n < 4; ++n) EXPECT_EQ(write(prefix[n]), 2 + n);
  EXPECT_EQ(write(child_of(prefix[0], 20)), 6U) << "the slot beside its parent's is taken: the lowest free one";
  std::vector<StoreIndex::Dropped> gone;
  index.drop(*index.find(prefix[1].key), gone);
  EXPECT_EQ(write(child_of(prefix[0], 21)), 3U);

  gone.clear();
  index.drop(*index.find(key_of(1)), gone);  // slot 0 is the lowest, and not next to a parent
  EXPECT_EQ(write(child_of(child_of(prefix[0], 20), 30)), 7U);
  EXPECT_EQ(write(root_block(40)), 0U);
}

TEST(StoreIndex, restores_in_any_order_but_for_orphans_and_doubles) {
  StoreIndex index{12};
  const auto prefix = prefix_of(1, 3);
  const auto lone = prefix_of(50, 4);
  const auto restore = [&](std::uint32_t slot, const StoredBlock& block, std::uint64_t last_use) {
    return index.restore(SlotId{slot}, block, last_use);
  };
  EXPECT_EQ(restore(4, prefix[1], 5), std::nullopt);
  EXPECT_EQ(restore(7, prefix[0], 9), std::nullopt);
  EXPECT_EQ(restore(5, prefix[1], 6), SlotId{4}) << "the newer one stays";
  EXPECT_EQ(restore(3, prefix[1], 2), SlotId{3}) << "the older one does not come in";
  EXPECT_EQ(restore(8, lone[1], 3), std::nullopt);
  EXPECT_EQ(restore(9, lone[2], 3), std::nullopt);
  EXPECT_EQ(restore(0, child_of(prefix[0], 70), 3), std::nullopt);
  StoredBlock too_deep = child_of(prefix[0], 71);
  too_deep.depth = 5;
  EXPECT_EQ(restore(1, too_deep, 3), std::nullopt);
  EXPECT_EQ(restore(2, prefix[1], 6), SlotId{5}) << "of two equally old ones, the one in the lower slot stays";
  EXPECT_EQ(restore(6, prefix[1], 6), SlotId{6});
  std::vector<SlotId> dropped;
  index.finish_restore(dropped);
  std::ranges::sort(dropped);
  EXPECT_EQ(dropped, (std::vector{SlotId{1}, SlotId{8}, SlotId{9}}));
  EXPECT_GT(index.now(), 9U) << "what comes is younger than all that is restored";
  index.check_invariants();
  EXPECT_EQ(index.count(IndexState::ready), 3U);
  EXPECT_EQ(index.free(), 9U);
  EXPECT_EQ(index.find(prefix[1].key), SlotId{2});
  EXPECT_FALSE(index.find(lone[1].key).has_value());
  std::vector<StoreIndex::Dropped> gone;
  index.drop(SlotId{7}, gone);
  EXPECT_EQ(gone.size(), 3U);
}

TEST(StoreIndex, restores_children_of_a_block_that_another_slot_replaces) {
  StoreIndex index{8};
  const auto prefix = prefix_of(1, 3);
  const auto restore = [&](std::uint32_t slot, const StoredBlock& block, std::uint64_t last_use) {
    return index.restore(SlotId{slot}, block, last_use);
  };
  EXPECT_EQ(restore(0, prefix[0], 9), std::nullopt);
  EXPECT_EQ(restore(1, prefix[1], 1), std::nullopt);
  EXPECT_EQ(restore(2, prefix[2], 8), std::nullopt);
  EXPECT_EQ(restore(6, prefix[1], 7), SlotId{1});
  EXPECT_EQ(restore(5, prefix[0], 10), SlotId{0});
  std::vector<SlotId> dropped;
  index.finish_restore(dropped);
  EXPECT_TRUE(dropped.empty());
  index.check_invariants();
  EXPECT_EQ(index.block(SlotId{5}), prefix[0]);
  EXPECT_EQ(index.block(SlotId{6}), prefix[1]);
  EXPECT_EQ(index.block(SlotId{2}), prefix[2]);
  // The only leaf is evicted first, and then its parent is a leaf.
  index.limit(2);
  EXPECT_EQ(index.shrink()->slot, SlotId{7}) << "free slots close first";
  while (index.free() > 0) (void)index.shrink();
  EXPECT_EQ(index.shrink()->evicted->key, prefix[2].key);
}

}  // namespace
}  // namespace terrace::test
