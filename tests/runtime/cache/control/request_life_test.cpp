// Acquire, extend, commit, release: what a scheduler relies on.

#include "runtime/cache/control/cache_manager.hpp"
#include "runtime/cache/index/slot_allocator.hpp"
#include "runtime/cache/types/config.hpp"
#include "tests/runtime/fixture.hpp"
#include "transfer/device/transfer.hpp"

#include <utility>
#include <vector>

namespace terrace::test {
namespace {

class RequestLife : public CacheFixture {};

TEST_F(RequestLife, finds_what_an_earlier_request_committed) {
  make(sizes(8));
  run(1, keys_of({1, 2, 3}));
  const MatchResult found = cache->match(keys_of({1, 2, 3, 4}));
  EXPECT_EQ(found.found[Source::device], 3U);
  EXPECT_EQ(found.total(), 3U);
  ASSERT_TRUE(acquire(2, keys_of({1, 2, 9})).has_value());
  ASSERT_TRUE(ready(2));
  EXPECT_EQ(stats(2).found[Source::device], 2U);
  EXPECT_EQ(stats(2).miss, 1U);
}

TEST_F(RequestLife, match_has_no_side_effect) {
  make(sizes(4));
  run(1, keys_of({1, 2}));
  run(2, keys_of({7, 8}));
  EXPECT_EQ(cache->match(keys_of({1, 2})).found[Source::device], 2U);  // match() is no use of a block: it is still evicted first
  run(3, keys_of({5}));
  EXPECT_EQ(cache->match(keys_of({1, 2})).found[Source::device], 1U);
  EXPECT_EQ(cache->match(keys_of({7, 8})).found[Source::device], 2U);
}

TEST_F(RequestLife, match_sees_what_has_come_since_the_same_question) {
  make(sizes(4));
  ASSERT_TRUE(acquire(1, keys_of({1, 2})).has_value());
  EXPECT_EQ(cache->match(keys_of({1, 2})).total(), 0U);
  ASSERT_TRUE(commit(1, keys_of({1, 2})).has_value());
  EXPECT_EQ(cache->match(keys_of({1, 2})).total(), 2U);
  EXPECT_EQ(cache->match(keys_of({1, 9})).total(), 1U);
  EXPECT_EQ(cache->match(keys_of({1})).total(), 1U);
}

TEST_F(RequestLife, hands_out_the_lowest_slots_in_order) {
  make(sizes(8));
  ASSERT_TRUE(acquire(1, keys_of({1, 2, 3})).has_value());
  EXPECT_EQ(table(1), (std::vector{SlotId{0}, SlotId{1}, SlotId{2}}));
}

TEST_F(RequestLife, never_hands_out_the_null_block) {
  ManagerConfig config = sizes(4);
  config.pools[0].null_block = true;
  make(config);
  EXPECT_EQ(acquire(1, keys_of({1, 2, 3, 4})).error(), Errc::never_fits);
  ASSERT_TRUE(acquire(2, keys_of({1, 2, 3})).has_value());
  EXPECT_EQ(table(2), (std::vector{SlotId{1}, SlotId{2}, SlotId{3}}));
  EXPECT_EQ(cache->manager().device_ledger().null, 1U);
}

TEST_F(RequestLife, leaves_a_block_to_compute_where_the_caller_needs_logits) {
  make(sizes(8));
  run(1, keys_of({1, 2, 3}));
  const auto keys = keys_of({1, 2, 3});
  AcquireRequest wanted = request(2, keys);
  wanted.hit_units_max = 2;
  leases[2] = cache->acquire(wanted).value();
  EXPECT_EQ(stats(2).found[Source::device], 2U);
  // A block that it computes again is a duplicate. The request keeps its own slot until it is released.
  const auto duplicates = commit(2, keys).value();
  ASSERT_EQ(duplicates.size(), 1U);
  EXPECT_EQ(duplicates[0].block, 2U);
  EXPECT_EQ(duplicates[0].own, table(2)[2]);
  EXPECT_NE(duplicates[0].own, duplicates[0].shared);
  EXPECT_EQ(free_on_device(), 4U);
  release(2);
  EXPECT_EQ(free_on_device(), 5U);
}

/// Ten times an engine tries a request whose hits are in the room that it needs for the rest.
TEST_F(RequestLife, without_the_room_that_must_be_left_an_acquire_counts_as_no_request) {
  make(sizes(8));
  run(1, keys_of({1, 2, 3, 4, 5}));
  const auto keys = keys_of({1, 2, 3, 4, 5});
  AcquireRequest wanted = request(2, keys);
  wanted.new_units_max = 0;
  wanted.room_left = 4;
  const std::uint64_t before = cache->stats().requests.requests;
  for (int i = 0; i < 10; ++i) EXPECT_EQ(cache->acquire(wanted).error(), Errc::no_room);
  EXPECT_EQ(cache->stats().requests.requests, before);
  EXPECT_EQ(cache->stats().requests.found.sum(), 0U);
  EXPECT_EQ(cache->stats().refused_no_room, 10U);
  wanted.room_left = 3;
  leases[2] = cache->acquire(wanted).value();
  EXPECT_EQ(cache->stats().requests.requests, before + 1);
  cache->manager().check_invariants();
}

TEST_F(RequestLife, a_refused_acquire_changes_nothing) {
  make(sizes(4));
  run(1, keys_of({1, 2}));
  ASSERT_TRUE(acquire(2, keys_of({7, 8, 9})).has_value());
  const Ledger before = cache->manager().device_ledger();
  EXPECT_EQ(acquire(3, keys_of({1, 3, 4})).error(), Errc::no_room);
  EXPECT_EQ(acquire(2, keys_of({1})).error(), Errc::duplicate_request);
  EXPECT_EQ(acquire(4, keys_of({1, 2, 3, 4, 5})).error(), Errc::never_fits);
  AcquireRequest nonsense = request(5, {});
  EXPECT_EQ(cache->acquire(nonsense).error(), Errc::invalid_argument);
  const auto keys = keys_of({1, 2});
  nonsense = request(5, keys);
  nonsense.units = 1;
  EXPECT_EQ(cache->acquire(nonsense).error(), Errc::invalid_argument);
  const Ledger after = cache->manager().device_ledger();
  EXPECT_EQ(before.free, after.free);
  EXPECT_EQ(before.held, after.held);
  EXPECT_EQ(cache->manager().requests().live_requests(), 1U);
  cache->manager().check_invariants();
  const ManagerStats& totals = cache->stats();
  EXPECT_EQ(totals.refused_no_room, 1U);
  EXPECT_EQ(totals.refused_never_fits, 1U);
  EXPECT_EQ(totals.refused_invalid, 3U);
  EXPECT_EQ(totals.aborted, 0U);
}

TEST_F(RequestLife, needs_the_blocks_of_its_keys_if_it_does_not_say_how_many) {
  make(sizes(4));
  const auto keys = keys_of({1, 2, 3});
  AcquireRequest wanted = request(1, keys);
  wanted.units = 0;
  Lease lease = cache->acquire(wanted).value();
  EXPECT_EQ(cache->block_table(lease)->size(), 3U);
  cache->release(std::move(lease), no_longer_used);
}

TEST_F(RequestLife, frees_partial_and_lookahead_blocks_with_the_request) {
  make(sizes(8));
  ASSERT_TRUE(acquire(1, keys_of({1, 2}), 3).has_value());
  EXPECT_EQ(table(1).size(), 5U);
  EXPECT_EQ(free_on_device(), 3U);
  ASSERT_TRUE(commit(1, keys_of({1, 2})).has_value());
  release(1);
  EXPECT_EQ(free_on_device(), 6U);
}

TEST_F(RequestLife, commits_in_chunks_and_twice_without_harm) {
  make(sizes(8));
  const auto keys = keys_of({1, 2, 3, 4});
  ASSERT_TRUE(acquire(1, keys).has_value());
  ASSERT_TRUE(commit(1, keys_of({1, 2})).has_value());
  EXPECT_EQ(cache->match(keys).found[Source::device], 2U);
  ASSERT_TRUE(commit(1, keys_of({1, 2})).has_value());
  ASSERT_TRUE(commit(1, keys).has_value());
  EXPECT_EQ(cache->match(keys).found[Source::device], 4U);
  EXPECT_EQ(commit(1, keys_of({1, 2, 3, 4, 5})).error(), Errc::invalid_argument);
}

TEST_F(RequestLife, extends_from_free_slots_and_then_by_dropping) {
  make(sizes(4));
  run(1, keys_of({7, 8}));
  ASSERT_TRUE(acquire(2, keys_of({1})).has_value());
  ASSERT_TRUE(cache->extend(leases.at(2), 1).has_value());
  EXPECT_EQ(cache->match(keys_of({7, 8})).found[Source::device], 2U);
  ASSERT_TRUE(cache->extend(leases.at(2), 2).has_value());
  EXPECT_EQ(cache->match(keys_of({7, 8})).found[Source::device], 0U);
  EXPECT_EQ(table(2).size(), 4U);
  EXPECT_EQ(cache->extend(leases.at(2), 1).error(), Errc::never_fits);
  EXPECT_EQ(table(2).size(), 4U);
}

TEST_F(RequestLife, that_has_outgrown_its_pool_is_told_that_it_never_fits) {
  make(sizes(4));
  ASSERT_TRUE(acquire(1, keys_of({1})).has_value());
  ASSERT_TRUE(acquire(2, keys_of({5, 6})).has_value());
  EXPECT_EQ(cache->extend(leases.at(1), 3).error(), Errc::no_room) << "the other request has two of the slots";
  EXPECT_EQ(cache->extend(leases.at(1), 4).error(), Errc::never_fits);
  release(2);
  EXPECT_EQ(cache->extend(leases.at(1), 4).error(), Errc::never_fits);
  ASSERT_TRUE(cache->extend(leases.at(1), 3).has_value());
}

TEST_F(RequestLife, keys_of_generated_blocks_are_cached_too) {
  make(sizes(8));
  ASSERT_TRUE(acquire(1, keys_of({1})).has_value());
  ASSERT_TRUE(cache->extend(leases.at(1), 1).has_value());
  ASSERT_TRUE(commit(1, keys_of({1, 2})).has_value());
  release(1);
  EXPECT_EQ(cache->match(keys_of({1, 2})).found[Source::device], 2U);
}

TEST_F(RequestLife, merges_content_computed_twice_at_the_same_time) {
  make(sizes(8));
  const auto keys = keys_of({1, 2});
  ASSERT_TRUE(acquire(1, keys).has_value());
  ASSERT_TRUE(acquire(2, keys).has_value());
  EXPECT_TRUE(commit(1, keys)->empty());
  const auto duplicates = commit(2, keys).value();
  ASSERT_EQ(duplicates.size(), 2U);
  EXPECT_EQ(duplicates[1].shared, table(1)[1]);
  EXPECT_EQ(duplicates[1].own, table(2)[1]);
  release(1);
  release(2);
  EXPECT_EQ(free_on_device(), 6U);
  EXPECT_EQ(cache->manager().stats().duplicates, 2U);
}

TEST_F(RequestLife, never_evicts_a_leased_block) {
  make(sizes(4));
  run(1, keys_of({1, 2}));
  ASSERT_TRUE(acquire(2, keys_of({1, 2})).has_value());
  run(3, keys_of({5, 6}));
  run(4, keys_of({7, 8}));
  EXPECT_EQ(cache->match(keys_of({1, 2})).found[Source::device], 2U);
}

TEST_F(RequestLife, evicts_the_tail_of_a_sequence_first) {
  make(sizes(4));
  run(1, keys_of({1, 2, 3, 4}));
  run(2, keys_of({9}));
  EXPECT_EQ(cache->match(keys_of({1, 2, 3, 4})).found[Source::device], 3U);
}

TEST_F(RequestLife, calls_for_an_unknown_or_unready_request_say_so) {
  make(with_storage(sizes(4, 4), WritePolicy::none));
  CacheManager manager{sizes(4)};
  EXPECT_EQ(manager.requests().extend(RequestId{1}, 1).error(), Errc::unknown_request);
  EXPECT_EQ(manager.requests().commit(RequestId{1}, {}, Fence{}).error(), Errc::unknown_request);
  EXPECT_EQ(manager.requests().release(RequestId{1}, Fence{}).error(), Errc::unknown_request);
  EXPECT_EQ(manager.requests().block_table(RequestId{1}).error(), Errc::unknown_request);
  run(1, keys_of({1, 2, 3, 4}));
  ASSERT_TRUE(acquire(2, keys_of({7, 8})).has_value());  // waits for swap-outs
  ASSERT_FALSE(ready(2));
  EXPECT_EQ(cache->extend(leases.at(2), 1).error(), Errc::not_ready);
  EXPECT_EQ(commit(2, keys_of({7})).error(), Errc::not_ready);
}

TEST_F(RequestLife, can_skip_the_lookup_and_be_cached_all_the_same) {
  make(sizes(8));
  run(1, keys_of({1, 2}));
  const auto keys = keys_of({1, 2, 3});
  AcquireRequest wanted = request(2, keys);
  wanted.hit_units_max = 0;
  leases[2] = cache->acquire(wanted).value();
  EXPECT_EQ(stats(2).miss, 3U);
  EXPECT_EQ(commit(2, keys)->size(), 2U);
  release(2);
  EXPECT_EQ(cache->match(keys).found[Source::device], 3U);
}

TEST_F(RequestLife, drops_the_last_hit_once_for_speculative_decoding) {
  make(sizes(8));
  run(1, keys_of({1, 2, 3}));
  const auto keys = keys_of({1, 2, 3, 4});
  AcquireRequest wanted = request(2, keys);
  wanted.drop_last_hit = true;
  leases[2] = cache->acquire(wanted).value();
  EXPECT_EQ(stats(2).found[Source::device], 2U);
  EXPECT_EQ(stats(2).miss, 2U);
  const auto others = keys_of({9});
  wanted = request(3, others);
  wanted.drop_last_hit = true;
  leases[3] = cache->acquire(wanted).value();
  EXPECT_EQ(stats(3).miss, 1U);
}

TEST_F(RequestLife, finds_its_hits_again_after_a_failed_load_without_the_keys_of_its_caller) {
  make(sizes(8, 16));
  run(1, keys_of({1, 2, 3, 4}));
  run(2, keys_of({1, 2, 7}));  // the first two blocks have a node of their own now
  run(3, keys_of({11, 12, 13, 14, 15, 16, 17, 18}));
  ASSERT_EQ(cache->match(keys_of({1, 2, 3, 4})).found[Source::host], 4U);
  for (const bool drop_last_hit : {false, true}) {
    std::vector<BlockKey> keys = keys_of({1, 2, 3, 4, 5});
    AcquireRequest wanted = request(4, keys);
    wanted.drop_last_hit = drop_last_hit;
    device->fail_next(Direction::swap_in);
    leases[4] = cache->acquire(wanted).value();
    std::ranges::fill(keys, BlockKey{});
    ASSERT_TRUE(ready_when_settled(4));
    EXPECT_EQ(cache->manager().stats().replans, drop_last_hit ? 2U : 1U);
    EXPECT_EQ(stats(4).found[Source::host], drop_last_hit ? 3U : 4U);
    release(4);
    run(5, keys_of({11, 12, 13, 14, 15, 16, 17, 18}));
  }
}

TEST_F(RequestLife, with_caching_off_nothing_is_matched_or_kept) {
  ManagerConfig config = sizes(4);
  config.caching = false;
  make(config);
  run(1, keys_of({1, 2}));
  EXPECT_EQ(cache->match(keys_of({1, 2})).total(), 0U);
  EXPECT_EQ(free_on_device(), 4U);
  EXPECT_EQ(resident(Tier::device), 0U);
  run(2, keys_of({1, 2}));
}

TEST_F(RequestLife, is_cached_no_sooner_than_it_is_committed) {
  make(sizes(8));
  ASSERT_TRUE(acquire(1, keys_of({1, 2})).has_value());
  EXPECT_EQ(cache->match(keys_of({1, 2})).found[Source::device], 0U);
  ASSERT_TRUE(commit(1, keys_of({1})).has_value());
  EXPECT_EQ(cache->match(keys_of({1, 2})).found[Source::device], 1U);
  ASSERT_TRUE(commit(1, keys_of({1, 2})).has_value());
  EXPECT_EQ(cache->match(keys_of({1, 2})).found[Source::device], 2U);
}

TEST_F(RequestLife, is_no_longer_than_the_model) {
  ManagerConfig config = sizes(8);
  config.request_units_max = 3;
  make(config);
  ASSERT_TRUE(acquire(1, keys_of({1, 2, 3, 4, 5}), 1).has_value());
  EXPECT_EQ(table(1).size(), 3U);
  EXPECT_EQ(stats(1).units, 3U) << "what is beyond is not looked at";
  ASSERT_TRUE(commit(1, keys_of({1, 2, 3})).has_value());
  release(1);
  // Lookahead ends at the length of the model: it gets the slots up to there, and then no more.
  ASSERT_TRUE(acquire(2, keys_of({6, 7})).has_value());
  EXPECT_EQ(cache->extend(leases[2], 0).error(), Errc::invalid_argument);
  ASSERT_TRUE(cache->extend(leases[2], 2).has_value());
  EXPECT_EQ(table(2).size(), 3U);
  const std::uint64_t free = free_on_device();
  ASSERT_TRUE(cache->extend(leases[2], 1).has_value());
  EXPECT_EQ(table(2).size(), 3U);
  EXPECT_EQ(free_on_device(), free);
  ASSERT_TRUE(acquire(3, keys_of({1, 2}), 9).has_value());
  EXPECT_EQ(table(3).size(), 3U);
  EXPECT_EQ(stats(3).found[Source::device], 2U);
}

TEST_F(RequestLife, knows_beforehand_what_it_may_ask_for) {
  ManagerConfig config = sizes(9, 4);
  config.pools[0].null_block = true;
  make(config);
  run(1, keys_of({1, 2, 3}));
  ASSERT_TRUE(acquire(2, keys_of({1, 8})).has_value());
  const Usage usage = cache->usage(Tier::device);
  EXPECT_EQ(cache->blocks_for(7), 7U) << "without groups, hash units, which are blocks";
  EXPECT_EQ(usage.blocks, 8U);
  EXPECT_EQ(usage.free, 4U);
  EXPECT_EQ(usage.evictable, 2U);  // 2 and 3; block 1 is held
  EXPECT_EQ(usage.available(), 6U);
  EXPECT_DOUBLE_EQ(usage.share_used(), 0.25);
  EXPECT_DOUBLE_EQ(usage.share_free(), 0.5);
  EXPECT_EQ(acquire(3, keys_of({11, 12, 13, 14, 15, 16, 17})).error(), Errc::no_room);
  ASSERT_TRUE(acquire(4, keys_of({11, 12, 13, 14, 15, 16})).has_value());
  EXPECT_EQ(cache->manager().usage(Tier::device).available(), 0U);
  settle();
  EXPECT_EQ(cache->manager().usage(Tier::host).free, 2U);  // 2 and 3 were swapped out
}

TEST_F(RequestLife, can_ask_whether_there_is_room_with_evicting_and_without) {
  make(sizes(8, 4));
  run(1, keys_of({1, 2, 3}));
  const auto room = [&](std::uint64_t blocks, Evicting evicting) {
    return cache->manager().usage(Tier::device).has_room(blocks, evicting);
  };
  EXPECT_TRUE(room(5, Evicting::no));
  EXPECT_FALSE(room(6, Evicting::no));
  EXPECT_TRUE(room(8, Evicting::yes));
  EXPECT_FALSE(room(9, Evicting::yes));
  EXPECT_TRUE(cache->manager().usage(Tier::host).has_room(4, Evicting::no));
  // The reported numbers are right.
  ASSERT_TRUE(acquire(2, keys_of({11, 12, 13, 14, 15})).has_value());
  EXPECT_TRUE(ready(2));
  EXPECT_EQ(resident(Tier::device), 3U);
  EXPECT_FALSE(room(1, Evicting::no));
  EXPECT_EQ(acquire(3, keys_of({21, 22, 23, 24})).error(), Errc::no_room);
  EXPECT_FALSE(room(4, Evicting::yes));
  EXPECT_TRUE(room(3, Evicting::yes));
  ASSERT_TRUE(acquire(3, keys_of({21, 22})).has_value());
  EXPECT_FALSE(ready(3));
  EXPECT_TRUE(room(1, Evicting::yes)) << "two are promised";
  EXPECT_FALSE(room(2, Evicting::yes));
  settle();
  EXPECT_TRUE(cache->manager().usage(Tier::host).has_room(2, Evicting::no));
  EXPECT_FALSE(cache->manager().usage(Tier::host).has_room(3, Evicting::no));
  EXPECT_TRUE(cache->manager().usage(Tier::host).has_room(4, Evicting::yes));
}

TEST_F(RequestLife, shows_what_is_cached) {
  make(sizes(8));
  run(1, keys_of({1, 2, 3}));
  run(2, keys_of({1, 2, 9}));
  const std::string all = cache->manager().describe_tree(10);
  EXPECT_NE(all.find("4 blocks in 3 nodes; device 4, host 0, storage 0\n"), std::string::npos) << all;
  EXPECT_NE(all.find("blocks 0 to 1, from " + to_hex(keys_of({1})[0]).substr(0, 12) + ": device 2"), std::string::npos) << all;
  EXPECT_NE(cache->manager().describe_tree(1).find("and 2 more nodes"), std::string::npos);
}

TEST_F(RequestLife, tells_waiting_failed_and_unknown_requests_apart) {
  make(sizes(4, 8));
  run(1, keys_of({1, 2, 3, 4}));
  const auto keys = keys_of({5});
  AcquireRequest wanted = request(2, keys);
  wanted.deadline = clock.now() + std::chrono::milliseconds{1};
  leases[2] = cache->acquire(wanted).value();
  EXPECT_EQ(cache->state(leases.at(2)), RequestState::waiting);
  EXPECT_EQ(cache->group_state(leases.at(2), GroupId{}), GroupState::unknown);
  clock.advance(std::chrono::milliseconds{2});
  poll();
  EXPECT_EQ(cache->state(leases.at(2)), RequestState::failed);
  release(2);
  settle();
  ASSERT_TRUE(acquire(3, keys_of({1})).has_value());
  EXPECT_EQ(cache->state(leases.at(3)), RequestState::ready);
  EXPECT_EQ(cache->group_state(leases.at(3), GroupId{}), GroupState::serves);
  EXPECT_EQ(cache->group_state(leases.at(3), GroupId{1}), GroupState::unknown);
  const Lease moved = std::move(leases.at(3));
  EXPECT_EQ(cache->state(leases.at(3)), RequestState::unknown);
}

TEST_F(RequestLife, counts_nodes_leaves_and_references_in_each_tier) {
  make(sizes(5, 8));
  run(1, keys_of({1, 2, 3}));
  run(2, keys_of({1, 2, 9}));
  TreeCounts counts = cache->tree_counts();
  EXPECT_EQ(counts.nodes, 3U);
  EXPECT_EQ(counts.blocks, 4U);
  EXPECT_EQ(counts.references, 0U);
  EXPECT_EQ(counts.tiers[index(Tier::device)].leaves, 2U);
  EXPECT_EQ(counts.tiers[index(Tier::host)].leaves, 0U);

  ASSERT_TRUE(acquire(3, keys_of({1, 2, 9})).has_value());
  ASSERT_TRUE(acquire(4, keys_of({1})).has_value());
  ASSERT_TRUE(acquire(5, keys_of({7, 8})).has_value());  // swaps block 3 out
  settle();
  counts = cache->tree_counts();
  EXPECT_EQ(counts.references, 2U);
  EXPECT_EQ(counts.tiers[index(Tier::device)].blocks, 3U);
  EXPECT_EQ(counts.tiers[index(Tier::device)].pinned, 3U);
  EXPECT_EQ(counts.tiers[index(Tier::device)].leaves, 1U);
  EXPECT_EQ(counts.tiers[index(Tier::host)].blocks, 1U);
  EXPECT_EQ(counts.tiers[index(Tier::host)].leaves, 1U);
}

// ---- shards of one device

TEST(Shards, confine_hits_and_slots_to_their_ranks) {
  ManagerConfig config = sizes(4);
  config.pools[0].null_block = true;
  CacheManager first{config};
  config.pools[0].first_slot = 4;
  CacheManager second{config};
  const auto keys = keys_of({1, 2, 3});
  AcquireRequest wanted = request_for(1, keys);
  for (CacheManager* const rank : {&first, &second}) {
    ASSERT_TRUE(rank->acquire(wanted).has_value());
    EXPECT_EQ(rank->usage(Tier::device).blocks, 3U);
    const std::uint32_t lowest = rank == &first ? 1 : 5;
    const auto table = rank->requests().block_table(wanted.id).value();
    for (std::uint32_t i = 0; i < 3; ++i) EXPECT_EQ(table[i], SlotId{lowest + i});
  }
  ASSERT_TRUE(first.requests().commit(wanted.id, keys, Fence{}).has_value());
  first.settle();
  EXPECT_EQ(first.requests().match(keys).found[Source::device], 3U);
  EXPECT_EQ(second.requests().match(keys).total(), 0U);
  for (CacheManager* const rank : {&first, &second}) {
    ASSERT_TRUE(rank->requests().release(wanted.id, Fence{}).has_value());
    rank->settle();
    rank->check_invariants();
  }
}

TEST(RequestEvents, are_taken_all_together_or_for_one_request) {
  CacheManager manager{sizes(2, 2)};
  Requests& requests = manager.requests();
  const auto cached = keys_of({1, 2});
  ASSERT_EQ(manager.acquire(request_for(1, cached)).value(), Acquired::ready);
  ASSERT_TRUE(requests.commit(RequestId{1}, cached, Fence{}).has_value());
  manager.settle();
  ASSERT_TRUE(requests.release(RequestId{1}, Fence{}).has_value());
  manager.settle();
  for (const std::uint32_t id : {2U, 3U}) {
    ASSERT_EQ(manager.acquire(request_for(id, keys_of({10 + id}))).value(), Acquired::pending);
  }
  EXPECT_FALSE(requests.has_events());
  manager.administration().clear({});
  manager.settle();
  const std::optional<RequestEvent> end = requests.take_end(RequestId{3});
  ASSERT_TRUE(end.has_value());
  EXPECT_EQ(end->id, RequestId{3});
  EXPECT_EQ(end->error, Errc::cleared);
  EXPECT_FALSE(requests.take_end(RequestId{3}).has_value());
  EXPECT_TRUE(requests.has_events());
  std::vector<RequestEvent> events;
  requests.take_events(events);
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(events[0].id, RequestId{2});
  EXPECT_FALSE(requests.has_events());
}

TEST(Shards, that_are_full_refuse_and_change_nothing) {
  ManagerConfig config = sizes(4);
  config.pools[0].first_slot = 8;
  CacheManager rank{config};
  const auto keys = keys_of({1, 2, 3});
  AcquireRequest wanted = request_for(1, keys);
  ASSERT_TRUE(rank.acquire(wanted).has_value());
  const Ledger before = rank.device_ledger();
  AcquireRequest more = wanted;
  more.id = RequestId{2};
  more.keys = std::span{keys}.first(2);
  more.units = 2;
  EXPECT_EQ(rank.acquire(more).error(), Errc::no_room);
  more.units = 5;
  EXPECT_EQ(rank.acquire(more).error(), Errc::never_fits);
  EXPECT_EQ(rank.requests().extend(wanted.id, 2).error(), Errc::never_fits);
  const Ledger after = rank.device_ledger();
  EXPECT_EQ(before.free, after.free);
  EXPECT_EQ(before.held, after.held);
  EXPECT_EQ(rank.requests().live_requests(), 1U);
  ASSERT_TRUE(rank.requests().extend(wanted.id, 1).has_value());
  rank.settle();
  EXPECT_EQ(rank.requests().block_table(wanted.id)->back(), SlotId{11});
  ASSERT_TRUE(rank.requests().release(wanted.id, Fence{}).has_value());
  rank.settle();
  ASSERT_TRUE(rank.administration().resize(Tier::device, 2).has_value());
  EXPECT_EQ(rank.usage(Tier::device).free, 2U);
  EXPECT_EQ(rank.administration().resize(Tier::device, 0).error(), Errc::invalid_argument);
  rank.check_invariants();
}

// ---- the orders of the manager, and the call in which it gives each. The result of the order in storage or on the link does not
// matter here.

class ManagerOrders : public testing::Test {
 protected:
  static ManagerConfig config() {
    ManagerConfig made = with_storage(sizes(8), WritePolicy::write_through);
    made.pools[0].staging_blocks = 8;
    return made;
  }
  /// Returns the transfers of the last call.
  std::vector<Transfer> commit(const std::vector<BlockKey>& wanted) {
    manager.actions().clear();
    EXPECT_TRUE(manager.requests().commit(RequestId{1}, wanted, Fence{}).has_value());
    manager.settle();
    return std::exchange(manager.actions().transfers, {});
  }
  void arrive(const Transfer& transfer) {
    TransferEvent event;
    event.id = transfer.id;
    event.direction = transfer.direction;
    event.outcomes.assign(block_count(transfer.runs), BlockOutcome::done);
    manager.on_transfer(std::move(event));
    manager.settle_and_reclaim();
  }
  [[nodiscard]] std::vector<BlockKey> written() {
    std::vector<BlockKey> ordered;
    for (const WriteOrder& order : manager.actions().writes) ordered.push_back(order.block.key);
    return ordered;
  }

  const std::vector<BlockKey> keys = keys_of({1, 2, 3, 4});
  CacheManager manager{config()};
};

TEST_F(ManagerOrders, of_a_commit_are_there_when_the_call_returns) {
  ASSERT_TRUE(manager.acquire(request_for(1, keys)).has_value());
  const std::vector<Transfer> transfers = commit(keys);
  ASSERT_EQ(transfers.size(), 1U) << "nobody may call again for a while";
  EXPECT_EQ(block_count(transfers[0].runs), 4U);
}

TEST_F(ManagerOrders, hand_a_block_to_storage_after_its_parent_whatever_arrives_first) {
  ASSERT_TRUE(manager.acquire(request_for(1, keys)).has_value());
  const std::vector<Transfer> parents = commit({keys.begin(), keys.begin() + 2});
  const std::vector<Transfer> children = commit(keys);
  ASSERT_EQ(parents.size(), 1U);
  ASSERT_EQ(children.size(), 1U);
  arrive(children[0]);
  EXPECT_TRUE(written().empty()) << "their parents are not with storage yet";
  arrive(parents[0]);
  EXPECT_EQ(written(), keys);
}

}  // namespace
}  // namespace terrace::test
