// Reads of stored blocks into the host arena. The test acts as their reader and as the store.

#include "runtime/cache/pool/stored_reads.hpp"
#include "runtime/cache/control/cache_manager.hpp"
#include "runtime/cache/types/config.hpp"
#include "runtime/cache/types/kv_events.hpp"
#include "tests/radix/key_helpers.hpp"
#include "tests/runtime/fixture.hpp"
#include "transfer/device/transfer.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace terrace::test {
namespace {

using std::chrono::seconds;
using Kind = StoredReads::Result::Kind;
using Overtaken = StoredReads::Overtaken;
using Reader = StoredReads::Reader;
using ReadId = StoredReads::ReadId;
using namespace std::chrono_literals;

ManagerConfig sizes_of(std::uint32_t host_blocks, std::uint32_t staging_blocks) {
  ManagerConfig config;
  config.storage = true;
  config.pools[0].device_blocks = 4;
  config.pools[0].host_blocks = host_blocks;
  config.pools[0].staging_blocks = staging_blocks;
  return config;
}

/// The parts of a pool around its stored reads, with six stored blocks.
struct Pool {
  Pool(std::uint32_t host_blocks, std::uint32_t staging_blocks, InclusionPolicy inclusion)
      : config{[&] {
          ManagerConfig made = sizes_of(host_blocks, staging_blocks);
          made.inclusion = inclusion;
          return made;
        }()} {
    for (std::uint32_t name = 1; name <= 6; ++name) {
      std::optional<std::uint64_t> number;
      const Prefix prefix = residency.restore({}, keys_of({name}), {}, {}, std::span{&number, 1}).prefix;
      residency.pin(prefix);
      blocks.push_back(prefix.last());
    }
  }

  ManagerConfig config;
  ManagerStats stats;
  KvEvents events;
  WriteBudget budget;
  Actions actions;
  Residency residency{config, config.pools[0], events};
  DeferredEviction deferred_eviction{config, residency, stats};
  LinkGuard link;
  PoolPart part{config, residency, deferred_eviction, actions, stats};
  SwapOuts swap_outs{part, link};
  FlushScheduler flushes{actions, {}};
  StorageWriter storage_writer{part, config.pools[0], swap_outs, budget, flushes};
  HostSlotAllocator host_slots{part, swap_outs, storage_writer};
  SharedTotals shared;
  StoredReads reads{part, config.pools[0], host_slots, shared};
  std::vector<BlockRef> blocks;
};

class StoredReadsTest : public ::testing::Test {
 protected:
  void make(std::uint32_t host_blocks, std::uint32_t staging_blocks, InclusionPolicy inclusion = InclusionPolicy::non_inclusive) {
    pool = std::make_unique<Pool>(host_blocks, staging_blocks, inclusion);
  }
  /// Asks for the block with this index. That is also its part.
  ReadId want(std::uint32_t block, Urgency urgency = Urgency::request, Overtaken overtaken = Overtaken::is_read) {
    StoredReads::Order order;
    order.reader = reader;
    order.part = block;
    order.block = pool->blocks[block];
    order.urgency = urgency;
    order.overtaken = overtaken;
    return pool->reads.add(order);
  }
  /// Returns the blocks whose reads are ordered now.
  std::vector<std::uint32_t> ordered() {
    (void)pool->reads.pump();
    pool->reads.check_invariants();
    std::vector<std::uint32_t> found;
    for (const ReadOrder& order : std::exchange(pool->actions.reads, {})) {
      for (std::uint32_t i = 0; i < pool->blocks.size(); ++i) {
        if (pool->residency.tree().key(pool->blocks[i]) != order.key) continue;
        tokens[i] = order.token;
        found.push_back(i);
      }
    }
    return found;
  }
  /// The store ends the read of a block.
  void end(std::uint32_t block, ErrorCode error = {}) {
    pool->reads.on_read(tokens[block], error);
    pool->reads.check_invariants();
    pool->residency.check_invariants();
  }
  std::vector<StoredReads::Result> results() {
    std::vector<StoredReads::Result> taken;
    pool->reads.take_results(taken);
    return taken;
  }
  [[nodiscard]] CopyState host_copy(std::uint32_t block) const {
    return pool->residency.copy(pool->blocks[block], Tier::host).state();
  }
  [[nodiscard]] std::uint64_t staging_free() const { return pool->residency.staging_free(); }
  static TimePoint at(int second) { return TimePoint{} + seconds{second}; }

  Reader reader{Reader::Kind::load, 7};
  std::unique_ptr<Pool> pool;
  std::uint64_t tokens[6] = {};  ///< of the last order, by block
};

using Numbers = std::vector<std::uint32_t>;

TEST_F(StoredReadsTest, give_slots_in_the_order_of_urgency_and_then_of_arrival) {
  make(0, 2);
  (void)want(0, Urgency::store);
  (void)want(1, Urgency::request);
  (void)want(2, Urgency::make_room);
  (void)want(3, Urgency::request);
  (void)want(4, Urgency::make_room);
  EXPECT_EQ(ordered(), (Numbers{1, 3}));
  EXPECT_EQ(ordered(), Numbers{}) << "there are two staging slots";
  EXPECT_EQ(pool->reads.size(), 5U);
  end(1, Errc::io_failed);
  end(3, Errc::io_failed);
  EXPECT_EQ(ordered(), (Numbers{2, 4}));
  end(2, Errc::io_failed);
  end(4, Errc::io_failed);
  EXPECT_EQ(ordered(), (Numbers{0}));
}

TEST_F(StoredReadsTest, wait_without_a_landing_slot_until_a_reader_releases_one) {
  make(0, 1);
  (void)want(0);
  (void)want(1);
  EXPECT_EQ(ordered(), (Numbers{0}));
  end(0);
  EXPECT_EQ(ordered(), Numbers{}) << "the reader copies the block on";
  const auto landed = results();
  ASSERT_EQ(landed.size(), 1U);
  EXPECT_TRUE(landed[0].landing.staging);
  pool->reads.release(pool->blocks[0], landed[0].landing);
  EXPECT_EQ(ordered(), (Numbers{1}));
}

TEST_F(StoredReadsTest, land_in_a_host_copy_if_they_can_which_is_held_for_the_reader) {
  make(1, 1);
  (void)want(0);
  (void)want(1);
  EXPECT_EQ(ordered(), (Numbers{0, 1}));
  EXPECT_EQ(host_copy(0), CopyState::filling);
  EXPECT_EQ(host_copy(1), CopyState::absent) << "it lands in staging";
  end(1);
  end(0);
  const auto landed = results();
  ASSERT_EQ(landed.size(), 2U);
  EXPECT_EQ(landed[0].part, 1U);
  EXPECT_TRUE(landed[0].landing.staging);
  EXPECT_EQ(landed[1].part, 0U);
  EXPECT_EQ(landed[1].kind, Kind::landed);
  EXPECT_EQ(landed[1].reader, reader);
  EXPECT_FALSE(landed[1].landing.staging);
  EXPECT_EQ(landed[1].landing.slot, pool->residency.copy(pool->blocks[0], Tier::host).slot());
  EXPECT_EQ(host_copy(0), CopyState::busy);
  pool->reads.release(pool->blocks[0], landed[1].landing);
  EXPECT_EQ(host_copy(0), CopyState::ready);
  EXPECT_EQ(staging_free(), 0U);
  pool->reads.release(pool->blocks[1], landed[0].landing);
  EXPECT_EQ(staging_free(), 1U);
}

TEST_F(StoredReadsTest, evict_no_host_copy_that_must_be_saved_first) {
  make(1, 2);
  pool->config.write_policy = WritePolicy::write_back;
  Residency& residency = pool->residency;
  const Prefix unsaved = residency.extend_pinned({}, keys_of({9}), {}, {});
  residency.begin_fill(unsaved.last(), Tier::host, residency.take_host(Residency::PrefixOrder::from_begin).value());
  residency.publish(unsaved.last(), Tier::host);
  residency.unpin(unsaved);
  (void)want(0);
  EXPECT_EQ(ordered(), (Numbers{0}));
  EXPECT_EQ(host_copy(0), CopyState::absent) << "it lands in staging";
  EXPECT_TRUE(residency.usable(unsaved.last(), Tier::host));
  EXPECT_FALSE(residency.saved(unsaved.last()));
}

TEST_F(StoredReadsTest, land_in_staging_under_exclusive_copies) {
  make(2, 1, InclusionPolicy::exclusive);
  (void)want(0);
  (void)want(1);
  EXPECT_EQ(ordered(), (Numbers{0}));
  EXPECT_EQ(host_copy(0), CopyState::absent);
}

TEST_F(StoredReadsTest, that_are_cancelled_while_they_wait_leave_the_queue_at_any_place) {
  make(0, 1);
  const ReadId ids[] = {want(0), want(1), want(2), want(3), want(4)};
  pool->reads.cancel(ids[2]);  // in the middle
  pool->reads.cancel(ids[0]);  // the first
  pool->reads.cancel(ids[4]);  // the last
  pool->reads.check_invariants();
  EXPECT_EQ(pool->reads.size(), 2U);
  EXPECT_EQ(ordered(), (Numbers{1}));
  end(1, Errc::io_failed);
  EXPECT_EQ(ordered(), (Numbers{3}));
  end(3, Errc::io_failed);
  EXPECT_EQ(results().size(), 2U) << "there is no result for the others";
  EXPECT_EQ(pool->reads.size(), 0U);
}

TEST_F(StoredReadsTest, that_are_cancelled_while_storage_reads_keep_their_slots_until_it_has_ended) {
  make(1, 1);
  const ReadId to_host = want(0);
  const ReadId to_staging = want(1);
  (void)want(2);
  ASSERT_EQ(ordered(), (Numbers{0, 1}));
  pool->reads.cancel(to_host);
  pool->reads.cancel(to_staging);
  EXPECT_EQ(pool->reads.size(), 3U);
  EXPECT_EQ(host_copy(0), CopyState::filling);
  EXPECT_EQ(ordered(), Numbers{});
  end(0);
  EXPECT_EQ(host_copy(0), CopyState::ready) << "it goes no further than the host";
  end(1);
  EXPECT_EQ(staging_free(), 1U);
  EXPECT_TRUE(results().empty());
  EXPECT_EQ(ordered(), (Numbers{2}));
}

TEST_F(StoredReadsTest, that_fail_after_they_were_cancelled_free_their_slots) {
  make(1, 1);
  const ReadId to_host = want(0);
  const ReadId to_staging = want(1);
  ASSERT_EQ(ordered(), (Numbers{0, 1}));
  pool->reads.cancel(to_host);
  pool->reads.cancel(to_staging);
  end(0, Errc::io_failed);
  end(1, Errc::corrupt);
  EXPECT_TRUE(results().empty());
  EXPECT_EQ(host_copy(0), CopyState::absent);
  EXPECT_EQ(pool->residency.host_free(), 1U);
  EXPECT_EQ(staging_free(), 1U);
}

TEST_F(StoredReadsTest, that_fail_say_why_and_free_their_slots) {
  for (const ErrorCode error :
       {make_error_code(Errc::not_found), make_error_code(Errc::corrupt), make_error_code(Errc::io_failed)}) {
    make(1, 1);
    (void)want(0);
    (void)want(1);
    ASSERT_EQ(ordered(), (Numbers{0, 1}));
    end(0, error);
    end(1, error);
    const auto failed = results();
    ASSERT_EQ(failed.size(), 2U);
    for (const StoredReads::Result& result : failed) {
      EXPECT_EQ(result.kind, Kind::failed);
      EXPECT_EQ(result.error, error);
    }
    EXPECT_EQ(host_copy(0), CopyState::absent);
    EXPECT_EQ(pool->residency.host_free(), 1U);
    EXPECT_EQ(staging_free(), 1U);
    EXPECT_EQ(pool->reads.size(), 0U);
  }
}

TEST_F(StoredReadsTest, that_the_store_answers_at_once_have_one_result_each) {
  make(0, 1);
  for (std::uint32_t block = 0; block < 6; ++block) (void)want(block);
  for (std::uint32_t block = 0; block < 6; ++block) {
    ASSERT_EQ(ordered(), (Numbers{block}));
    end(block);
    const auto landed = results();
    ASSERT_EQ(landed.size(), 1U);
    EXPECT_EQ(landed[0].part, block);
    pool->reads.release(pool->blocks[block], landed[0].landing);
  }
  EXPECT_FALSE(pool->reads.pump());
  EXPECT_EQ(pool->reads.size(), 0U);
}

TEST_F(StoredReadsTest, of_a_block_that_has_come_to_the_host_are_given_back_or_read_into_staging) {
  make(1, 2);
  (void)want(0);
  ASSERT_EQ(ordered(), (Numbers{0}));
  (void)want(0, Urgency::request, Overtaken::is_given_back);
  EXPECT_EQ(ordered(), Numbers{});
  const auto given_back = results();
  ASSERT_EQ(given_back.size(), 1U);
  EXPECT_EQ(given_back[0].kind, Kind::given_back);
  EXPECT_EQ(given_back[0].part, 0U);
  (void)want(0);
  EXPECT_EQ(ordered(), (Numbers{0}));
  EXPECT_EQ(staging_free(), 1U);
}

TEST_F(StoredReadsTest, of_a_block_that_storage_has_lost_are_given_back_or_left_to_storage) {
  make(0, 2);
  (void)want(0, Urgency::request, Overtaken::is_given_back);
  (void)want(0);
  (void)want(1, Urgency::request, Overtaken::is_given_back);
  pool->residency.forget_stored(pool->blocks[0]);
  EXPECT_EQ(ordered(), (Numbers{0, 1}));
  const auto given_back = results();
  ASSERT_EQ(given_back.size(), 1U);
  EXPECT_EQ(given_back[0].kind, Kind::given_back);
}

TEST_F(StoredReadsTest, name_each_reader_once_whose_deadline_has_passed) {
  make(0, 1);
  const Reader load{Reader::Kind::load, 3};
  const Reader copy{Reader::Kind::named_copy, 3};
  EXPECT_EQ(pool->reads.next_deadline(), never);
  pool->reads.set_deadline(load, at(20));
  pool->reads.set_deadline(copy, at(10));
  pool->reads.set_deadline({Reader::Kind::load, 4}, never);
  EXPECT_EQ(pool->reads.next_deadline(), at(10));
  std::vector<Reader> late{load};
  pool->reads.take_late(at(9), late);
  EXPECT_TRUE(late.empty());
  pool->reads.take_late(at(10), late);
  EXPECT_EQ(late, std::vector{copy});
  pool->reads.take_late(at(10), late);
  EXPECT_TRUE(late.empty());
  EXPECT_EQ(pool->reads.next_deadline(), at(20));
  pool->reads.set_deadline(load, at(30));  // postponed
  EXPECT_EQ(pool->reads.next_deadline(), at(30));
  pool->reads.take_late(at(20), late);
  EXPECT_TRUE(late.empty());
  pool->reads.set_deadline(load, never);
  EXPECT_EQ(pool->reads.next_deadline(), never);
  pool->reads.take_late(at(100), late);
  EXPECT_TRUE(late.empty());
}

// ---- reads of storage that are late, or that fail when nothing waits for them any more. There is only the manager; the test
// acts as link and disk.

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
