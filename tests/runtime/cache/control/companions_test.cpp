// Blocks of a window belong to the prefix at the same place: they stay with it, and go after it (Companion).

#include "runtime/cache/control/cache_manager.hpp"
#include "runtime/cache/types/config.hpp"
#include "tests/runtime/fixture.hpp"
#include "tests/runtime/watching_lru.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <set>
#include <vector>

namespace terrace {
namespace {

class GroupCompanions : public test::CacheFixture {
 protected:
  using Keys = std::vector<BlockKey>;
  static constexpr GroupId window{1};
  static constexpr PoolId second_pool{1};

  void TearDown() override {
    if (cache) cache->manager().check_invariants();
    CacheFixture::TearDown();
  }
  /// Full attention, and a window of three tokens; a block has one token. Both are in one pool, or in one each.
  static ManagerConfig model(std::uint32_t blocks, std::uint32_t window_blocks = 0, std::uint32_t host_blocks = 0) {
    ManagerConfig config;
    config.policy = &lru_policy;
    config.groups.resize(2);
    config.groups[1].kind = GroupKind::sliding_window;
    config.groups[1].span_tokens = 3;
    config.pools[0] = {.device_blocks = blocks + 1, .null_block = true, .host_blocks = host_blocks};
    if (window_blocks > 0) {
      config.groups[1].pool = second_pool;
      config.pools.push_back({.device_blocks = window_blocks + 1, .null_block = true});
    }
    return config;
  }
  static Keys prompt(std::uint32_t length, std::uint32_t name = 1) {
    return test::keys_of(std::vector<std::uint32_t>(length, name));
  }
  /// A prompt that begins with `common` blocks of prompt(), and goes on with other ones.
  static Keys branch(std::uint32_t common, std::uint32_t length, std::uint32_t name) {
    std::vector<std::uint32_t> names(common, 1);
    names.resize(length, name);
    return test::keys_of(names);
  }
  [[nodiscard]] const PrefixTree& tree(PoolId pool = {}) const { return cache->manager().residency(pool).tree(); }
  [[nodiscard]] Prefix in_window(const Keys& keys, std::uint32_t block, PoolId pool = {}) const {
    const BlockKey key = key_in_group(keys[block], window);
    return tree(pool).find(std::span{&key, 1});
  }
  [[nodiscard]] std::optional<Companion> companion(const Keys& keys, std::uint32_t block, Tier tier = Tier::device,
                                                   PoolId pool = {}) const {
    const Prefix found = in_window(keys, block, pool);
    if (found.length == 0) return std::nullopt;
    return tree(pool).companion(found.last(), tier);
  }
  [[nodiscard]] std::uint32_t chained(const Keys& keys) const { return tree().find(keys).length; }
  /// Requests of one block each, of which nothing is shared, so that what is cached has to go.
  void need(std::uint32_t slots) {
    for (; slots > 0; --slots) {
      AcquireRequest wanted = request(++last_, {});
      wanted.units = 1;
      leases[last_] = cache->acquire(wanted).value();
    }
  }

  std::uint64_t last_ = 1000;
};

using enum Companion;

TEST_F(GroupCompanions, go_next_after_the_block_that_they_belong_to) {
  make(model(12));
  run(1, prompt(4));
  run(2, prompt(2, 2));
  ASSERT_EQ(free_on_device(), 0U);
  for (std::uint32_t block = 0; block < 4; ++block) EXPECT_EQ(companion(prompt(4), block), wanted) << block;
  need(1);  // two slots: the last block of the older prefix, and then its companion
  EXPECT_EQ(chained(prompt(4)), 3U);
  EXPECT_FALSE(companion(prompt(4), 3)) << "of no use any more";
  EXPECT_EQ(companion(prompt(4), 2), wanted) << "though it was used less recently than all others";
  EXPECT_EQ(cache->match(prompt(4)).total(), 3U);
  EXPECT_EQ(cache->match(prompt(2, 2)).total(), 2U);
}

TEST_F(GroupCompanions, go_with_it_if_one_call_needs_both_slots) {
  make(model(14));
  run(1, prompt(4));
  run(2, prompt(2, 2));
  need(1);
  ASSERT_EQ(free_on_device(), 0U);
  ASSERT_TRUE(cache->extend(leases.at(last_), 1).has_value());
  EXPECT_EQ(chained(prompt(4)), 3U);
  EXPECT_FALSE(companion(prompt(4), 3));
  EXPECT_EQ(cache->match(prompt(4)).total(), 3U);
}

TEST_F(GroupCompanions, are_not_wanted_while_it_leaves) {
  ManagerConfig config = model(4, 8, 8);
  config.pools[1].host_blocks = 8;
  config.inclusion = InclusionPolicy::exclusive;
  make(config);
  run(1, prompt(4));
  settle();
  ASSERT_EQ(companion(prompt(4), 3, Tier::device, second_pool), wanted);
  need(1);  // the last block of the prefix is being swapped out
  EXPECT_EQ(companion(prompt(4), 3, Tier::device, second_pool), unwanted);
  EXPECT_EQ(companion(prompt(4), 2, Tier::device, second_pool), wanted);
  settle();
  AcquireRequest two = request(2, {});
  two.units = 2;
  leases[2] = cache->acquire(two).value();  // two blocks leave together
  for (const std::uint32_t block : {1U, 2U}) EXPECT_EQ(companion(prompt(4), block, Tier::device, second_pool), unwanted) << block;
  EXPECT_EQ(companion(prompt(4), 0, Tier::device, second_pool), wanted);
}

TEST_F(GroupCompanions, are_known_as_long_as_it_has_a_copy) {
  ManagerConfig config = model(8, 8, 8);
  config.pools[1].host_blocks = 8;
  config.inclusion = InclusionPolicy::inclusive;
  make(config);
  run(1, prompt(2));
  settle();
  ASSERT_TRUE(cache->make_room(Tier::device, 8).has_value());
  settle();
  EXPECT_EQ(companion(prompt(2), 1, Tier::device, second_pool), unwanted);
  ASSERT_EQ(companion(prompt(2), 1, Tier::host, second_pool), wanted);
  ASSERT_TRUE(cache->make_room(Tier::host, 8).has_value());
  settle();
  EXPECT_EQ(chained(prompt(2)), 0U);
  EXPECT_EQ(companion(prompt(2), 1, Tier::host, second_pool), unwanted);
}

TEST_F(GroupCompanions, that_no_hit_needs_go_before_all_others) {
  make(model(20));
  run(1, prompt(10));
  EXPECT_EQ(companion(prompt(10), 5), unwanted);
  EXPECT_EQ(companion(prompt(10), 6), wanted) << "a hit may end two blocks before the end, and needs two blocks";
  EXPECT_EQ(companion(prompt(10), 9), wanted);
  need(3);  // six slots
  for (std::uint32_t block = 0; block < 6; ++block) EXPECT_FALSE(companion(prompt(10), block)) << block;
  EXPECT_EQ(cache->match(prompt(10)).total(), 10U);
}

TEST_F(GroupCompanions, of_a_hit_are_wanted_from_then_on) {
  make(model(20));
  run(1, prompt(10));
  EXPECT_EQ(companion(prompt(10), 3), unwanted);
  EXPECT_EQ(companion(prompt(10), 4), unwanted);
  run(2, prompt(5));
  EXPECT_EQ(companion(prompt(10), 2), unwanted);
  EXPECT_EQ(companion(prompt(10), 3), wanted);
  EXPECT_EQ(companion(prompt(10), 4), wanted);
}

TEST_F(GroupCompanions, of_the_place_where_prompts_go_apart_are_wanted) {
  make(model(40));
  run(1, prompt(10));
  ASSERT_EQ(cache->match(branch(6, 9, 2)).total(), 6U);
  // The window blocks that no hit needs are evicted before the second prompt comes, so it computes the common beginning again.
  need(13);
  ASSERT_EQ(cache->match(branch(6, 9, 2)).total(), 0U);
  for (std::uint64_t id = 1001; id <= last_; ++id) release(id);
  run(2, branch(6, 9, 2));
  EXPECT_EQ(companion(prompt(6), 5), wanted);
  EXPECT_EQ(companion(prompt(6), 4), wanted);
  EXPECT_EQ(companion(prompt(6), 0), unwanted);
  EXPECT_EQ(cache->match(branch(6, 9, 3)).total(), 6U);
}

TEST_F(GroupCompanions, that_leave_the_window_of_a_request_stay_if_a_hit_needs_them) {
  make(model(40));
  const Keys all = prompt(12);
  ASSERT_TRUE(acquire(1, prompt(6), 6).has_value());
  ASSERT_TRUE(commit(1, all).has_value());
  ASSERT_TRUE(cache->advance(leases.at(1), 12, Fence{}).has_value());
  EXPECT_EQ(companion(all, 5), wanted) << "the prompt ends there";
  EXPECT_EQ(companion(all, 2), wanted);
  EXPECT_EQ(companion(all, 1), unwanted);
  EXPECT_EQ(companion(all, 8), unwanted) << "in the middle of the answer";
  release(1);
  EXPECT_EQ(companion(all, 10), wanted) << "the answer ends there";
  EXPECT_EQ(companion(all, 11), wanted);
}

TEST_F(GroupCompanions, have_no_uses_of_their_own) {
  std::multiset<BlockKey> used;
  ManagerConfig config = model(20);
  config.policy = [&](std::uint32_t) { return std::make_unique<test::UsesPolicy>(used); };
  make(config);
  run(1, prompt(4));
  run(2, prompt(4));
  EXPECT_EQ(used.count(prompt(4).front()), 2U) << "computed, and hit";
  for (const BlockKey& key : prompt(4)) EXPECT_EQ(used.count(key_in_group(key, window)), 0U);
}

TEST_F(GroupCompanions, if_none_is_left_with_which_a_hit_could_end_the_prefix_goes_too) {
  make(model(20));
  run(1, prompt(8));
  need(2);  // the four free slots
  need(2);  // the window blocks 0 to 3, which no hit needs
  EXPECT_EQ(cache->match(prompt(8)).total(), 8U);
  need(2);  // blocks 7 and 6, each with its companion
  EXPECT_EQ(cache->match(prompt(8)).total(), 6U);
  EXPECT_EQ(free_on_device(), 0U);
  need(1);  // block 5, and so a hit cannot end any more
  EXPECT_EQ(chained(prompt(8)), 0U);
  EXPECT_GE(free_on_device(), 4U);
}

TEST_F(GroupCompanions, in_a_pool_of_their_own_follow_the_prefixes_of_the_other) {
  make(model(6, 20));
  run(1, prompt(4));
  EXPECT_EQ(companion(prompt(4), 3, Tier::device, second_pool), wanted);
  need(3);
  EXPECT_EQ(chained(prompt(4)), 3U);
  EXPECT_EQ(companion(prompt(4), 3, Tier::device, second_pool), unwanted);
  EXPECT_EQ(companion(prompt(4), 2, Tier::device, second_pool), wanted);
}

TEST_F(GroupCompanions, are_wanted_in_the_tiers_that_have_their_owner) {
  make(model(8, 0, 20));
  run(1, prompt(4));
  EXPECT_EQ(companion(prompt(4), 3), wanted);
  EXPECT_EQ(companion(prompt(4), 3, Tier::host), unwanted) << "the host has nothing yet";
  ASSERT_TRUE(acquire(2, prompt(4, 2)).has_value());
  ASSERT_TRUE(ready_when_settled(2));
  ASSERT_EQ(tree().copy({tree().find(prompt(4)).node, 3}, Tier::host).state(), CopyState::ready);
  for (std::uint32_t block = 0; block < 4; ++block) {
    EXPECT_EQ(companion(prompt(4), block), unwanted) << block;
    EXPECT_EQ(companion(prompt(4), block, Tier::host), wanted) << block;
  }
  release(2);
  ASSERT_TRUE(acquire(3, prompt(4)).has_value());
  ASSERT_TRUE(ready_when_settled(3));
  EXPECT_EQ(stats(3).found[Source::host], 4U);
  EXPECT_EQ(companion(prompt(4), 3), wanted);
}

TEST_F(GroupCompanions, of_blocks_that_were_cleared_are_forgotten) {
  make(model(20));
  run(1, prompt(4));
  ASSERT_TRUE(acquire(2, prompt(4)).has_value());  // keeps the old blocks in the tree
  cache->clear({});
  settle();
  run(3, prompt(4));
  EXPECT_EQ(companion(prompt(4), 3), wanted);
  release(2);
  settle();
  EXPECT_EQ(companion(prompt(4), 3), wanted) << "the old block of the same name has left, not its owner";
}

}  // namespace
}  // namespace terrace
