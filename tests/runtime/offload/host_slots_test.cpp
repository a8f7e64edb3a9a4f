#include "tests/runtime/ends_policy.hpp"
#include "tests/runtime/offload/offload_fixture.hpp"
#include "tests/runtime/watching_lru.hpp"

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

/// Engines that move blocks themselves: they fill host slots that they have reserved, and read host slots that they have pinned.

namespace terrace {
namespace {

class OffloadHostSlots : public Offload {
 protected:
  OffloadOrder order_of(std::uint64_t id, const std::vector<BlockKey>& keys) { return order(id, keys, {}); }
  /// Reserves slots, fills them with the byte, and publishes them.
  void fill(std::uint64_t id, const std::vector<BlockKey>& keys, int byte, KeyOrder in = KeyOrder::prefix) {
    std::vector<SlotId> to(keys.size());
    OffloadOrder wanted = order_of(id, keys);
    wanted.key_order = in;
    const Result<std::uint32_t> reserved = offload->reserve(wanted, to);
    ASSERT_TRUE(reserved.has_value());
    if (*reserved == 0) return;
    for (const SlotId slot : to) {
      if (slot != no_host_slot) std::ranges::fill(arena->block(slot), std::byte(byte));
    }
    ASSERT_TRUE(offload->publish(OffloadJobId{id}, true).has_value());
    settle();
  }
  std::vector<OffloadHit> look_up(const std::vector<BlockKey>& keys) {
    std::vector<OffloadHit> hits(keys.size());
    EXPECT_TRUE(offload->look_up(keys, hits).has_value());
    return hits;
  }
  int host_byte(SlotId slot) { return static_cast<int>(arena->block(slot).back()); }
};

using enum OffloadHit;

TEST_F(OffloadHostSlots, a_reserved_block_is_pending_until_it_is_published) {
  make(sizes(4, KeyOrder::flat));
  std::vector<SlotId> to(2);
  ASSERT_EQ(offload->reserve(order_of(1, names({1, 2})), to).value(), 2U);
  EXPECT_NE(to[0], to[1]);
  EXPECT_EQ(look_up(names({1, 2, 3})), (std::vector{pending, pending, miss}));
  std::ranges::fill(arena->block(to[0]), std::byte{11});
  std::ranges::fill(arena->block(to[1]), std::byte{12});
  ASSERT_TRUE(offload->publish(OffloadJobId{1}, true).has_value());
  EXPECT_EQ(look_up(names({1, 2})), (std::vector{host, host}));
  ASSERT_TRUE(offload->load(order(2, names({2, 1}), slots({5, 6}))).has_value());
  settle();
  EXPECT_EQ(read(SlotId{5}), 12);
  EXPECT_EQ(read(SlotId{6}), 11);
  EXPECT_EQ(offload->totals().stored, 2U);
  cache->manager().check_invariants();
}

TEST_F(OffloadHostSlots, the_hit_rate_is_that_of_blocks_that_are_moved_however_often_the_engine_asks) {
  make(sizes(4, KeyOrder::flat));
  fill(1, names({1, 2}), 7);
  std::vector<SlotId> from(3);
  for (int i = 0; i < 10; ++i) EXPECT_EQ(look_up(names({1, 2, 3})), (std::vector{host, host, miss}));
  ASSERT_TRUE(offload->pin(OffloadJobId{2}, names({1, 2, 3}), PoolId{}, from, KeyOrder::flat).has_value());
  EXPECT_EQ(offload->totals().asked, 2U + 3U) << "two were computed";
  EXPECT_EQ(offload->totals().found, 2U);
  ASSERT_TRUE(offload->unpin(OffloadJobId{2}).has_value());
}

TEST_F(OffloadHostSlots, a_load_waits_for_a_reserved_block) {
  make(sizes(4, KeyOrder::flat));
  std::vector<SlotId> to(1);
  ASSERT_EQ(offload->reserve(order_of(1, names({1})), to).value(), 1U);
  ASSERT_TRUE(offload->load(order(2, names({1}), slots({5}))).has_value());
  settle();
  EXPECT_FALSE(ended(2));
  std::ranges::fill(arena->block(to[0]), std::byte{33});
  ASSERT_TRUE(offload->publish(OffloadJobId{1}, true).has_value());
  settle();
  EXPECT_TRUE(ended(2));
  EXPECT_EQ(read(SlotId{5}), 33);
}

TEST_F(OffloadHostSlots, slots_that_were_not_filled_are_free_again) {
  make(sizes(2, KeyOrder::flat));
  std::vector<SlotId> to(2);
  ASSERT_EQ(offload->reserve(order_of(1, names({1, 2})), to).value(), 2U);
  ASSERT_TRUE(offload->publish(OffloadJobId{1}, false).has_value());
  EXPECT_EQ(look_up(names({1, 2})), (std::vector{miss, miss}));
  ASSERT_EQ(offload->reserve(order_of(2, names({3, 4})), to).value(), 2U);
  EXPECT_EQ(offload->totals().store_failures, 2U);
  ASSERT_TRUE(offload->publish(OffloadJobId{2}, true).has_value());
  cache->manager().check_invariants();
}

TEST_F(OffloadHostSlots, blocks_of_a_reservation_are_pinned_until_it_is_published_and_forgotten_if_it_failed) {
  make(sizes(4, KeyOrder::flat));
  fill(1, names({1}), 1);
  std::vector<SlotId> to(3);
  ASSERT_EQ(offload->reserve(order_of(2, names({1, 2, 3})), to).value(), 2U);
  EXPECT_EQ(cache->manager().tree_counts().references, 2U);
  ASSERT_TRUE(offload->publish(OffloadJobId{2}, false).has_value());
  EXPECT_EQ(cache->manager().tree_counts().references, 0U);
  EXPECT_EQ(cache->manager().tree_counts().blocks, 1U);
}

TEST_F(OffloadHostSlots, only_blocks_that_are_not_there_need_a_slot) {
  make(sizes(4, KeyOrder::flat));
  fill(1, names({1}), 7);
  std::vector<SlotId> to(3);
  ASSERT_EQ(offload->reserve(order_of(2, names({2, 1, 3})), to).value(), 2U);
  EXPECT_NE(to[0], no_host_slot);
  EXPECT_EQ(to[1], no_host_slot);
  EXPECT_NE(to[2], no_host_slot);
  std::vector<SlotId> again(2);
  EXPECT_EQ(offload->reserve(order_of(3, names({2, 3})), again).value(), 0U) << "they are on their way";
  EXPECT_EQ(offload->publish(OffloadJobId{3}, true).error(), Errc::not_found) << "nothing was reserved";
  ASSERT_TRUE(offload->publish(OffloadJobId{2}, true).has_value());
}

TEST_F(OffloadHostSlots, a_full_tier_evicts_for_a_reservation_but_not_its_own_blocks) {
  make(sizes(3, KeyOrder::flat));
  fill(1, names({1}), 1);
  fill(2, names({2}), 2);
  fill(3, names({3}), 3);
  std::vector<SlotId> to(3);
  ASSERT_EQ(offload->reserve(order_of(4, names({1, 4, 5})), to).value(), 2U);
  EXPECT_EQ(look_up(names({1, 2, 3, 4, 5})), (std::vector{host, miss, miss, pending, pending}));
  std::vector<SlotId> more(1);
  ASSERT_EQ(offload->reserve(order_of(5, names({6})), more).value(), 1U) << "block 1 goes";
  ASSERT_EQ(offload->reserve(order_of(6, names({7})), more).value(), 0U) << "all slots are reserved";
  EXPECT_EQ(offload->totals().store_full, 1U);
  for (const std::uint64_t id : {4, 5}) ASSERT_TRUE(offload->publish(OffloadJobId{id}, true).has_value());
}

TEST_F(OffloadHostSlots, a_pin_tells_the_slots_and_keeps_them) {
  make(sizes(2, KeyOrder::flat));
  fill(1, names({1, 2}), 9);
  std::vector<SlotId> at(3);
  ASSERT_EQ(offload->pin(OffloadJobId{5}, names({2, 7, 1}), {}, at).value(), 2U);
  EXPECT_EQ(at[1], no_host_slot);
  EXPECT_EQ(host_byte(at[0]), 9);
  EXPECT_EQ(host_byte(at[2]), 9);
  std::vector<SlotId> to(1);
  EXPECT_EQ(offload->reserve(order_of(2, names({3})), to).value(), 0U) << "both slots are pinned";
  ASSERT_TRUE(offload->unpin(OffloadJobId{5}).has_value());
  EXPECT_EQ(offload->reserve(order_of(3, names({3})), to).value(), 1U);
  ASSERT_TRUE(offload->publish(OffloadJobId{3}, true).has_value());
  std::vector<SlotId> wrong(2);
  EXPECT_EQ(offload->pin(OffloadJobId{6}, names({3}), {}, wrong).error(), Errc::invalid_argument);
}

TEST_F(OffloadHostSlots, a_pin_with_slots_is_a_use) {
  ManagerConfig config = sizes(2, KeyOrder::flat, true);
  config.write_policy = WritePolicy::selective;  // stores blocks that are used again
  config.selective_hits = 1;
  make(config);
  fill(1, names({1, 2}), 1);
  // A pin without slots only keeps the block.
  ASSERT_TRUE(offload->pin(OffloadJobId{5}, names({2})).has_value());
  ASSERT_TRUE(offload->unpin(OffloadJobId{5}).has_value());
  std::vector<SlotId> at(1);
  ASSERT_TRUE(offload->pin(OffloadJobId{6}, names({1}), {}, at).has_value());
  ASSERT_TRUE(offload->unpin(OffloadJobId{6}).has_value());
  settle();
  EXPECT_EQ(offload->totals().loaded_host, 1U);
  fill(2, names({3, 4}), 3);
  EXPECT_EQ(look_up(names({1, 2, 3, 4})), (std::vector{storage, miss, host, host}));
}

/// Whether larger tiers would help is measured from the blocks that an engine asks for.
TEST_F(OffloadHostSlots, who_watches_hears_once_of_each_block_that_is_asked_for) {
  struct Asked final : CacheWatch {
    void on_polled(TimePoint) override {}
    void on_offload_asked(PoolId /*pool*/, std::span<const BlockKey> keys) override {
      all.insert(all.end(), keys.begin(), keys.end());
    }
    [[nodiscard]] bool wants_offload_asked() const override { return true; }
    std::vector<BlockKey> take() { return std::exchange(all, {}); }
    std::vector<BlockKey> all;
  } asked;
  watch = &asked;
  make(sizes(8, KeyOrder::flat));
  fill(1, names({1, 2}), 1);
  EXPECT_EQ(asked.take(), names({1, 2}));
  fill(2, names({1, 2, 3}), 1);
  EXPECT_EQ(asked.take(), names({3})) << "the others are there already";
  put(3, names({3, 4}), 0, 5);
  EXPECT_EQ(asked.take(), names({4}));
  look_up(names({1, 2, 9}));
  ASSERT_TRUE(offload->touch(names({1})).has_value());
  ASSERT_TRUE(offload->pin(OffloadJobId{4}, names({1})).has_value());
  EXPECT_EQ(asked.take(), names({}));
  std::vector<SlotId> at(2);
  ASSERT_TRUE(offload->pin(OffloadJobId{5}, names({1, 2}), {}, at).has_value());
  EXPECT_EQ(asked.take(), names({1, 2}));
  ASSERT_TRUE(offload->load(order(6, names({4, 3}), slots({5, 6}))).has_value());
  EXPECT_EQ(asked.take(), names({4, 3}));
  EXPECT_FALSE(offload->load(order(6, names({4, 3}), slots({5, 6}))).has_value()) << "the id is taken";
  EXPECT_EQ(asked.take(), names({}));
  for (const std::uint64_t job : {4U, 5U}) ASSERT_TRUE(offload->unpin(OffloadJobId{job}).has_value());
  settle();
}

TEST_F(OffloadHostSlots, touched_blocks_stay_and_the_first_of_them_longest) {
  make(sizes(4, KeyOrder::flat));
  fill(1, names({1, 2}), 1);
  fill(2, names({3, 4}), 3);
  ASSERT_TRUE(offload->touch(names({1, 2, 9})).has_value());
  fill(3, names({5, 6, 7}), 5);
  EXPECT_EQ(look_up(names({1, 2, 3, 4})), (std::vector{host, miss, miss, miss}));
  EXPECT_EQ(offload->touch(names({1}), PoolId{5}).error(), Errc::invalid_argument);
}

/// LRU that notes each use: its stamp, and the blocks to which it is new. The list must outlive it.
class StampsPolicy final : public test::WatchingLru {
 public:
  struct Noted {
    std::uint64_t stamp = 0;
    std::size_t blocks = 0;
    friend bool operator==(const Noted&, const Noted&) = default;
  };
  explicit StampsPolicy(std::vector<Noted>& noted) : noted_{noted} {}

  void on_used(const BlockRun& blocks, std::uint64_t stamp, std::uint32_t known) override {
    noted_.push_back({stamp, blocks.end() - std::max(blocks.begin, std::min(known, blocks.end()))});
  }

 private:
  std::vector<Noted>& noted_;
};

/// Policies count age in stamps: a prefix takes one, however long it is, and a request that uses it in pieces takes no further.
TEST_F(OffloadHostSlots, the_orders_of_a_request_are_one_use) {
  using Noted = StampsPolicy::Noted;
  std::vector<Noted> noted;
  ManagerConfig config = sizes(8, KeyOrder::prefix);
  config.policy = [&](std::uint32_t) { return std::make_unique<StampsPolicy>(noted); };
  make(config);
  const auto store = [&](std::uint64_t id, const std::vector<BlockKey>& keys, std::uint64_t use) {
    std::vector<SlotId> to(keys.size());
    OffloadOrder wanted = order_of(id, keys);
    wanted.use = use;
    ASSERT_TRUE(offload->reserve(wanted, to).has_value());
    ASSERT_TRUE(offload->publish(OffloadJobId{id}, true).has_value());
  };
  store(1, names({1, 2, 3}), 0);
  store(2, names({1, 2, 3, 4}), 0);
  ASSERT_EQ(noted.size(), 2U);
  const std::uint64_t first = noted[0].stamp;
  EXPECT_EQ(noted, (std::vector{Noted{first, 3}, Noted{first + 1, 4}})) << "two requests, if nobody says otherwise";
  noted.clear();
  const std::uint64_t use = offload->new_use();
  EXPECT_EQ(use, first + 2);
  ASSERT_TRUE(offload->touch(names({1})).has_value());  // by another request
  noted.clear();
  std::vector<SlotId> at(4);
  ASSERT_TRUE(offload->pin(OffloadJobId{9}, names({1, 2, 3, 4}), {}, at, KeyOrder::prefix, use).has_value());
  ASSERT_TRUE(offload->unpin(OffloadJobId{9}).has_value());
  store(3, names({1, 2, 3, 4, 5}), use);
  store(4, names({1, 2, 3, 4, 5, 6}), use);
  ASSERT_FALSE(noted.empty());
  EXPECT_EQ(noted[0], (Noted{use, 3})) << "block 1 was used later";
  std::size_t again = 0;  // of the two added blocks at most
  for (const Noted& each : std::span{noted}.subspan(1)) {
    EXPECT_EQ(each.stamp, use);
    again += each.blocks;
  }
  EXPECT_LE(again, 2U);
  OffloadOrder wrong = order_of(5, names({7}));
  wrong.use = use + 100;
  EXPECT_EQ(offload->store(wrong).error(), Errc::invalid_argument);
  EXPECT_EQ(offload->pin(OffloadJobId{9}, names({1}), {}, {}, KeyOrder::prefix, use + 100).error(), Errc::invalid_argument);
  offload.reset();
  cache.reset();  // the policies refer to the list
}

/// Only blocks that are the last of their prefix tell of requests; blocks that stand alone do not.
TEST_F(OffloadHostSlots, an_ended_request_tells_its_output_to_the_policy) {
  std::vector<test::EndsPolicy::Noted> noted;
  ManagerConfig config = sizes(4, KeyOrder::prefix);
  config.policy = [&](std::uint32_t) { return std::make_unique<test::EndsPolicy>(noted); };
  make(config);
  fill(1, names({1, 2}), 1);
  ASSERT_TRUE(offload->touch(names({1, 2})).has_value());
  noted.clear();
  ASSERT_TRUE(offload->end_request(names({1, 2, 9}), 40).has_value());
  ASSERT_EQ(noted.size(), 2U);
  EXPECT_EQ(noted[0].output_tokens, 40U);
  EXPECT_EQ(noted[1], (test::EndsPolicy::Noted{noted[0].stamp, std::nullopt})) << "the leaf is a candidate again";
  noted.clear();
  ASSERT_TRUE(offload->end_request(names({9}), 40).has_value());
  ASSERT_TRUE(offload->end_request({}, 40).has_value());
  ASSERT_TRUE(offload->end_request(names({1}), 40, {}, KeyOrder::flat).has_value());
  EXPECT_TRUE(noted.empty());
  EXPECT_EQ(offload->end_request(names({1}), 40, PoolId{5}).error(), Errc::invalid_argument);
  offload.reset();
  cache.reset();  // the policies refer to the list
}

TEST_F(OffloadHostSlots, a_load_without_slots_brings_blocks_from_storage_to_the_host) {
  make_writing_through(2, KeyOrder::flat);
  fill(1, names({1}), 21);
  fill(2, names({2}), 22);
  fill(3, names({3, 4}), 30);
  EXPECT_EQ(look_up(names({1, 2})), (std::vector{storage, storage}));
  ASSERT_TRUE(offload->load(order_of(4, names({1, 2, 9}))).has_value());
  settle();
  EXPECT_EQ(results(4), (std::map<std::uint32_t, ErrorCode>{{0, {}}, {1, {}}, {2, Errc::not_found}}));
  EXPECT_TRUE(ended(4));
  std::vector<SlotId> at(2);
  ASSERT_EQ(offload->pin(OffloadJobId{5}, names({1, 2}), {}, at).value(), 2U);
  EXPECT_EQ(host_byte(at[0]), 21);
  EXPECT_EQ(host_byte(at[1]), 22);
  EXPECT_EQ(offload->totals().loaded_storage, 2U);
  ASSERT_TRUE(offload->unpin(OffloadJobId{5}).has_value());
  cache->manager().check_invariants();
}

TEST_F(OffloadHostSlots, a_load_to_a_full_host_tier_says_so) {
  make_writing_through(1, KeyOrder::flat);
  fill(1, names({1}), 21);
  fill(2, names({2}), 22);
  ASSERT_TRUE(offload->pin(OffloadJobId{7}, names({2})).has_value());
  ASSERT_TRUE(offload->load(order_of(3, names({1}))).has_value());
  settle();
  EXPECT_EQ(results(3), (std::map<std::uint32_t, ErrorCode>{{0, Errc::full}}));
  ASSERT_TRUE(offload->unpin(OffloadJobId{7}).has_value());
  cache->manager().check_invariants();
}

TEST_F(OffloadHostSlots, loads_to_a_full_host_tier_end_also_if_they_are_more_than_the_staging_slots) {
  ManagerConfig config = sizes(1, KeyOrder::flat, true);
  config.write_policy = WritePolicy::write_through;
  config.pools.front().staging_blocks = 1;
  wakes = true;
  make(config);
  for (int i = 1; i <= 5; ++i) fill(static_cast<std::uint64_t>(i), names({i}), 20 + i);
  ASSERT_TRUE(offload->pin(OffloadJobId{7}, names({5})).has_value());
  cache_waker.acknowledge();
  ASSERT_TRUE(offload->load(order_of(8, names({1, 2, 3, 4}))).has_value());
  poll_while_woken();
  EXPECT_TRUE(ended(8));
  EXPECT_EQ(results(8).size(), 4U);
  EXPECT_FALSE(offload->has_pending_work());
  ASSERT_TRUE(offload->unpin(OffloadJobId{7}).has_value());
  cache->manager().check_invariants();
}

TEST_F(OffloadHostSlots, a_published_block_is_written_to_storage_by_the_write_policy) {
  make_writing_through(4, KeyOrder::flat);
  std::vector<SlotId> to(1);
  ASSERT_EQ(offload->reserve(order_of(1, names({1})), to).value(), 1U);
  settle();
  EXPECT_FALSE(store->contains(names({1}).front())) << "nobody has filled it yet";
  ASSERT_TRUE(offload->publish(OffloadJobId{1}, true).has_value());
  settle();
  EXPECT_TRUE(store->contains(names({1}).front()));
}

TEST_F(OffloadHostSlots, in_prefix_order_a_reservation_needs_the_blocks_before_it) {
  make(sizes(4, KeyOrder::prefix));
  OffloadOrder late = order_of(1, names({1, 2, 3}));
  late.first = 1;
  std::vector<SlotId> to(2);
  EXPECT_EQ(offload->reserve(late, to).value(), 0U) << "the first block is nowhere";
  ASSERT_EQ(offload->reserve(order_of(2, names({1})), std::span{to}.first(1)).value(), 1U);
  late.id = OffloadJobId{3};
  ASSERT_EQ(offload->reserve(late, to).value(), 2U);
  ASSERT_TRUE(offload->publish(OffloadJobId{2}, true).has_value());
  ASSERT_TRUE(offload->publish(OffloadJobId{3}, true).has_value());
  EXPECT_EQ(offload->leading(names({1, 2, 3})), 3U);
  cache->manager().check_invariants();
}

TEST_F(OffloadHostSlots, new_blocks_behind_blocks_that_only_storage_has_are_stored) {
  make_writing_through(4, KeyOrder::prefix);
  put(1, names({1, 2}), 0, 10);
  put(2, names({5, 6, 7, 8}), 0, 50);  // takes the whole host tier
  EXPECT_EQ(look_up(names({1, 2})), (std::vector{storage, storage}));
  const std::uint64_t written = count(cache->moved().storage_writes.bytes);
  put(3, names({1, 2, 3, 4}), 0, 10);
  EXPECT_EQ(results(3), (std::map<std::uint32_t, ErrorCode>{{0, {}}, {1, {}}, {2, {}}, {3, {}}}));
  EXPECT_EQ(offload->leading(names({1, 2, 3, 4})), 4U);
  EXPECT_EQ(count(cache->moved().storage_writes.bytes) - written, 2 * block_bytes) << "blocks 1 and 2 are in storage already";
  // The same by reservation.
  put(4, names({5, 6, 7, 8}), 0, 50);
  ASSERT_TRUE(offload->load(order(5, names({5, 6, 7, 8}), {})).has_value());
  settle();
  EXPECT_EQ(look_up(names({1, 2}))[0], storage);
  std::vector<SlotId> to(3);
  EXPECT_EQ(offload->reserve(order_of(6, names({1, 2, 9})), to).value(), 3U);
  ASSERT_TRUE(offload->publish(OffloadJobId{6}, true).has_value());
  cache->manager().check_invariants();
}

TEST_F(OffloadHostSlots, wrong_orders_change_nothing) {
  OffloadLimits limits;
  limits.pinned_blocks = 2;
  make(sizes(4, KeyOrder::flat), limits);
  std::vector<SlotId> to(2);
  EXPECT_EQ(offload->reserve(order(1, names({1, 2}), slots({1, 2})), to).error(), Errc::invalid_argument) << "names slots";
  EXPECT_EQ(offload->reserve(order_of(1, names({1})), to).error(), Errc::invalid_argument) << "2 slots for 1 key";
  OffloadOrder pool = order_of(1, names({1, 2}));
  pool.pool = PoolId{3};
  EXPECT_EQ(offload->reserve(pool, to).error(), Errc::invalid_argument);
  std::vector<SlotId> three(3);
  EXPECT_EQ(offload->reserve(order_of(1, names({1, 2, 3})), three).error(), Errc::no_room);
  ASSERT_EQ(offload->reserve(order_of(1, names({1, 2})), to).value(), 2U);
  EXPECT_EQ(offload->reserve(order_of(1, names({3})), std::span{to}.first(1)).error(), Errc::duplicate_request);
  EXPECT_EQ(offload->store(order_of(2, names({3}))).error(), Errc::invalid_argument) << "a store has a source";
  EXPECT_EQ(look_up(names({1, 2, 3})), (std::vector{pending, pending, miss}));
  offload->stop_accepting();
  EXPECT_EQ(offload->reserve(order_of(4, names({3})), std::span{to}.first(1)).error(), Errc::stopped);
  ASSERT_TRUE(offload->publish(OffloadJobId{1}, true).has_value());
  EXPECT_EQ(offload->publish(OffloadJobId{1}, true).error(), Errc::not_found);
}

TEST_F(OffloadHostSlots, blocks_of_a_session_that_has_ended_go_first) {
  make(sizes(4, KeyOrder::prefix));
  fill(1, names({1, 2}), 1);
  fill(2, names({5, 6}), 2);
  ASSERT_TRUE(offload->expect_use(names({5, 6, 7}), no_use).has_value()) << "what is not cached is ignored";
  ASSERT_TRUE(offload->expect_use(names({9}), no_use).has_value());
  ASSERT_TRUE(offload->expect_use({}, std::chrono::seconds{1}).has_value());
  ASSERT_TRUE(offload->expect_use(names({1}), no_use, {}, KeyOrder::flat).has_value());
  fill(3, names({7, 8}), 3);
  EXPECT_EQ(offload->leading(names({1, 2})), 2U) << "used less recently";
  EXPECT_EQ(offload->leading(names({5, 6})), 0U);
  EXPECT_EQ(offload->expect_use(names({1}), no_use, PoolId{5}).error(), Errc::invalid_argument);
  EXPECT_EQ(cache->manager().stats().sessions_ended, 2U);
}

/// Pins of prefixes and retentions work in the host tier as they do in a device tier, and so do their limits.
TEST_F(OffloadHostSlots, pinned_and_retained_prefixes_stay) {
  make(sizes(4, KeyOrder::prefix));
  fill(1, names({1, 2}), 1);
  fill(2, names({5, 6}), 2);
  const Result<PinId> pin = cache->pin(names({1, 2}));
  ASSERT_TRUE(pin.has_value()) << pin.error().message();
  EXPECT_EQ(cache->pin(names({5})).error(), Errc::no_room) << "half of four blocks are pinned";
  fill(3, names({7, 8}), 3);
  EXPECT_EQ(offload->leading(names({1, 2})), 2U);
  EXPECT_EQ(offload->leading(names({5, 6})), 0U);
  ASSERT_TRUE(cache->unpin(*pin).has_value());
  ASSERT_TRUE(cache->retain(names({1, 2}), highest_priority).has_value());
  fill(4, names({9, 10}), 4);
  EXPECT_EQ(offload->leading(names({1, 2})), 2U);
  EXPECT_EQ(offload->leading(names({7, 8})), 0U) << "used more recently, and of a lower priority";
  EXPECT_EQ(cache->retain(names({9}), usual_priority).error(), Errc::no_room) << "retentions name half of four blocks";
}

TEST_F(OffloadHostSlots, in_prefix_order_blocks_may_stand_alone) {
  make(sizes(6, KeyOrder::prefix));
  fill(1, names({1, 2, 3}), 10);
  fill(2, names({9, 8, 7}), 20, KeyOrder::flat);
  EXPECT_EQ(look_up(names({1, 2, 3})), (std::vector{host, host, host}));
  std::vector<OffloadHit> hits(4);
  ASSERT_TRUE(offload->look_up(names({8, 2, 7, 1}), hits, {}, KeyOrder::flat).has_value());
  // A first block stands alone as well as before those that follow it.
  EXPECT_EQ(hits, (std::vector{host, miss, host, host}));
  EXPECT_EQ(offload->leading(names({9, 8, 2}), {}, KeyOrder::flat), 2U);
  std::vector<std::uint64_t> bits(1);
  ASSERT_TRUE(offload->bitmap(names({8, 2, 7}), bits, {}, KeyOrder::flat).has_value());
  EXPECT_EQ(bits[0], 0b101U);
  EXPECT_EQ(offload->find(names({7, 9, 2}), {}, KeyOrder::flat), (OffloadFound{2, false}));
  OffloadOrder load = order(3, names({7, 2, 9}), slots({1, 2, 3}));
  load.key_order = KeyOrder::flat;
  ASSERT_TRUE(offload->load(load).has_value());
  settle();
  EXPECT_EQ(results(3), (std::map<std::uint32_t, ErrorCode>{{0, {}}, {1, Errc::not_found}, {2, {}}}));
  EXPECT_EQ(read(SlotId{1}), 20);
  EXPECT_EQ(read(SlotId{3}), 20);
  load.first = 1;
  load.id = OffloadJobId{4};
  EXPECT_EQ(offload->load(load).error(), Errc::invalid_argument) << "nothing comes before a block that stands alone";
  cache->manager().check_invariants();
}

TEST_F(OffloadHostSlots, of_blocks_that_stand_alone_the_last_of_a_call_goes_first) {
  for (const KeyOrder in_cache : {KeyOrder::flat, KeyOrder::prefix}) {
    make(sizes(4, in_cache));
    fill(1, names({1, 2, 3, 4}), 10, KeyOrder::flat);
    fill(2, names({5}), 20, KeyOrder::flat);
    std::vector<OffloadHit> hits(5);
    ASSERT_TRUE(offload->look_up(names({1, 2, 3, 4, 5}), hits, {}, KeyOrder::flat).has_value());
    EXPECT_EQ(hits, (std::vector{host, host, host, miss, host}));
    ASSERT_TRUE(offload->touch(names({3, 2}), {}, KeyOrder::flat).has_value());
    fill(3, names({6, 7}), 30, KeyOrder::flat);
    hits.resize(7);
    ASSERT_TRUE(offload->look_up(names({1, 2, 3, 4, 5, 6, 7}), hits, {}, KeyOrder::flat).has_value());
    EXPECT_EQ(hits, (std::vector{miss, host, host, miss, miss, host, host}));
  }
}

TEST_F(OffloadHostSlots, of_a_pin_only_blocks_with_slots_count_for_the_limit) {
  OffloadLimits limits;
  limits.pinned_blocks = 3;
  make(sizes(4, KeyOrder::prefix), limits);
  fill(1, names({1, 2, 3}), 10);
  std::vector<SlotId> last(1);
  for (const std::uint64_t job : {2U, 3U, 4U}) {
    ASSERT_EQ(offload->pin(OffloadJobId{job}, names({1, 2, 3}), {}, last).value(), 3U);
  }
  EXPECT_EQ(offload->pin(OffloadJobId{5}, names({1, 2, 3}), {}, last).error(), Errc::no_room);
  ASSERT_TRUE(offload->unpin(OffloadJobId{3}).has_value());
  EXPECT_EQ(offload->pin(OffloadJobId{5}, names({1, 2, 3}), {}, last).value(), 3U);
}

TEST_F(OffloadHostSlots, a_pin_gives_the_slots_of_the_last_blocks) {
  make(sizes(4, KeyOrder::prefix));
  fill(1, names({1, 2, 3}), 10);
  std::vector<SlotId> all(3);
  std::vector<SlotId> last(2);
  ASSERT_EQ(offload->pin(OffloadJobId{2}, names({1, 2, 3}), {}, all).value(), 3U);
  ASSERT_EQ(offload->pin(OffloadJobId{3}, names({1, 2, 3}), {}, last).value(), 3U);
  EXPECT_EQ(last, (std::vector{all[1], all[2]}));
  EXPECT_EQ(offload->totals().loaded_host, 5U);
  last.resize(4);
  EXPECT_EQ(offload->pin(OffloadJobId{4}, names({1, 2, 3}), {}, last).error(), Errc::invalid_argument);
}

}  // namespace
}  // namespace terrace
