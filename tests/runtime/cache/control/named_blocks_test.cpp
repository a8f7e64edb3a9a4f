// Blocks as callers name them: evicted by slot, found by key, and distinguished by whether they have a key.

#include "runtime/cache/control/cache_manager.hpp"
#include "tests/runtime/content_fixture.hpp"

namespace terrace::test {
namespace {

class NamedBlocks : public ContentFixture {
 protected:
  std::vector<SlotId> slots_of(const std::vector<BlockKey>& keys) {
    std::vector<SlotId> slots;
    for (const BlockKey& key : keys) slots.push_back(cache->find_block(key).value().device.value());
    return slots;
  }
};

TEST_F(NamedBlocks, are_evicted_in_every_tier_with_what_follows_them) {
  make(with_storage(sizes(8, 8, InclusionPolicy::inclusive), WritePolicy::write_through));
  const auto bad = keys_of({1, 2, 3, 4});
  const auto fork = keys_of({1, 2, 9});
  const auto other = keys_of({5, 6});
  serve(1, bad);
  serve(2, fork);
  serve(3, other);
  ASSERT_EQ(store->stat().blocks, 7U);
  ASSERT_EQ(resident(Tier::host), 7U);
  cache->record_events();
  const std::vector<SlotId> named{slots_of(bad)[1]};
  const EvictedBlocks evicted = cache->evict(named).value();
  EXPECT_EQ(evicted.evicted, 4U) << "the second, and what was computed behind it in both branches";
  EXPECT_TRUE(evicted.in_use.empty());
  settle();
  EXPECT_EQ(cache->match(bad).total(), 1U);
  EXPECT_EQ(cache->match(fork).total(), 1U);
  EXPECT_EQ(cache->match(other).found[Source::device], 2U);
  EXPECT_EQ(store->stat().blocks, 3U) << "a restart must not bring it back";
  EXPECT_EQ(resident(Tier::host), 3U);
  std::vector<KvEvent> told;
  cache->take_events(told);
  for (const Source source : {Source::device, Source::host, Source::storage}) {
    EXPECT_EQ(std::ranges::count_if(
                  told, [&](const KvEvent& event) { return event.kind == KvEvent::Kind::removed && event.source == source; }),
              4)
        << to_string(source);
  }
  cache->manager().check_invariants();
  serve(4, bad);
  expect_hit(5, bad);
  EXPECT_EQ(store->stat().blocks, 6U);
}

TEST_F(NamedBlocks, that_are_in_use_stay_and_are_reported) {
  make(sizes(10, 4));
  const auto held = keys_of({1, 2, 3});
  serve(1, held);
  serve(2, keys_of({1, 2, 9}));
  serve(3, keys_of({5, 6}));
  const auto pinned = keys_of({5, 6});
  ASSERT_TRUE(cache->pin(pinned).has_value());
  ASSERT_TRUE(acquire(4, keys_of({1, 2})).has_value());
  std::vector<SlotId> named = slots_of(held);
  named.push_back(slots_of(pinned)[1]);
  named.push_back(SlotId{9});  // a free slot
  const EvictedBlocks evicted = cache->evict(named).value();
  EXPECT_EQ(evicted.evicted, 1U) << "the third alone is nobody's";
  std::vector<SlotId> in_use = evicted.in_use;
  std::ranges::sort(in_use);
  std::vector<SlotId> expected{named[0], named[1], named[3]};
  std::ranges::sort(expected);
  EXPECT_EQ(in_use, expected);
  EXPECT_EQ(cache->match(held).found[Source::device], 2U);
  EXPECT_EQ(cache->evict(std::vector{SlotId{10}}).error(), Errc::invalid_argument);
  use(4, keys_of({1, 2}));
  settle();
  EXPECT_EQ(cache->evict(std::vector{named[0]}).value().evicted, 3U) << "released, it goes with the rest";
  EXPECT_EQ(cache->match(held).total(), 0U);
}

TEST_F(NamedBlocks, that_a_transfer_reads_or_fills_are_in_use) {
  make(sizes(4, 8));
  const auto keys = keys_of({1, 2});
  serve(1, keys);
  const std::vector<SlotId> slots = slots_of(keys);
  device->stuck(Direction::swap_out, true);
  ASSERT_TRUE(acquire(2, keys_of({5, 6, 7, 8})).has_value());  // both are swapped out to the host
  poll();
  EXPECT_EQ(cache->evict(slots).value().in_use.size(), 2U);
  device->stuck(Direction::swap_out, false);
  settle();
  use(2, keys_of({5, 6, 7, 8}));
  settle();
  device->stuck(Direction::swap_in, true);
  ASSERT_TRUE(acquire(3, keys).has_value());
  run_and_poll(10);
  ASSERT_EQ(device->commands(Direction::swap_in), 1U);
  std::vector<SlotId> all;
  for (std::uint32_t slot = 0; slot < 4; ++slot) all.push_back(SlotId{slot});
  EXPECT_GE(cache->evict(all).value().in_use.size(), 2U);
  device->stuck(Direction::swap_in, false);
  ASSERT_TRUE(ready_when_settled(3));
  EXPECT_EQ(hits(3), 2U);
  use(3, keys);
}

TEST_F(NamedBlocks, are_found_by_their_key_alone) {
  make(with_storage(sizes(4, 4), WritePolicy::write_through));
  const auto keys = keys_of({1, 2, 3});
  serve(1, keys);
  const BlockPlace third = cache->find_block(keys[2]).value();
  EXPECT_TRUE(third.device && third.storage && !third.host && !third.in_use);
  ASSERT_TRUE(acquire(2, keys).has_value());
  EXPECT_EQ(cache->find_block(keys[2])->device, table(2)[2]);
  EXPECT_TRUE(cache->find_block(keys[2])->in_use);
  use(2, keys);
  serve(3, keys_of({5, 6, 7, 8}));
  EXPECT_FALSE(cache->find_block(keys[2])->device);
  EXPECT_TRUE(cache->find_block(keys[2])->storage);
  EXPECT_FALSE(cache->find_block(keys_of({9})[0]));
  EXPECT_FALSE(cache->find_block(keys[2], GroupId{7})) << "no such group";
  const auto held = keys_of({5, 6, 7, 8});
  ASSERT_TRUE(acquire(4, held).has_value());
  ASSERT_TRUE(cache->find_block(held[0]));
  cache->clear({});
  EXPECT_FALSE(cache->find_block(keys[2]));
  EXPECT_FALSE(cache->find_block(held[0])) << "a request holds it, but it is nobody's hit any more";
  leases.at(4).used_until(Fence{});
  release(4);
}

TEST_F(NamedBlocks, are_found_by_their_prefix_with_the_tiers_that_have_them) {
  make(with_storage(sizes(4, 2), WritePolicy::write_through));
  const auto keys = keys_of({1, 2, 3, 4});
  serve(1, keys);
  serve(2, keys_of({5, 6, 7}));
  const std::vector<BlockPlace> places = cache->find_blocks(keys_of({1, 2, 3, 4, 9}));
  ASSERT_EQ(places.size(), 5U);
  std::size_t in_memory = 0;
  for (std::size_t i = 0; i < 4; ++i) {
    const BlockPlace alone = cache->find_block(keys[i]).value();
    EXPECT_EQ(places[i].device, alone.device);
    EXPECT_EQ(places[i].host, alone.host);
    EXPECT_TRUE(places[i].storage);
    in_memory += alone.device || alone.host ? 1 : 0;
  }
  EXPECT_EQ(in_memory, 3U);
  EXPECT_FALSE(places[4].device || places[4].host || places[4].storage || places[4].in_use);
  cache->clear({});
  for (const BlockPlace& place : cache->find_blocks(keys)) EXPECT_FALSE(place.device || place.host || place.storage);
}

TEST_F(NamedBlocks, that_have_no_key_yet_are_the_end_of_the_table) {
  make(sizes(8));
  const auto keys = keys_of({1, 2, 3});
  ASSERT_TRUE(acquire(1, keys, 2).has_value());
  const auto unkeyed = [&] {
    const auto slots = cache->unkeyed_blocks(leases.at(1)).value();
    return std::vector<SlotId>{slots.begin(), slots.end()};
  };
  const std::vector<SlotId> all = table(1);
  EXPECT_EQ(unkeyed(), all);
  ASSERT_TRUE(commit(1, keys_of({1, 2})).has_value());
  EXPECT_EQ(unkeyed(), (std::vector<SlotId>{all.begin() + 2, all.end()}));
  ASSERT_TRUE(commit(1, keys).has_value());
  EXPECT_EQ(unkeyed(), (std::vector<SlotId>{all.begin() + 3, all.end()})) << "a part of a block, and lookahead";
  end(1, {});
  ASSERT_TRUE(acquire(1, keys).has_value());
  EXPECT_TRUE(unkeyed().empty()) << "all of it is a hit";
  EXPECT_EQ(cache->unkeyed_blocks(leases.at(1), GroupId{3}).error(), Errc::invalid_argument);
}

}  // namespace
}  // namespace terrace::test
