// The cache as a whole: clear and resume, drop and pin, events, pause.

#include "runtime/cache/control/cache_manager.hpp"
#include "runtime/cache/types/config.hpp"
#include "tests/runtime/fixture.hpp"

namespace terrace::test {
namespace {

class CacheLife : public CacheFixture {
 protected:
  [[nodiscard]] std::uint32_t hits(const std::vector<BlockKey>& keys) const { return cache->match(keys).total(); }
  [[nodiscard]] std::vector<KvEvent> taken() {
    std::vector<KvEvent> since_last_time;
    cache->take_events(since_last_time);
    return since_last_time;
  }
  /// The blocks 1 and 2 of request 1 are being written to storage.
  void make_while_two_blocks_are_written() {
    make(with_storage(sizes(8), WritePolicy::write_through));
    ASSERT_TRUE(acquire(1, keys_of({1, 2})).has_value());
    ASSERT_TRUE(commit(1, keys_of({1, 2})).has_value());
    for (int i = 0; i < 10 && store->stat().writing < 2; ++i) {
      device->run();
      poll();
    }
    ASSERT_EQ(store->stat().writing, 2U);
  }
};

// ---- clearing

TEST_F(CacheLife, a_clear_forgets_what_nobody_uses_at_once) {
  make(sizes(8, 8));
  run(1, keys_of({1, 2, 3}));
  run(2, keys_of({1, 2, 4}));
  cache->clear({});
  EXPECT_EQ(hits(keys_of({1, 2, 3})), 0U);
  EXPECT_EQ(free_on_device(), 8U);
  EXPECT_EQ(resident(Tier::device) + resident(Tier::host), 0U);
  EXPECT_EQ(cache->status(), CacheStatus::normal);
  EXPECT_EQ(cache->manager().administration().epoch(), Epoch{1});
  run(3, keys_of({1, 2, 3}));
  EXPECT_EQ(hits(keys_of({1, 2, 3})), 3U);
}

TEST_F(CacheLife, what_a_request_computed_before_a_clear_is_nobody_elses_after_it) {
  make(sizes(8));
  ASSERT_TRUE(acquire(1, keys_of({1, 2, 3, 4})).has_value());
  ASSERT_TRUE(commit(1, keys_of({1, 2})).has_value());
  cache->clear({});
  ASSERT_TRUE(commit(1, keys_of({1, 2, 3, 4})).has_value());
  EXPECT_EQ(hits(keys_of({1, 2, 3, 4})), 0U);
  EXPECT_EQ(table(1).size(), 4U);  // it continues with its own slots
  run(2, keys_of({1, 2}));
  EXPECT_EQ(hits(keys_of({1, 2})), 2U);
  EXPECT_EQ(free_on_device(), 2U);
  release(1);
  settle();
  EXPECT_EQ(free_on_device(), 6U);
  EXPECT_EQ(hits(keys_of({1, 2})), 2U);
}

TEST_F(CacheLife, a_clear_that_waits_serves_nothing_until_it_is_resumed) {
  make(sizes(8));
  run(1, keys_of({1, 2}));
  ASSERT_TRUE(acquire(2, keys_of({1, 2, 3})).has_value());
  cache->clear({.wait = true});
  EXPECT_EQ(cache->status(), CacheStatus::clearing);
  EXPECT_EQ(acquire(3, keys_of({5})).error(), Errc::paused);
  EXPECT_EQ(cache->stats().refused_paused, 1U);
  EXPECT_EQ(hits(keys_of({1, 2})), 0U);
  EXPECT_EQ(cache->pin(keys_of({1})).error(), Errc::paused);
  EXPECT_EQ(cache->resume().error(), Errc::paused);
  release(2);
  settle();
  EXPECT_EQ(cache->status(), CacheStatus::cleared);
  EXPECT_EQ(acquire(3, keys_of({5})).error(), Errc::paused);
  ASSERT_TRUE(cache->resume().has_value());
  EXPECT_EQ(cache->status(), CacheStatus::normal);
  run(4, keys_of({5}));
  EXPECT_EQ(hits(keys_of({5})), 1U);
}

TEST_F(CacheLife, requests_that_wait_fail_when_the_cache_is_cleared) {
  make(sizes(4, 8));
  run(1, keys_of({1, 2, 3, 4}));
  ASSERT_TRUE(acquire(2, keys_of({5, 6})).has_value());  // waits for two swap-outs
  ASSERT_FALSE(ready(2));
  cache->clear({});
  poll();
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(events[0].error, Errc::cleared);
  release(2);
  settle();
  // The load that was under way has no effect.
  EXPECT_EQ(free_on_device(), 4U);
  EXPECT_EQ(resident(Tier::host), 0U);
  EXPECT_FALSE(cache->manager().residency().tree().any_hidden());
}

TEST_F(CacheLife, a_load_that_ends_after_a_clear_publishes_nothing) {
  make(sizes(4, 8));
  run(1, keys_of({1, 2, 3, 4}));
  run(2, keys_of({5, 6, 7, 8}));
  ASSERT_TRUE(acquire(3, keys_of({1, 2})).has_value());  // a load from the host
  ASSERT_FALSE(ready(3));
  cache->clear({});
  release(3);
  settle();
  EXPECT_EQ(hits(keys_of({1, 2})), 0U);
  EXPECT_EQ(resident(Tier::device) + resident(Tier::host), 0U);
}

TEST_F(CacheLife, a_reset_is_refused_while_requests_are_alive) {
  make(sizes(8));
  run(1, keys_of({1, 2}));
  ASSERT_TRUE(acquire(2, keys_of({1})).has_value());
  EXPECT_EQ(cache->reset({}).error(), Errc::in_use);
  EXPECT_EQ(hits(keys_of({1, 2})), 2U);
  release(2);
  ASSERT_TRUE(cache->reset({}).has_value());
  EXPECT_EQ(hits(keys_of({1, 2})), 0U);
}

TEST_F(CacheLife, stored_blocks_outlive_a_clear_only_if_told) {
  make(with_storage(sizes(8), WritePolicy::write_through));
  run(1, keys_of({1, 2, 3}));
  ASSERT_EQ(cache->match(keys_of({1, 2, 3})).found[Source::device], 3U);
  cache->clear({.keep_storage = true});
  EXPECT_EQ(cache->match(keys_of({1, 2, 3})).found[Source::storage], 3U);
  run(2, keys_of({1, 2, 3, 4}));
  EXPECT_EQ(hits(keys_of({1, 2, 3, 4})), 4U);
  cache->clear({});
  EXPECT_EQ(hits(keys_of({1, 2, 3})), 0U);
  settle();
  EXPECT_EQ(hits(keys_of({1, 2, 3})), 0U);
  EXPECT_EQ(store->stat().blocks, 0U);
}

TEST_F(CacheLife, what_a_clear_removes_cannot_come_back_when_it_says_so) {
  make(with_storage(sizes(8), WritePolicy::write_through));
  run(1, keys_of({1, 2, 3}));
  store->hold_flushes(true);
  cache->clear({.wait = true});
  settle();
  EXPECT_EQ(store->stat().blocks, 0U);
  EXPECT_TRUE(cache->erasing());
  EXPECT_EQ(cache->status(), CacheStatus::clearing);
  store->fail_flushes(Errc::io_failed);
  store->hold_flushes(false);
  settle();
  EXPECT_TRUE(cache->erasing());
  EXPECT_EQ(cache->status(), CacheStatus::clearing);
  EXPECT_FALSE(cache->has_pending_work()) << "a drain does not wait for a disk that fails";
  EXPECT_LE(cache->next_deadline(), clock.now() + std::chrono::seconds{1});
  store->fail_flushes({});
  clock.advance(std::chrono::seconds{1});
  settle();
  EXPECT_FALSE(cache->erasing());
  EXPECT_EQ(cache->status(), CacheStatus::cleared);
  ASSERT_TRUE(cache->resume().has_value());
}

TEST_F(CacheLife, a_disk_that_fails_does_not_keep_a_cleared_cache_from_service) {
  make(with_storage(sizes(8), WritePolicy::write_through));
  run(1, keys_of({1, 2, 3}));
  store->hold_flushes(true);
  cache->clear({.wait = true});
  settle();
  ASSERT_EQ(cache->status(), CacheStatus::clearing);
  ASSERT_TRUE(cache->resume().has_value());
  EXPECT_TRUE(cache->erasing());
  run(2, keys_of({1, 2, 3}));
  store->hold_flushes(false);
}

TEST_F(CacheLife, a_block_that_is_being_written_at_a_clear_is_erased_too) {
  make_while_two_blocks_are_written();
  cache->clear({});
  EXPECT_TRUE(cache->erasing());
  settle();
  EXPECT_FALSE(cache->erasing());
  EXPECT_EQ(store->stat().blocks, 0U);
}

TEST_F(CacheLife, a_clear_removes_also_what_an_earlier_one_has_left_to_storage_alone) {
  make_while_two_blocks_are_written();
  cache->clear({.keep_storage = true});  // the tree forgets the blocks, and the store gets them
  release(1);
  settle();
  ASSERT_EQ(store->stat().blocks, 2U);
  cache->clear({});
  settle();
  EXPECT_EQ(store->stat().blocks, 0U) << "otherwise a block of the same key would count as stored, with these bytes";
}

TEST_F(CacheLife, storage_is_cleared_when_transfers_go_on) {
  make(with_storage(sizes(8), WritePolicy::write_through));
  run(1, keys_of({1, 2, 3}));
  cache->pause_transfers();
  cache->clear({});
  settle();
  EXPECT_TRUE(cache->erasing());
  EXPECT_EQ(hits(keys_of({1, 2, 3})), 0U);
  EXPECT_NE(cache->next_deadline(), TimePoint{}) << "nobody polls for nothing";
  cache->resume_transfers();
  settle();
  EXPECT_FALSE(cache->erasing());
  EXPECT_EQ(store->stat().blocks, 0U);
}

// ---- dropping and pinning by hand

TEST_F(CacheLife, a_prefix_can_be_dropped_up_to_what_others_share) {
  make(sizes(8, 8));
  run(1, keys_of({1, 2, 3, 4}));
  run(2, keys_of({1, 2, 9}));
  EXPECT_EQ(cache->drop(keys_of({1, 2, 3, 4})).value(), 2U);
  EXPECT_EQ(hits(keys_of({1, 2, 3, 4})), 2U);
  EXPECT_EQ(hits(keys_of({1, 2, 9})), 3U);
  EXPECT_EQ(cache->drop(keys_of({1, 2, 9})).value(), 3U);
  EXPECT_EQ(free_on_device(), 8U);
}

TEST_F(CacheLife, what_is_in_use_is_not_dropped) {
  make(sizes(8));
  run(1, keys_of({1, 2, 3}));
  ASSERT_TRUE(acquire(2, keys_of({1, 2, 3})).has_value());
  EXPECT_EQ(cache->drop(keys_of({1, 2, 3})).error(), Errc::in_use);
  EXPECT_EQ(cache->drop(keys_of({1, 2})).error(), Errc::in_use);
  EXPECT_EQ(cache->drop(keys_of({1, 7})).error(), Errc::not_found);
  release(2);
  ASSERT_TRUE(acquire(3, keys_of({1})).has_value());
  EXPECT_EQ(cache->drop(keys_of({1, 2, 3})).value(), 2U);  // down to the first block that is held
  EXPECT_EQ(hits(keys_of({1, 2, 3})), 1U);
  EXPECT_EQ(cache->drop(keys_of({1, 2})).error(), Errc::not_found);
}

TEST_F(CacheLife, pinned_blocks_stay_until_they_are_unpinned) {
  make(sizes(8));
  run(1, keys_of({1, 2, 3}));
  const PinId pin = cache->pin(keys_of({1, 2, 3, 4})).value();
  EXPECT_EQ(cache->manager().administration().pinned_blocks(), 3U);
  run(2, keys_of({11, 12, 13, 14, 15}));
  run(3, keys_of({21, 22, 23, 24, 25}));
  EXPECT_EQ(hits(keys_of({1, 2, 3})), 3U);
  EXPECT_EQ(acquire(4, keys_of({31, 32, 33, 34, 35, 36})).error(), Errc::no_room);
  ASSERT_TRUE(cache->unpin(pin).has_value());
  EXPECT_EQ(cache->unpin(pin).error(), Errc::not_found);
  run(5, keys_of({31, 32, 33, 34, 35, 36}));
  EXPECT_EQ(hits(keys_of({1, 2, 3})), 0U);
}

TEST_F(CacheLife, a_pin_cancels_evictions_under_way) {
  make(sizes(4, 8));
  run(1, keys_of({1, 2}));
  run(2, keys_of({5, 6}));
  ASSERT_TRUE(acquire(3, keys_of({8, 9})).has_value());  // blocks 1 and 2 are being swapped out
  const PinId pin = cache->pin(keys_of({1, 2})).value();
  settle();
  EXPECT_EQ(cache->match(keys_of({1, 2})).found[Source::device], 2U);  // 5 and 6 were evicted instead
  ASSERT_TRUE(cache->unpin(pin).has_value());
  EXPECT_EQ(cache->match(keys_of({1, 2})).found[Source::device], 2U);
}

TEST_F(CacheLife, a_pin_ends_with_its_time) {
  make(sizes(4));
  run(1, keys_of({1, 2}));
  ASSERT_TRUE(cache->pin(keys_of({1, 2}), clock.now() + std::chrono::seconds{5}).has_value());
  EXPECT_EQ(cache->next_deadline(), clock.now() + std::chrono::seconds{5});
  EXPECT_EQ(acquire(2, keys_of({7, 8, 9})).error(), Errc::no_room);
  clock.advance(std::chrono::seconds{5});
  poll();
  EXPECT_EQ(cache->manager().administration().pinned_blocks(), 0U);
  EXPECT_EQ(cache->next_deadline(), never);
  run(3, keys_of({7, 8, 9}));
}

TEST_F(CacheLife, pins_are_bounded) {
  ManagerConfig config = sizes(8);
  config.pinned_blocks_max = 3;
  make(config);
  run(1, keys_of({1, 2}));
  run(2, keys_of({5, 6}));
  ASSERT_TRUE(cache->pin(keys_of({1, 2})).has_value());
  EXPECT_EQ(cache->pin(keys_of({5, 6})).error(), Errc::no_room);
  EXPECT_EQ(cache->pin(keys_of({9})).error(), Errc::not_found);
  ASSERT_TRUE(cache->pin(keys_of({5})).has_value());
}

TEST_F(CacheLife, the_prefix_that_all_running_requests_share_is_known) {
  make(sizes(16));
  EXPECT_EQ(cache->common_prefix(), 0U);
  run(1, keys_of({1, 2, 3, 4}));
  ASSERT_TRUE(acquire(2, keys_of({1, 2, 3, 4})).has_value());
  EXPECT_EQ(cache->common_prefix(), 4U);
  run(3, keys_of({1, 2, 9}));
  ASSERT_TRUE(acquire(4, keys_of({1, 2, 9})).has_value());
  EXPECT_EQ(cache->common_prefix(), 2U);
  ASSERT_TRUE(acquire(5, keys_of({7})).has_value());
  EXPECT_EQ(cache->common_prefix(), 0U);
}

// ---- events and counts

TEST_F(CacheLife, events_tell_what_each_tier_can_serve_once_and_in_order) {
  make(sizes(2, 2));
  cache->record_events();
  run(1, keys_of({1, 2}));
  const auto first = taken();
  ASSERT_EQ(first.size(), 2U);
  EXPECT_EQ(first[0].kind, KvEvent::Kind::stored);
  EXPECT_EQ(first[0].key, keys_of({1, 2})[0]);
  EXPECT_EQ(first[0].parent, std::nullopt);
  EXPECT_EQ(first[1].key, keys_of({1, 2})[1]);
  EXPECT_EQ(first[1].parent, keys_of({1, 2})[0]);
  EXPECT_EQ(first[1].depth, 1U);
  EXPECT_TRUE(taken().empty());

  run(2, keys_of({5, 6}));  // swaps 1 and 2 out; 5 and 6 arrive
  std::map<std::pair<Source, BlockKey>, int> served;
  for (const KvEvent& event : first) ++served[{event.source, event.key}];
  for (const KvEvent& event : taken()) {
    const int change = event.kind == KvEvent::Kind::stored ? 1 : -1;
    const int now = served[{event.source, event.key}] += change;
    EXPECT_TRUE(now == 0 || now == 1) << "lost or doubled";
  }
  for (const std::uint32_t name : {0U, 1U}) {
    EXPECT_EQ((served[{Source::device, keys_of({1, 2})[name]}]), 0);
    EXPECT_EQ((served[{Source::host, keys_of({1, 2})[name]}]), 1);
    EXPECT_EQ((served[{Source::device, keys_of({5, 6})[name]}]), 1);
  }
  cache->clear({});
  const auto last = taken();
  ASSERT_EQ(last.size(), 1U);
  EXPECT_EQ(last[0].kind, KvEvent::Kind::cleared);
}

TEST_F(CacheLife, events_tell_of_known_blocks_that_are_computed_again) {
  make(sizes(2, 4));
  run(1, keys_of({1, 2}));
  run(2, keys_of({5, 6}));
  ASSERT_EQ(cache->match(keys_of({1, 2})).found[Source::host], 2U);
  cache->record_events();
  const auto keys = keys_of({1, 2});
  AcquireRequest wanted = request(3, keys);
  wanted.farthest_source = Source::device;
  leases[3] = cache->acquire(wanted).value();
  settle();
  (void)taken();
  ASSERT_TRUE(commit(3, keys).has_value());
  const auto told = taken();
  ASSERT_EQ(told.size(), 2U);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(told[i].kind, KvEvent::Kind::stored);
    EXPECT_EQ(told[i].source, Source::device);
    EXPECT_EQ(told[i].key, keys[i]);
  }
}

TEST_F(CacheLife, counters_only_grow_and_each_reader_subtracts_what_it_read_before) {
  make(sizes(2));
  run(1, keys_of({1, 2}));
  const ManagerStats before = cache->stats();
  EXPECT_EQ(before.acquired, 1U);
  run(2, keys_of({3}));
  for (int reader = 0; reader < 2; ++reader) {
    EXPECT_EQ(cache->stats().acquired, 2U);
    const ManagerStats meanwhile = cache->stats() - before;
    EXPECT_EQ(meanwhile.acquired, 1U);
    EXPECT_EQ(meanwhile.evicted_device, 1U);
  }
}

TEST_F(CacheLife, tokens_asked_are_counted_by_where_they_were_found_and_preempted_requests_apart) {
  ManagerConfig config = with_storage(sizes(4, 4), WritePolicy::write_through);
  config.groups.emplace_back().block_tokens = 16;
  make(config);
  run(1, keys_of({1, 2, 3}));
  run(2, keys_of({1, 2, 4}));  // two hits on the device
  RequestTotals totals = cache->stats().requests;
  EXPECT_EQ(totals.requests, 2U);
  EXPECT_EQ(totals.asked, 6U * 16);
  EXPECT_EQ(totals.found[Source::device], 2U * 16);
  EXPECT_EQ(totals.miss, 4U * 16);

  // The request is preempted before all of its blocks are computed, and comes back. Its last block is partly filled and has no
  // key.
  ASSERT_TRUE(acquire(3, keys_of({1, 2, 5})).has_value());
  settle();
  ASSERT_TRUE(commit(3, keys_of({1, 2})).has_value());
  release(3);
  const auto keys = keys_of({1, 2, 5});
  AcquireRequest again = request(3, keys, 1);
  again.preempted = true;
  again.external_units = 1;
  leases[3] = cache->acquire(again).value();
  settle();
  EXPECT_TRUE(stats(3).preempted);
  const ManagerStats now = cache->stats();
  EXPECT_EQ(now.requests.requests, 3U);
  EXPECT_EQ(now.preempted.requests, 1U);
  EXPECT_EQ(now.preempted.asked, 3U * 16);
  EXPECT_EQ(now.preempted.found[Source::device], 2U * 16);
  EXPECT_EQ(now.preempted.external, 1U * 16);
  release(3);

  // Blocks from lower tiers count when they have arrived, not earlier.
  run(4, keys_of({11, 12, 13, 14}));
  const RequestTotals before = cache->stats().requests;
  ASSERT_TRUE(acquire(5, keys_of({1, 2})).has_value());
  ASSERT_FALSE(ready(5));
  EXPECT_EQ(cache->stats().requests.requests, before.requests);
  settle();
  totals = difference(cache->stats().requests, before);
  EXPECT_EQ(totals.asked, 2U * 16);
  EXPECT_EQ(totals.found.sum() + totals.external + totals.miss, totals.asked);
  EXPECT_EQ(totals.found[Source::host], 2U * 16);
}

// ---- pausing

TEST_F(CacheLife, paused_transfers_start_when_they_are_resumed) {
  make(sizes(4, 8));
  run(1, keys_of({1, 2, 3, 4}));
  cache->pause_transfers();
  ASSERT_TRUE(acquire(2, keys_of({5, 6})).has_value());
  settle();
  EXPECT_FALSE(ready(2));
  EXPECT_EQ(cache->transfers_in_flight(), 0U);
  cache->resume_transfers();
  EXPECT_EQ(cache->transfers_in_flight(), 1U);
  EXPECT_TRUE(ready_when_settled(2));
}

}  // namespace
}  // namespace terrace::test
