#include "radix/tree/prefix_tree.hpp"

#include "radix/eviction/lru_policy.hpp"
#include "tests/radix/key_helpers.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace terrace {
namespace {

using test::keys_of;

constexpr Tier device = Tier::device;
constexpr Tier host = Tier::host;

class PrefixTreeTest : public ::testing::Test {
 protected:
  PrefixTreeTest() {
    tree.set_policy(device, device_lru);
    tree.set_policy(host, host_lru);
  }
  ~PrefixTreeTest() override { tree.check_invariants(); }

  /// Adds a prefix with copies in the tier, in the slots from `first_slot` on.
  Prefix insert(const std::vector<BlockKey>& keys, std::uint64_t stamp, std::uint32_t first_slot = 0, Tier tier = device) {
    const Prefix prefix = tree.extend({}, keys);
    tree.pin(prefix);
    for (std::uint32_t i = 0; i < prefix.length; ++i) {
      const BlockRef block{prefix.node, i};
      if (!tree.copy(block, tier).present()) tree.set_copy(block, tier, Copy{CopyState::ready, SlotId{first_slot + i}});
    }
    tree.touch(prefix, stamp);
    tree.unpin(prefix);
    return prefix;
  }

  LruPolicy device_lru;
  LruPolicy host_lru;
  PrefixTree tree;
};

TEST_F(PrefixTreeTest, finds_the_longest_common_prefix) {
  insert(keys_of({1, 2, 3, 4}), 1);
  insert(keys_of({1, 2, 7}), 2, 10);
  EXPECT_EQ(tree.find(keys_of({1, 2, 3, 4, 5})).length, 4U);
  EXPECT_EQ(tree.find(keys_of({1, 2, 7, 4})).length, 3U);
  EXPECT_EQ(tree.find(keys_of({1, 2, 9})).length, 2U);
  EXPECT_EQ(tree.find(keys_of({1})).length, 1U);
  EXPECT_EQ(tree.find(keys_of({2})).length, 0U);
  EXPECT_EQ(tree.find({}).length, 0U);
}

TEST_F(PrefixTreeTest, keeps_a_prefix_in_one_node_until_prompts_part) {
  insert(keys_of({1, 2}), 1);
  insert(keys_of({1, 2, 3, 4}), 2);
  EXPECT_EQ(tree.node_count(), 1U);
  insert(keys_of({1, 2, 9}), 3, 10);
  EXPECT_EQ(tree.node_count(), 3U);
  EXPECT_EQ(tree.blocks(), 5U);
}

TEST_F(PrefixTreeTest, keeps_references_valid_through_splits) {
  const std::vector<BlockKey> keys = keys_of({1, 2, 3, 4, 5, 6});
  const Prefix prefix = insert(keys, 1);
  insert(keys_of({1, 2, 3, 9}), 2, 20);
  insert(keys_of({1, 8}), 3, 30);
  for (std::uint32_t i = 0; i < 6; ++i) {
    const BlockRef block{prefix.node, i};
    EXPECT_EQ(tree.key(block), keys[i]);
    EXPECT_EQ(tree.copy(block, device).slot(), SlotId{i});
  }
  std::vector<Copy> copies(4);
  tree.read(prefix, device, 2, copies);
  for (std::uint32_t i = 0; i < 4; ++i) EXPECT_EQ(copies[i].slot(), SlotId{i + 2});
}

TEST_F(PrefixTreeTest, gives_up_the_oldest_leaf_first_and_a_prefix_from_its_end) {
  insert(keys_of({1, 2, 3}), 1);
  insert(keys_of({1, 2, 4}), 2, 10);
  const auto evict = [&] {
    const BlockRef victim = tree.victim(device).value();
    const BlockKey key = tree.key(victim);
    tree.set_copy(victim, device, {});
    return key;
  };
  EXPECT_EQ(evict(), keys_of({1, 2, 3})[2]);
  EXPECT_EQ(evict(), keys_of({1, 2, 4})[2]);
  EXPECT_EQ(evict(), keys_of({1, 2})[1]);
  EXPECT_EQ(evict(), keys_of({1})[0]);
  EXPECT_FALSE(tree.victim(device).has_value());
  EXPECT_EQ(tree.blocks(), 0U);
  EXPECT_EQ(tree.node_count(), 0U);
}

TEST_F(PrefixTreeTest, gives_up_the_deepest_of_leaves_that_are_equally_old) {
  // Three branches of different lengths, used together, and a newer one.
  insert(keys_of({1, 5, 6, 7}), 1);
  insert(keys_of({1, 2}), 1, 10);
  insert(keys_of({1, 3, 4}), 1, 20);
  insert(keys_of({9, 9, 9, 9, 9}), 2, 30);
  std::vector<std::uint32_t> depths;
  for (int i = 0; i < 7; ++i) {
    const BlockRef victim = tree.victim(device).value();
    depths.push_back(victim.depth);
    tree.set_copy(victim, device, {});
  }
  EXPECT_EQ(depths, (std::vector<std::uint32_t>{3, 2, 2, 1, 1, 1, 0}));
  EXPECT_EQ(tree.victim(device)->depth, 4U) << "age goes before depth";
}

TEST_F(PrefixTreeTest, never_offers_a_pinned_block_nor_one_before_it) {
  const Prefix prefix = insert(keys_of({1, 2, 3}), 1);
  tree.pin({prefix.node, 2});
  EXPECT_EQ(tree.victim(device)->depth, 2U);
  tree.set_copy(*tree.victim(device), device, {});
  EXPECT_FALSE(tree.victim(device).has_value());
  EXPECT_EQ(tree.unpinned(device), 0U);
  tree.unpin({prefix.node, 2});
  EXPECT_EQ(tree.victim(device)->depth, 1U);
  EXPECT_EQ(tree.unpinned(device), 2U);
}

TEST_F(PrefixTreeTest, offers_a_parent_when_its_last_child_in_the_tier_has_left) {
  insert(keys_of({1, 2}), 1);
  const Prefix other = insert(keys_of({1, 3}), 2, 10);
  tree.set_copy({other.node, 1}, host, Copy{CopyState::ready, SlotId{0}});
  tree.set_copy(*tree.victim(device), device, {});
  tree.set_copy(*tree.victim(device), device, {});
  EXPECT_EQ(tree.victim(device)->depth, 0U);  // although {1, 3} is still in the host tier
  EXPECT_EQ(tree.victim(host)->depth, 1U);
}

TEST_F(PrefixTreeTest, offers_neither_filling_nor_busy_copies) {
  const Prefix prefix = insert(keys_of({1}), 1);
  for (const CopyState state : {CopyState::busy, CopyState::filling, CopyState::evicting}) {
    tree.set_copy(prefix.last(), device, Copy{state, SlotId{0}});
    EXPECT_FALSE(tree.victim(device).has_value());
  }
  tree.set_copy(prefix.last(), device, Copy{CopyState::ready, SlotId{0}});
  EXPECT_TRUE(tree.victim(device).has_value());
}

TEST_F(PrefixTreeTest, remembers_the_use_of_a_part_of_a_node) {
  const Prefix prefix = insert(keys_of({1, 2, 3, 4}), 1);
  tree.touch({prefix.node, 2}, 5);
  tree.touch({prefix.node, 3}, 4);
  tree.touch({prefix.node, 4}, 2);
  const std::vector<std::uint64_t> expected{5, 5, 4, 2};
  for (std::uint32_t i = 0; i < 4; ++i) EXPECT_EQ(tree.last_use({prefix.node, i}), expected[i]);
  insert(keys_of({1, 2, 3, 9}), 3, 10);  // splits the node between uses
  for (std::uint32_t i = 0; i < 4; ++i) EXPECT_EQ(tree.last_use({prefix.node, i}), expected[i]);
}

TEST_F(PrefixTreeTest, keeps_a_pinned_block_that_has_no_copy) {
  const Prefix prefix = tree.extend({}, keys_of({1, 2}));
  tree.pin(prefix);
  tree.set_copy({prefix.node, 0}, device, Copy{CopyState::ready, SlotId{0}});
  tree.set_copy({prefix.node, 0}, device, {});
  EXPECT_EQ(tree.blocks(), 2U);
  tree.unpin(prefix);
  EXPECT_EQ(tree.blocks(), 0U);
}

TEST_F(PrefixTreeTest, tells_prefixes_apart_by_their_namespace) {
  BlockKey other_root;
  other_root.bytes[0] = std::byte{1};
  const std::vector<std::uint32_t> names{1, 2};
  insert(test::keys_of(names), 1);
  EXPECT_EQ(tree.find(test::keys_of(names, other_root)).length, 0U);
}

/// Tables and comparisons that use only a part of the key would serve the blocks of one prompt to another.
TEST_F(PrefixTreeTest, tells_keys_apart_that_agree_in_their_first_eight_bytes) {
  const auto keys = [](std::initializer_list<std::uint32_t> names) { return test::with_equal_prefix64(keys_of(names)); };
  ASSERT_EQ(keys({1})[0].prefix64(), keys({2})[0].prefix64());
  ASSERT_NE(keys({1})[0], keys({2})[0]);

  // In one node.
  const Prefix prefix = insert(keys({1, 2, 3}), 1);
  EXPECT_EQ(tree.find(keys({1, 2, 3})).length, 3U);
  EXPECT_EQ(tree.find(keys({1, 2, 4})).length, 2U);
  EXPECT_EQ(tree.find(keys({1, 5, 3})).length, 1U);
  EXPECT_EQ(tree.find(keys({6, 2, 3})).length, 0U);
  // Both keys are siblings: below a block, and as first blocks.
  const Prefix sibling = insert(keys({1, 2, 4}), 2, 10);
  const Prefix root = insert(keys({6, 2}), 3, 20);
  EXPECT_EQ(tree.blocks(), 6U);
  EXPECT_EQ(tree.common(prefix, sibling), 2U);
  EXPECT_EQ(tree.common(prefix, root), 0U);
  EXPECT_EQ(tree.find(keys({1, 2, 7})).length, 2U);
  EXPECT_EQ(tree.find(keys({7})).length, 0U);
  for (const Prefix found : {prefix, sibling, root}) {
    std::vector<BlockKey> named;
    for (std::uint32_t i = 0; i < found.length; ++i) named.push_back(tree.key({found.node, i}));
    EXPECT_TRUE(tree.same(tree.find(named).last(), found.last()));
  }
  // Each leaves without the others.
  tree.set_copy(prefix.last(), device, {});
  EXPECT_EQ(tree.find(keys({1, 2, 3})).length, 2U);
  EXPECT_EQ(tree.find(keys({1, 2, 4})).length, 3U);
}

TEST_F(PrefixTreeTest, names_the_end_of_a_prefix_as_one_run) {
  const std::vector<BlockKey> keys = keys_of({1, 2, 3, 4, 5});
  const Prefix prefix = insert(keys, 1);
  insert(keys_of({1, 2, 9}), 2, 10);
  const auto run = tree.last(prefix, 3);
  EXPECT_EQ(run.begin, 2U);
  EXPECT_TRUE(std::ranges::equal(tree.keys(run), std::span{keys}.last(3)));
}

/// Each of several long prompts branches off early from another, and the old end is evicted. What stays must not keep memory for
/// what was evicted.
TEST_F(PrefixTreeTest, keeps_no_memory_for_blocks_that_have_gone) {
  constexpr std::uint32_t prompts = 50;
  constexpr std::uint32_t blocks = 400;
  const auto prompt = [&](std::uint32_t number, std::uint32_t shared, std::uint32_t turn) {
    std::vector<std::uint32_t> names;
    for (std::uint32_t i = 0; i < blocks; ++i) names.push_back(number * 1000 + i + (i < shared ? 0 : turn * 1'000'000));
    return test::keys_of(names);
  };
  std::uint64_t stamp = 0;
  for (std::uint32_t number = 0; number < prompts; ++number) insert(prompt(number, blocks, 0), ++stamp);
  const std::size_t before = tree.bytes_held();
  for (std::uint32_t turn = 1; turn <= 8; ++turn) {
    for (std::uint32_t number = 0; number < prompts; ++number) {
      // The end of the last turn is then the oldest, and is evicted first.
      const std::uint64_t room = blocks * prompts - blocks / 2;
      while (tree.resident(device) > room) tree.drop(*tree.victims(device, blocks), device);
      insert(prompt(number, blocks / 2, turn), ++stamp);
    }
  }
  EXPECT_LT(tree.bytes_held(), before + before / 4);
}

TEST_F(PrefixTreeTest, survives_keys_that_are_not_chained) {
  const std::vector<BlockKey> a = keys_of({1, 2, 3});
  const std::vector<BlockKey> b{a[1], a[0], a[2], a[1]};
  insert(a, 1);
  insert(b, 2, 10);
  insert({a[0], a[2]}, 3, 20);
  tree.check_invariants();
  while (const auto victim = tree.victim(device)) tree.set_copy(*victim, device, {});
  EXPECT_EQ(tree.blocks(), 0U);
}

}  // namespace
}  // namespace terrace
