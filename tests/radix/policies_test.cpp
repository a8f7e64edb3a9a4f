// Which block each policy evicts first, on the smallest cases in which it differs from LRU.

#include "lab/policies/policies.hpp"
#include "tests/radix/cheap_keys.hpp"
#include "tests/radix/workloads.hpp"
#include "tools/plan/cache_simulator.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

namespace terrace {
namespace {

using test::CheapKeys;
using tools::CacheSimulator;
using tools::PolicyKind;

constexpr std::uint32_t capacity = 20;

/// A cache of twenty blocks. A request is a prefix of the given length below its own root.
class SmallCache {
 public:
  explicit SmallCache(PolicyKind kind) : policy_{make_policy(kind, capacity)}, cache_{*policy_, capacity} {}

  std::uint32_t use(std::uint64_t root, std::uint64_t blocks = 2) {
    std::vector<std::uint64_t> names(blocks);
    for (std::uint64_t i = 0; i < blocks; ++i) names[i] = root * 100 + i;
    return cache_.serve(keys_.of(names));
  }
  void scan(std::uint64_t prefixes) {
    for (std::uint64_t i = 0; i < prefixes; ++i) use(next_++);
  }

 private:
  std::unique_ptr<EvictionPolicy> policy_;
  CacheSimulator cache_;
  CheapKeys keys_;
  std::uint64_t next_ = 1000;
};

TEST(Policies, lru_loses_what_was_used_twice_to_what_comes_once) {
  SmallCache cache{PolicyKind::lru};
  cache.use(1);
  cache.use(1);
  cache.scan(10);
  EXPECT_EQ(cache.use(1), 0U);
}

/// Policies that resist scans from the first use on. The adaptive policy is LRU until another rule has proven better
/// (adaptive_policy_test.cpp).
class ScanResistant : public testing::TestWithParam<PolicyKind> {};

TEST_P(ScanResistant, keep_what_was_used_again_from_what_comes_once) {
  SmallCache cache{GetParam()};
  for (int i = 0; i < 3; ++i) cache.use(1);
  cache.scan(10);
  EXPECT_EQ(cache.use(1), 2U);
}

/// An evicted block is remembered: when it returns, it counts as reused.
TEST_P(ScanResistant, know_what_comes_back_after_it_was_given_up) {
  SmallCache cache{GetParam()};
  for (int i = 0; i < 3; ++i) {
    for (std::uint64_t root = 2; root <= 6; ++root) cache.use(root);
  }
  cache.use(1);
  cache.scan(6);
  EXPECT_EQ(cache.use(1), 0U);
  cache.scan(6);
  EXPECT_EQ(cache.use(1), 2U);
}

INSTANTIATE_TEST_SUITE_P(Policies, ScanResistant, testing::Values(PolicyKind::lru_2, PolicyKind::arc, PolicyKind::s3_fifo),
                         [](const auto& kind) {
                           std::string name{to_string(kind.param)};
                           std::erase(name, '-');
                           return name;
                         });

TEST(Policies, lru_2_gives_up_first_what_was_used_twice_longest_ago) {
  SmallCache cache{PolicyKind::lru_2};
  cache.use(1, 10);
  cache.use(2, 10);
  cache.use(2, 10);
  cache.use(1, 10);  // this is the latest use, but the use before it is the oldest of all
  cache.use(3, 2);
  EXPECT_EQ(cache.use(2, 10), 10U);
}

/// Ten prefixes that were used twice fill the cache. Then every prefix is used a second time after six others, and never again.
/// Such uses hit only if blocks that were used once get room, and only hits on evicted blocks can show that.
TEST(Policies, arc_makes_room_for_what_was_used_once_when_that_comes_back) {
  SmallCache cache{PolicyKind::arc};
  for (int round = 0; round < 2; ++round) {
    for (std::uint64_t root = 1; root <= 10; ++root) cache.use(root);
  }
  std::uint32_t late_hits = 0;
  for (std::uint64_t i = 0; i < 60; ++i) {
    cache.use(100 + i);
    if (i < 6) continue;
    const std::uint32_t hits = cache.use(100 + i - 6);
    if (i >= 30) late_hits += hits;
  }
  EXPECT_GT(late_hits, 40U);
}

/// A leaf that is not pinned is used where it stands. Its new position depends on this use, not on the one before.
TEST(Policies, hear_of_a_use_before_the_leaf_takes_its_new_place) {
  constexpr Tier device = Tier::device;
  const auto policy = make_policy(PolicyKind::lru_2, capacity);
  PrefixTree tree;
  tree.set_policy(device, *policy);
  CheapKeys keys;
  std::vector<Prefix> prefixes;
  for (const std::uint64_t name : {1, 2}) {
    const Prefix prefix = tree.extend({}, keys.of(std::vector<std::uint64_t>{name}));
    tree.pin(prefix);
    tree.set_copy(prefix.last(), device, Copy{CopyState::ready, SlotId{0}});
    tree.unpin(prefix);
    prefixes.push_back(prefix);
  }
  tree.touch(prefixes[1], 1);
  tree.touch(prefixes[0], 2);
  tree.touch(prefixes[0], 3);
  tree.touch(prefixes[1], 5);
  tree.touch(prefixes[0], 9);
  tree.touch(prefixes[1], 10);
  EXPECT_EQ(tree.victim(device), prefixes[0].last());  // its last use but one was at 3, that of the other at 5
}

TEST(Policies, s3_fifo_passes_new_blocks_through_a_tenth) {
  SmallCache cache{PolicyKind::s3_fifo};
  for (int i = 0; i < 3; ++i) {
    for (std::uint64_t root = 1; root <= 9; ++root) cache.use(root);
  }
  cache.scan(50);
  std::uint32_t hits = 0;
  for (std::uint64_t root = 1; root <= 9; ++root) hits += cache.use(root);
  EXPECT_EQ(hits, 18U);
}

/// Three blocks in the small queue are more than a tenth of twenty, and the oldest of them is due for the main queue when it is
/// removed. It leaves the small queue once.
TEST(Policies, s3_fifo_counts_a_block_once_that_is_removed_when_it_is_due_for_the_main_queue) {
  constexpr Tier device = Tier::device;
  const auto policy = make_policy(PolicyKind::s3_fifo, capacity);
  PrefixTree tree;
  tree.set_policy(device, *policy);
  CheapKeys keys;
  std::uint64_t stamp = 0;
  const auto insert = [&](std::uint64_t name, int uses) {
    const Prefix prefix = tree.extend({}, keys.of(std::vector<std::uint64_t>{name}));
    tree.pin(prefix);
    tree.set_copy(prefix.last(), device, Copy{CopyState::ready, SlotId{0}});
    for (int i = 0; i < uses; ++i) tree.touch(prefix, ++stamp);
    return prefix;
  };
  tree.unpin(insert(1, 3));  // goes to the main queue, which gives candidates while the small one holds fewer than two blocks
  const Prefix due = insert(2, 3);
  tree.unpin(due);
  insert(3, 1);
  insert(4, 1);
  tree.check_invariants();
  ASSERT_EQ(tree.victim(device), due.last());
  tree.set_copy(due.last(), device, {});
  tree.check_invariants();
}

TEST(Policies, are_known_by_their_names) {
  EXPECT_EQ(to_string(PolicyKind::lru_2), "lru-2");
  EXPECT_EQ(to_string(PolicyKind::s3_fifo), "s3-fifo");
  for (const PolicyKind kind : tools::all_policies) EXPECT_NE(policy_factory(kind)(1), nullptr);
}

}  // namespace
}  // namespace terrace
