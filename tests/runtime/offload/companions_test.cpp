#include "tests/runtime/offload/offload_fixture.hpp"
#include "tests/runtime/watching_lru.hpp"

#include <optional>
#include <set>
#include <utility>
#include <vector>

/// Blocks that belong to a block of a prefix (OffloadOrder::beside): they stay with it, and go after it.

namespace terrace {
namespace {

class OffloadCompanions : public Offload {
 protected:
  using Keys = std::vector<BlockKey>;

  void TearDown() override { cache->manager().check_invariants(); }
  void make_lru(ManagerConfig config) {
    config.policy = &lru_policy;
    make(config);
  }
  OffloadOrder alone(std::uint64_t id, const Keys& keys, const Keys& beside) {
    OffloadOrder wanted = order(id, keys, {});
    wanted.key_order = KeyOrder::flat;
    wanted.beside = ordered_keys.emplace_back(beside);
    return wanted;
  }
  /// Reserves and fills. Returns the number of blocks that got a slot.
  std::uint32_t fill(const OffloadOrder& wanted) {
    std::vector<SlotId> to(wanted.keys.size());
    const std::uint32_t reserved = offload->reserve(wanted, to).value();
    EXPECT_EQ(offload->publish(wanted.id, true).has_value(), reserved > 0);
    settle();
    return reserved;
  }
  std::uint32_t fill(const Keys& prefix) { return fill(order(next_++, prefix, {})); }
  std::uint32_t fill_beside(const Keys& keys, const Keys& beside) { return fill(alone(next_++, keys, beside)); }
  OffloadHit look_up(const BlockKey& key) {
    OffloadHit hit = OffloadHit::miss;
    EXPECT_TRUE(offload->look_up(std::span{&key, 1}, std::span{&hit, 1}, {}, KeyOrder::flat).has_value());
    return hit;
  }
  std::uint32_t leading(const Keys& prefix) { return offload->leading(prefix); }

  const Keys owners = names({1, 2, 3});
  const BlockKey window = names({100}).front();  ///< belongs to the last owner
  std::uint64_t next_ = 1000;
};

using enum OffloadHit;

TEST_F(OffloadCompanions, stay_as_long_as_their_owner_and_go_next_after_it) {
  make_lru(sizes(6, KeyOrder::prefix));
  fill(owners);
  ASSERT_EQ(fill_beside({window}, owners), 1U);
  fill(names({5}));
  fill(names({6}));
  ASSERT_TRUE(offload->touch(owners).has_value());
  fill(names({7}));
  fill(names({8}));
  EXPECT_EQ(look_up(window), host) << "the least recently used block, but its owner was used";
  EXPECT_EQ(leading(owners), 3U);
  EXPECT_EQ(leading(names({5})) + leading(names({6})), 0U);
  fill(names({9}));
  EXPECT_EQ(leading(owners), 2U);
  EXPECT_EQ(look_up(window), host);
  fill(names({10}));
  EXPECT_EQ(look_up(window), miss) << "of no use any more";
  EXPECT_EQ(leading(owners), 2U) << "used less recently than blocks 7 to 9, but not before the companion";
}

TEST_F(OffloadCompanions, go_next_after_their_owner_though_others_were_used_less_recently) {
  make_lru(sizes(5, KeyOrder::prefix));
  fill(names({5}));
  fill(owners);
  ASSERT_EQ(fill_beside({window}, names({1, 2, 4})), 1U) << "its owner is nowhere, so this is a use";
  ASSERT_EQ(fill_beside({window}, owners), 0U) << "it is there";
  fill(names({6}));
  EXPECT_EQ(leading(names({5})), 0U);
  fill(names({7}));
  EXPECT_EQ(leading(owners), 2U);
  EXPECT_EQ(look_up(window), host);
  fill(names({8}));
  EXPECT_EQ(look_up(window), miss);
  EXPECT_EQ(leading(owners), 2U) << "used before the companion";
}

TEST_F(OffloadCompanions, each_block_belongs_to_one_of_the_last_blocks) {
  make_lru(sizes(6, KeyOrder::prefix));
  fill(owners);
  const Keys windows = names({101, 102});
  ASSERT_EQ(fill_beside(windows, owners), 2U);
  fill(names({7}));
  for (const int next : {8, 9}) fill(names({next}));  // evicts block 3, and then what belongs to it
  EXPECT_EQ(leading(owners), 2U);
  EXPECT_EQ(look_up(windows[1]), miss);
  EXPECT_EQ(look_up(windows[0]), host);
  for (const int next : {10, 11}) fill(names({next}));
  EXPECT_EQ(leading(owners), 1U);
  EXPECT_EQ(look_up(windows[0]), miss);
}

TEST_F(OffloadCompanions, have_no_uses_of_their_own) {
  std::multiset<BlockKey> used;
  ManagerConfig config = sizes(6, KeyOrder::prefix);
  config.policy = [&](std::uint32_t) { return std::make_unique<test::UsesPolicy>(used); };
  make(config);
  fill(owners);
  EXPECT_EQ(used.count(owners.front()), 1U);
  fill_beside({window}, owners);
  ASSERT_TRUE(offload->touch(std::span{&window, 1}, {}, KeyOrder::flat).has_value());
  std::vector<SlotId> at(1);
  ASSERT_EQ(offload->pin(OffloadJobId{7}, std::span{&window, 1}, {}, at, KeyOrder::flat).value(), 1U);
  EXPECT_NE(at.front(), no_host_slot);
  ASSERT_TRUE(offload->unpin(OffloadJobId{7}).has_value());
  EXPECT_EQ(used.count(window), 0U);
  EXPECT_EQ(used.count(owners.front()), 1U) << "nor does it use its owner";
}

TEST_F(OffloadCompanions, are_like_other_blocks_if_the_owner_is_not_there) {
  make_lru(sizes(3, KeyOrder::prefix));
  fill(names({1}));
  ASSERT_EQ(fill_beside({window}, owners), 1U) << "block 3 is nowhere";
  fill(names({5}));
  fill(names({6}));
  EXPECT_EQ(leading(names({1})), 0U);
  fill(names({7}));
  EXPECT_EQ(look_up(window), miss) << "the least recently used";
}

TEST_F(OffloadCompanions, belong_to_a_block_that_is_still_being_filled) {
  make_lru(sizes(4, KeyOrder::prefix));
  std::vector<SlotId> to(3);
  ASSERT_EQ(offload->reserve(order(1, owners, {}), to).value(), 3U);
  ASSERT_EQ(fill_beside({window}, owners), 1U);
  ASSERT_TRUE(offload->publish(OffloadJobId{1}, false).has_value());
  EXPECT_EQ(leading(owners), 0U);
  fill(names({5, 6, 7}));
  EXPECT_EQ(look_up(window), host);
  fill(names({8}));
  EXPECT_EQ(look_up(window), miss) << "it has lost its owner";
  EXPECT_EQ(leading(names({5, 6, 7})), 3U);
}

TEST_F(OffloadCompanions, come_back_to_an_owner_that_is_stored_again) {
  make_lru(sizes(5, KeyOrder::prefix));
  fill(owners);
  fill_beside({window}, owners);
  ASSERT_EQ(offload->pin(OffloadJobId{7}, std::span{&window, 1}, {}, {}, KeyOrder::flat).value(), 1U);
  fill(names({5, 6, 7, 8}));  // evicts the owners; what reads the window keeps it
  EXPECT_EQ(leading(owners), 0U);
  EXPECT_EQ(look_up(window), host);
  fill(owners);
  EXPECT_EQ(fill_beside({window}, owners), 0U) << "it is there";
  ASSERT_TRUE(offload->unpin(OffloadJobId{7}).has_value());
  fill(names({9}));
  EXPECT_EQ(look_up(window), host);
  EXPECT_EQ(leading(owners), 3U) << "block 6 or 5 went";
}

TEST_F(OffloadCompanions, one_owner_may_have_several_from_stores_of_device_slots_too) {
  make_lru(sizes(5, KeyOrder::prefix));
  put(1, owners, 0, 10);
  const Keys windows = names({101, 102});
  for (std::size_t i = 0; i < 2; ++i) {
    write(SlotId{8}, 50);
    OffloadOrder wanted = order(2 + i, {windows[i]}, slots({8}));
    wanted.key_order = KeyOrder::flat;
    wanted.beside = owners;
    ASSERT_TRUE(offload->store(wanted).has_value());
    settle();
    ASSERT_TRUE(ended(2 + i));
  }
  for (const int next : {5, 6, 7}) fill(names({next}));  // block 3, and then both
  EXPECT_EQ(look_up(windows[0]), miss);
  EXPECT_EQ(look_up(windows[1]), miss);
  EXPECT_EQ(leading(owners), 2U);
}

TEST_F(OffloadCompanions, are_stored_like_other_blocks_when_they_go) {
  ManagerConfig config = sizes(4, KeyOrder::prefix, true);
  config.write_policy = WritePolicy::write_back;
  make_lru(config);
  put(1, owners, 0, 10);
  write(SlotId{8}, 50);
  OffloadOrder wanted = order(2, {window}, slots({8}));
  wanted.key_order = KeyOrder::flat;
  wanted.beside = owners;
  ASSERT_TRUE(offload->store(wanted).has_value());
  settle();
  for (std::uint64_t next = 5; next < 9; ++next) put(next, names({static_cast<int>(next)}), 0, 60);
  EXPECT_EQ(look_up(window), storage);
  OffloadOrder back = order(20, {window}, slots({9}));
  back.key_order = KeyOrder::flat;
  ASSERT_TRUE(offload->load(back).has_value());
  settle();
  EXPECT_EQ(read(SlotId{9}), 50);
}

TEST_F(OffloadCompanions, a_clear_and_a_smaller_host_take_them_too) {
  make_lru(sizes(5, KeyOrder::prefix));
  fill(owners);
  fill_beside({window}, owners);
  cache->clear({});
  settle();
  EXPECT_EQ(look_up(window), miss);
  EXPECT_EQ(fill(owners), 3U);
  EXPECT_EQ(fill_beside({window}, owners), 1U);
  ASSERT_TRUE(cache->resize(Tier::host, 2).has_value());
  settle();
  EXPECT_EQ(leading(owners), 2U);
  EXPECT_EQ(look_up(window), miss) << "nothing keeps it from going";
}

TEST_F(OffloadCompanions, wrong_orders_change_nothing) {
  make_lru(sizes(4, KeyOrder::prefix));
  fill(owners);
  std::vector<SlotId> to(1);
  OffloadOrder chained = order(1, names({100}), {});
  chained.beside = owners;
  EXPECT_EQ(offload->reserve(chained, to).error(), Errc::invalid_argument) << "the key does not stand alone";
  std::vector<SlotId> two(2);
  EXPECT_EQ(offload->reserve(alone(1, names({100, 101}), names({1})), two).error(), Errc::invalid_argument) << "two for one";
  EXPECT_EQ(offload->load(alone(1, names({100}), owners)).error(), Errc::invalid_argument);
  EXPECT_EQ(look_up(window), miss);
  EXPECT_EQ(fill_beside({window}, owners), 1U);

  make_lru(sizes(4, KeyOrder::flat));
  EXPECT_EQ(offload->reserve(alone(1, names({100}), owners), to).error(), Errc::invalid_argument) << "there are no prefixes";
}

}  // namespace
}  // namespace terrace
