#include "base/random.hpp"
#include "radix/tree/prefix_tree.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <list>
#include <map>
#include <vector>

namespace terrace {
namespace {

BlockKey random_key(Random& random) {
  BlockKey key;
  for (std::size_t at = 0; at < key.bytes.size(); at += 8) {
    const std::uint64_t word = random.engine()();
    std::memcpy(&key.bytes[at], &word, sizeof word);
  }
  return key;
}

Prefix add(PrefixTree& tree, const BlockKey& key, std::uint32_t slot) {
  const Prefix block = tree.extend({}, {&key, 1}, TenantId{5});
  tree.set_copy(block.last(), Tier::host, Copy{CopyState::ready, SlotId{slot}});
  return block;
}

TEST(FlatIndex, takes_at_most_70_bytes_a_block_with_its_order_of_eviction) {
  Random random{7};
  PrefixTree tree{PrefixTree::Shape::flat};
  for (std::uint32_t blocks = 1; blocks <= 2'200'000; ++blocks) {
    const Prefix block = add(tree, random_key(random), blocks);
    if (blocks % 2 == 0) tree.set_copy(block.last(), Tier::storage, Copy{CopyState::ready, SlotId{blocks}});
    if (blocks % 50'000 != 0 || blocks < 600'000) continue;
    const double each = static_cast<double>(tree.bytes_held()) / static_cast<double>(blocks);
    EXPECT_LE(each, 70.0) << blocks;
  }
}

TEST(FlatIndex, agrees_with_a_map_and_a_list) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    Random random{seed};
    PrefixTree tree{PrefixTree::Shape::flat};
    struct Known {
      Prefix block;
      std::uint32_t pins = 0;
      bool host = false;
      bool stored = false;
    };
    std::map<BlockKey, Known> known;
    std::list<BlockKey> order;  // evictable host copies, oldest first
    std::vector<BlockKey> keys;
    for (int i = 0; i < 60; ++i) {
      keys.push_back(random_key(random));
      // Many keys fall into one place of the table.
      if (random.chance(0.7)) std::memset(keys.back().bytes.data(), 0, 8);
    }
    const auto refresh = [&](const BlockKey& key, bool renew) {
      const auto found = known.find(key);
      const bool evictable = found != known.end() && found->second.host && found->second.pins == 0;
      const bool listed = std::ranges::find(order, key) != order.end();
      if (listed && (!evictable || renew)) order.remove(key);
      if (evictable && (!listed || renew)) order.push_back(key);
      if (found != known.end() && !found->second.host && !found->second.stored && found->second.pins == 0) known.erase(found);
    };
    std::uint64_t stamp = 0;
    for (int step = 0; step < 3000; ++step) {
      const BlockKey& key = keys[random.below(keys.size())];
      const auto found = known.find(key);
      const Prefix at = tree.find({&key, 1});
      ASSERT_EQ(at.length, found == known.end() ? 0U : 1U);
      if (found == known.end()) {
        const Prefix block = add(tree, key, static_cast<std::uint32_t>(step));
        ASSERT_EQ(tree.added(), 1U);
        known[key] = {block, 0, true, false};
        refresh(key, false);
        continue;
      }
      Known& here = found->second;
      ASSERT_EQ(tree.key(at.last()), key);
      ASSERT_EQ(tree.tenant(at.last()), TenantId{5});
      switch (random.below(6)) {
        case 0:
          tree.pin(at);
          ++here.pins;
          break;
        case 1:
          if (here.pins == 0) break;
          tree.unpin(at);
          --here.pins;
          break;
        case 2:
          here.host = !here.host;
          tree.set_copy(at.last(), Tier::host, here.host ? Copy{CopyState::ready, SlotId{3}} : Copy{});
          break;
        case 3:
          here.stored = !here.stored;
          tree.set_copy(at.last(), Tier::storage, here.stored ? Copy{CopyState::ready, SlotId{3}} : Copy{});
          break;
        case 4:
          tree.touch(at, ++stamp);
          ASSERT_EQ(tree.last_use(at.last()), stamp);
          refresh(key, true);
          continue;
        default:
          if (const auto victim = tree.victim(Tier::host)) {
            ASSERT_EQ(tree.key(*victim), order.front());
            const BlockKey gone = order.front();
            tree.set_copy(*victim, Tier::host, {});
            known.at(gone).host = false;
            refresh(gone, false);
          }
          continue;
      }
      refresh(key, false);
      ASSERT_EQ(tree.victim(Tier::host).has_value(), !order.empty());
      ASSERT_EQ(tree.blocks(), known.size());
      if (step % 50 == 0) tree.check_invariants();
      if (step % 700 != 699) continue;
      // Everything is hidden, and leaves when nothing holds it any more.
      tree.hide_all();
      ASSERT_EQ(tree.any_hidden(), !known.empty());
      std::vector<BlockRef> hidden;
      tree.for_each_hidden([&](BlockRef block) { hidden.push_back(block); });
      ASSERT_EQ(hidden.size(), known.size());
      for (auto& [old, entry] : known) {
        ASSERT_EQ(tree.find({&old, 1}).length, 0U);
        while (entry.pins > 0) {
          tree.unpin(entry.block);
          --entry.pins;
        }
      }
      tree.check_invariants();
      hidden.clear();
      tree.for_each_hidden([&](BlockRef block) { hidden.push_back(block); });
      for (const BlockRef block : hidden) {
        if (tree.copy(block, Tier::host).present() && tree.copy(block, Tier::storage).present()) {
          tree.set_copy(block, Tier::host, {});
        }
        const Tier last = tree.copy(block, Tier::host).present() ? Tier::host : Tier::storage;
        tree.set_copy(block, last, {});
      }
      ASSERT_EQ(tree.blocks(), 0U);
      known.clear();
      order.clear();
    }
    tree.check_invariants();
  }
}

}  // namespace
}  // namespace terrace
