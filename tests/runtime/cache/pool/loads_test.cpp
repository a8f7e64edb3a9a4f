// Loads that several requests wait for, loads that no request waits for any more, and reads that are late.

#include "runtime/cache/control/cache_manager.hpp"
#include "runtime/cache/types/config.hpp"
#include "tests/runtime/fixture.hpp"
#include "transfer/device/transfer.hpp"

#include <algorithm>
#include <chrono>
#include <memory>
#include <utility>
#include <vector>

namespace terrace::test {
namespace {

using namespace std::chrono_literals;

class SharedLoads : public CacheFixture {
 protected:
  /// Blocks 1 and 2 are in the host, and other blocks fill the device.
  void make_with_full_device(ManagerConfig config) {
    config.policy = lru_policy;
    make(config);
    run(1, keys_of({1, 2}));
    run(2, keys_of({11, 12, 13, 14, 15, 16}));
    run(3, keys_of({21, 22}));
    ASSERT_EQ(cache->match(keys_of({1, 2})).found[Source::host], 2U);
    events.clear();
  }
  void acquire_until(std::uint64_t id, const std::vector<BlockKey>& keys, TimePoint deadline) {
    acquire_with(id, keys, [&](AcquireRequest& wanted) { wanted.deadline = deadline; });
  }
  /// Request 4 loads blocks 1 and 2 until this deadline. The link up stands still, and there is no other device slot.
  void make_with_load_until(TimePoint deadline) {
    make(sizes(2, 4));
    run(1, keys_of({1, 2}));
    run(2, keys_of({5, 6}));
    events.clear();
    device->stuck(Direction::swap_in, true);
    acquire_until(4, keys_of({1, 2}), deadline);
    settle();
    ASSERT_EQ(device->commands(Direction::swap_in), 1U);
  }
};

TEST_F(SharedLoads, go_on_for_requests_that_wait_for_slots_though_their_starter_is_released) {
  make_with_full_device(sizes(8, 16));
  ASSERT_EQ(cache->drop(keys_of({21, 22})).value(), 2U);
  device->stuck(Direction::swap_out, true);
  ASSERT_TRUE(acquire(4, keys_of({1, 2})).has_value());  // its load takes the two free slots
  // Both wait for slots, and together they are promised all others. Neither has slots for the blocks that are being loaded.
  ASSERT_TRUE(acquire(5, keys_of({1, 2, 31, 32})).has_value());
  ASSERT_TRUE(acquire(6, keys_of({1, 2, 41, 42, 43, 44})).has_value());
  release(4);  // the transfer of the load has not started yet
  settle();
  EXPECT_EQ(cache->match(keys_of({1, 2})).found[Source::device], 2U);
  EXPECT_EQ(totals().load_failures, 0U);
  EXPECT_EQ(totals().replans, 0U);
  EXPECT_TRUE(events.empty());
  device->stuck(Direction::swap_out, false);
  settle();
  for (const std::uint64_t id : {5U, 6U}) {
    ASSERT_TRUE(ready(id)) << id;
    EXPECT_EQ(stats(id).found[Source::host], 2U);
  }
}

TEST_F(SharedLoads, end_when_the_last_request_that_waits_for_slots_leaves) {
  make_with_full_device(sizes(8, 16));
  ASSERT_EQ(cache->drop(keys_of({21, 22})).value(), 2U);
  ASSERT_TRUE(acquire(4, keys_of({1, 2})).has_value());
  ASSERT_TRUE(acquire(5, keys_of({1, 2, 31, 32})).has_value());
  ASSERT_FALSE(ready(5));
  release(4);
  release(5);
  settle();
  EXPECT_EQ(cache->moved().swap_in.blocks, 0U);
  EXPECT_EQ(cache->manager().device_ledger().filling, 0U);
  EXPECT_EQ(cache->match(keys_of({1, 2})).found[Source::host], 2U);
  EXPECT_FALSE(cache->has_pending_work());
}

TEST_F(SharedLoads, that_end_early_change_nothing_for_a_request_with_slots_of_its_own) {
  ManagerConfig config = sizes(8, 16);
  config.evictions_in_flight_max = 1;
  make_with_full_device(config);
  // Both wait for slots, and both have asked for slots for the blocks in the host. The first one is served first.
  ASSERT_TRUE(acquire(4, keys_of({1, 2})).has_value());
  ASSERT_TRUE(acquire(5, keys_of({1, 2, 31, 32})).has_value());
  for (int i = 0; i < 20 && cache->manager().device_ledger().filling < 2; ++i) {
    device->run();
    poll();
  }
  ASSERT_EQ(cache->manager().device_ledger().filling, 2U);
  ASSERT_FALSE(ready(5));
  release(4);
  EXPECT_EQ(totals().aborted, 1U);
  settle();
  EXPECT_EQ(totals().load_failures, 2U) << "the load was cancelled";
  EXPECT_EQ(totals().replans, 0U) << "the request has kept its place in the line";
  ASSERT_TRUE(ready(5));
  EXPECT_EQ(stats(5).found[Source::host], 2U);
}

TEST_F(SharedLoads, go_on_for_a_request_without_a_deadline_though_that_of_their_starter_has_passed) {
  make_with_load_until(clock.now() + 1s);
  ASSERT_TRUE(acquire(5, keys_of({1, 2})).has_value());
  ASSERT_EQ(stats(5).joined, 2U);
  clock.advance(1s);
  settle();
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(events[0].id, RequestId{4});
  EXPECT_EQ(events[0].error, Errc::deadline_exceeded);
  EXPECT_EQ(cache->manager().device_ledger().quarantined, 0U);
  EXPECT_GT(cache->next_deadline(), clock.now() + 10s) << "only the link is looked at again";
  device->stuck(Direction::swap_in, false);
  settle();
  ASSERT_TRUE(ready(5));
  EXPECT_EQ(stats(5).found[Source::host], 2U);
  EXPECT_EQ(totals().replans, 0U);
}

TEST_F(SharedLoads, end_at_the_latest_deadline_of_those_who_joined) {
  const TimePoint last = clock.now() + 3s;
  make_with_load_until(clock.now() + 1s);
  acquire_until(5, keys_of({1, 2}), last);
  acquire_until(6, keys_of({1, 2}), clock.now() + 2s);
  clock.advance(2s);
  settle();
  EXPECT_EQ(events.size(), 2U);  // of requests 4 and 6
  EXPECT_EQ(cache->manager().device_ledger().quarantined, 0U);
  EXPECT_EQ(transfers->next_deadline(), last);
  clock.advance(1s);
  settle();
  ASSERT_EQ(events.size(), 3U);
  EXPECT_EQ(events[2].id, RequestId{5});
  EXPECT_EQ(events[2].error, Errc::deadline_exceeded);
  EXPECT_EQ(cache->manager().device_ledger().quarantined, 2U);
  EXPECT_EQ(totals().quarantined_late, 2U);
  device->stuck(Direction::swap_in, false);
}

class ReleasedLoads : public CacheFixture {};

TEST_F(ReleasedLoads, give_their_device_slots_back_though_storage_stands_still) {
  ManagerConfig config = with_storage(sizes(6), WritePolicy::write_through);
  config.loads = LoadPolicy::always;  // so that reads have no deadline
  config.pools[0].staging_blocks = 1;
  make(config);
  const auto others = keys_of({11, 12, 13, 14, 15, 16});
  run(1, keys_of({1, 2}));
  run(2, keys_of({5, 6}));
  run(3, others);
  ASSERT_EQ(cache->match(keys_of({1, 2})).found[Source::storage], 2U);
  ASSERT_EQ(cache->match(keys_of({5, 6})).found[Source::storage], 2U);
  ASSERT_EQ(cache->drop(others).value(), 6U);
  cache->pause_transfers();  // storage answers nothing
  ASSERT_TRUE(acquire(4, keys_of({1, 2})).has_value());
  ASSERT_TRUE(acquire(5, keys_of({5, 6})).has_value());
  ASSERT_EQ(free_on_device(), 2U);
  release(5);  // none of its blocks has a slot of the host arena: they wait behind the second block of the other request
  EXPECT_EQ(free_on_device(), 4U);
  cache->manager().check_invariants();
  release(4);
  EXPECT_EQ(free_on_device(), 6U);
  EXPECT_EQ(cache->manager().host_ledger().held, 1U) << "storage may still write into this slot of the arena";
  EXPECT_EQ(cache->manager().stats().loads_late, 0U);
  cache->resume_transfers();
  settle();
  EXPECT_EQ(cache->manager().host_ledger().held, 0U);
  EXPECT_FALSE(cache->has_pending_work());
}

// Reads of storage that are late, or that fail when nothing waits for them any more. There is only the manager; the test acts as
// link and disk.

class LateReads : public testing::Test {
 protected:
  static ManagerConfig config(std::uint32_t device_blocks, std::uint32_t host_blocks, InclusionPolicy inclusion) {
    ManagerConfig made = with_storage(sizes(device_blocks, host_blocks, inclusion), WritePolicy::write_through);
    made.pools[0].staging_blocks = 8;
    made.unit_prefill_seconds = 0.010;
    return made;
  }
  void make(std::uint32_t device_blocks, std::uint32_t host_blocks, InclusionPolicy inclusion = InclusionPolicy::non_inclusive) {
    manager = std::make_unique<CacheManager>(config(device_blocks, host_blocks, inclusion));
    manager->note_time(now);
  }
  /// Carries out all orders, except that reads are kept in `reads` and copies up to the device in `swap_ins`.
  void carry_out() {
    for (bool any = true; any;) {
      Actions& actions = manager->actions();
      const auto transfers = std::exchange(actions.transfers, {});
      const auto writes = std::exchange(actions.writes, {});
      reads.insert(reads.end(), actions.reads.begin(), actions.reads.end());
      const auto flushes = std::exchange(actions.flushes, {});
      actions.clear();
      any = !writes.empty() || !flushes.empty();
      for (const Transfer& transfer : transfers) {
        if (transfer.direction == Direction::swap_in) {
          swap_ins.push_back(transfer);
        } else {
          for (const SlotRun& run : transfer.runs) {
            for (std::uint32_t i = 0; i < run.count; ++i) staged.emplace_back(run.destination.value() + i);
          }
          arrive(transfer);
          any = true;
        }
      }
      for (const WriteOrder& order : writes) {
        manager->on_store({StoreEvent::Kind::written, order.token, order.block.key, {}, {}});
      }
      for (const std::uint64_t round : flushes) manager->on_store({StoreEvent::Kind::flushed, round, {}, {}, {}});
      manager->settle_and_reclaim();
    }
  }
  void arrive(const Transfer& transfer) {
    TransferEvent event;
    event.id = transfer.id;
    event.direction = transfer.direction;
    event.outcomes.assign(block_count(transfer.runs), BlockOutcome::done);
    manager->on_transfer(std::move(event));
  }
  void bring_up() {
    for (const Transfer& transfer : std::exchange(swap_ins, {})) arrive(transfer);
    manager->settle_and_reclaim();
    carry_out();
  }
  void end_reads(ErrorCode error) {
    for (const ReadOrder& read : std::exchange(reads, {})) {
      manager->on_store({StoreEvent::Kind::read, read.token, read.key, error, {}});
      manager->check_invariants();
    }
    manager->settle_and_reclaim();
    carry_out();
  }
  void pass(Duration time) {
    now += time;
    manager->on_time(now);
    manager->settle_and_reclaim();
    carry_out();
  }
  void acquire(std::uint64_t id, const std::vector<BlockKey>& keys) {
    ASSERT_TRUE(manager->acquire(request_for(id, keys)).has_value());
    carry_out();
  }
  void commit_and_release(std::uint64_t id, const std::vector<BlockKey>& keys) {
    ASSERT_EQ(manager->requests().state(RequestId{id}), RequestState::ready);
    ASSERT_TRUE(manager->requests().commit(RequestId{id}, keys, Fence{}).has_value());
    manager->settle();
    carry_out();
    ASSERT_TRUE(manager->requests().release(RequestId{id}, Fence{}).has_value());
    manager->settle();
    carry_out();
  }
  void run(std::uint64_t id, const std::vector<BlockKey>& keys) {
    acquire(id, keys);
    commit_and_release(id, keys);
  }

  TimePoint now = TimePoint{} + 1h;
  std::unique_ptr<CacheManager> manager;
  std::vector<ReadOrder> reads;
  std::vector<Transfer> swap_ins;
  std::vector<SlotId> staged;  ///< slots of host memory that received swap-outs
};

TEST_F(LateReads, are_due_after_twice_the_time_that_computing_what_storage_has_takes) {
  make(3, 0);
  run(1, keys_of({1, 2, 3}));
  run(2, keys_of({9}));  // takes the slot of the third block
  acquire(3, keys_of({1, 2, 3}));
  ASSERT_EQ(reads.size(), 1U);
  EXPECT_EQ(manager->next_deadline(), now + 20ms + 2 * 10ms) << "the two blocks on the device are not computed in any case";
  end_reads({});
  bring_up();
  commit_and_release(3, keys_of({1, 2, 3}));
}

TEST_F(LateReads, that_several_requests_wait_for_are_due_when_the_most_patient_of_them_says) {
  make(8, 0);
  run(1, keys_of({1, 2, 3, 4}));
  run(2, keys_of({11, 12, 13, 14, 15, 16, 17, 18}));
  acquire(3, keys_of({1}));
  ASSERT_EQ(reads.size(), 1U);
  ASSERT_EQ(manager->next_deadline(), now + 20ms + 2 * 10ms);
  acquire(4, keys_of({1, 2, 3, 4}));
  ASSERT_EQ(reads.size(), 4U);
  EXPECT_EQ(manager->next_deadline(), now + 20ms + 2 * 40ms);
  pass(50ms);
  EXPECT_EQ(manager->stats().loads_late, 0U);
  end_reads({});
  bring_up();
  EXPECT_EQ(manager->requests().request_stats(RequestId{4})->found[Source::storage], 4U);
  commit_and_release(4, keys_of({1, 2, 3, 4}));
  commit_and_release(3, keys_of({1}));
}

TEST_F(LateReads, are_not_put_off_by_one_request_after_the_other) {
  make(8, 0);
  run(1, keys_of({1, 2}));
  run(2, keys_of({11, 12, 13, 14, 15, 16, 17, 18}));
  acquire(3, keys_of({1, 2}));
  const TimePoint due = now + 20ms + 2 * 20ms;
  for (std::uint64_t id = 4; id < 7; ++id) {
    pass(15ms);
    acquire(id, keys_of({1, 2}));
    ASSERT_EQ(manager->requests().request_stats(RequestId{id})->joined, 2U);
    EXPECT_EQ(manager->next_deadline(), due) << "each allows as much time as the first one";
  }
  pass(15ms);
  EXPECT_EQ(manager->stats().loads_late, 2U);
  for (std::uint64_t id = 3; id < 7; ++id) commit_and_release(id, keys_of({1, 2}));
  end_reads({});
}

TEST_F(LateReads, that_fail_take_with_them_what_came_to_stand_on_their_copies) {
  make(4, 4);
  run(1, keys_of({1, 2, 3}));
  run(2, keys_of({5, 6, 7, 8}));
  run(3, keys_of({11, 12, 13, 14}));
  acquire(4, keys_of({1, 2, 3, 4}));
  ASSERT_EQ(reads.size(), 3U);
  pass(1s);
  EXPECT_EQ(manager->stats().loads_late, 3U);
  commit_and_release(4, keys_of({1, 2, 3, 4}));
  // The fourth block goes to the host, where the three before it seem to be.
  run(5, keys_of({21, 22, 23, 24}));
  ASSERT_EQ(manager->requests().match(keys_of({1, 2, 3, 4})).found[Source::device], 0U);
  end_reads(make_error_code(Errc::io_failed));
  manager->check_invariants();
  const MatchResult left = manager->requests().match(keys_of({1, 2, 3, 4}));
  EXPECT_EQ(left.found[Source::host], 0U);
  EXPECT_EQ(left.found[Source::storage], 4U);
}

TEST_F(LateReads, keep_the_slots_that_storage_reads_into_until_they_end) {
  make(4, 0);
  run(1, keys_of({1, 2, 3}));
  run(2, keys_of({5, 6, 7, 8}));
  acquire(3, keys_of({1, 2, 3}));
  ASSERT_EQ(reads.size(), 3U);
  pass(1s);
  commit_and_release(3, keys_of({1, 2, 3}));
  staged.clear();
  for (std::uint32_t id = 4; id < 8; ++id) run(id, keys_of({10 * id, 10 * id + 1, 10 * id + 2, 10 * id + 3}));
  ASSERT_FALSE(staged.empty());
  for (const ReadOrder& read : reads) EXPECT_FALSE(std::ranges::count(staged, read.into)) << read.into.value();
  end_reads({});
  for (std::uint32_t id = 8; id < 12; ++id) run(id, keys_of({10 * id, 10 * id + 1, 10 * id + 2, 10 * id + 3}));
  EXPECT_EQ(manager->host_ledger().held, 0U);
}

TEST_F(LateReads, of_a_released_request_leave_their_blocks_in_the_host) {
  make(4, 4);
  run(1, keys_of({1, 2, 3}));
  run(2, keys_of({5, 6, 7, 8}));
  run(3, keys_of({11, 12, 13, 14}));
  acquire(4, keys_of({1, 2, 3}));
  ASSERT_EQ(reads.size(), 3U);
  ASSERT_TRUE(manager->requests().release(RequestId{4}, Fence{}).has_value());
  manager->settle();
  EXPECT_EQ(manager->device_ledger().filling, 0U);
  manager->check_invariants();
  carry_out();
  end_reads({});
  EXPECT_EQ(manager->requests().match(keys_of({1, 2, 3})).found[Source::host], 3U);
  EXPECT_EQ(manager->stats().loads_late, 0U);
}

TEST_F(LateReads, do_not_cost_what_is_on_its_way_from_the_host) {
  make(4, 8);
  run(1, keys_of({1, 2, 3}));
  run(2, keys_of({5, 6, 7, 8}));
  run(3, keys_of({11, 12, 13, 14}));
  run(4, keys_of({21, 22}));  // the host evicts the third block, which is the least recently used leaf
  MatchResult found = manager->requests().match(keys_of({1, 2, 3}));
  ASSERT_EQ(found.found[Source::host], 2U);
  ASSERT_EQ(found.found[Source::storage], 1U);
  acquire(5, keys_of({1, 2}));
  acquire(6, keys_of({1, 2, 3}));
  ASSERT_EQ(reads.size(), 1U);
  pass(1s);
  EXPECT_EQ(manager->requests().state(RequestId{6}), RequestState::waiting) << "for the link, as request 5 does";
  bring_up();
  ASSERT_EQ(manager->requests().state(RequestId{6}), RequestState::ready);
  EXPECT_EQ(manager->requests().request_stats(RequestId{6})->found[Source::host], 2U);
  EXPECT_EQ(manager->requests().request_stats(RequestId{6})->miss, 1U);
  commit_and_release(6, keys_of({1, 2, 3}));
  commit_and_release(5, keys_of({1, 2}));
  end_reads({});
  manager->check_invariants();
}

using PartialLoad = LateReads;

TEST_F(PartialLoad, leaves_in_the_host_what_arrived_behind_a_block_that_did_not) {
  make(4, 8, InclusionPolicy::exclusive);
  run(1, keys_of({1, 2, 3}));
  run(2, keys_of({5, 6, 7, 8}));
  ASSERT_EQ(manager->requests().match(keys_of({1, 2, 3})).found[Source::host], 3U);
  acquire(3, keys_of({1, 2, 3}));
  ASSERT_EQ(swap_ins.size(), 1U);
  TransferEvent event;
  event.id = swap_ins.front().id;
  event.direction = Direction::swap_in;
  event.outcomes = {BlockOutcome::failed, BlockOutcome::done, BlockOutcome::done};
  swap_ins.clear();
  manager->on_transfer(std::move(event));
  manager->check_invariants();
  const MatchResult left = manager->requests().match(keys_of({1, 2, 3}));
  EXPECT_EQ(left.found[Source::device], 0U);
  EXPECT_EQ(left.found[Source::host], 3U);
  manager->settle_and_reclaim();
  carry_out();
  bring_up();
  commit_and_release(3, keys_of({1, 2, 3}));
}

}  // namespace
}  // namespace terrace::test
