#include "transfer/engine/ranked_transfers.hpp"
#include "base/random.hpp"
#include "terrace/device.hpp"
#include "tests/simulated/simulated_device.hpp"
#include "tests/transfer/support.hpp"
#include "transfer/device/transfer.hpp"
#include "transfer/engine/transfer_engine.hpp"
#include "transfer/host/host_arena.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

/// Several engines under one control plane, all on one thread: each rank moves when the test says so.
namespace terrace {
namespace {

using enum Direction;
using enum Urgency;
using std::chrono::milliseconds;
using std::chrono::seconds;
using test::fill;
using test::holds;
using test::run;
using test::transfer;

constexpr std::uint32_t ranks = 3;
constexpr std::uint32_t ranked_slots = 16;
constexpr std::uint64_t share_bytes = 64;

/// The pattern on rank r of the block that was first in device slot s.
std::uint64_t seed_of(std::uint32_t rank, std::uint32_t slot) { return 1000 * (rank + 1) + slot; }

class RankedTransfersTest : public testing::Test {
 protected:
  explicit RankedTransfersTest(RankPayload payload = RankPayload::sharded) : payload_{payload} {
    const bool sharded = payload == RankPayload::sharded;
    std::vector<Device*> pointers;
    std::vector<RankedTransfers::Rank> ports;
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      PoolMemory pool{.slots = ranked_slots, .host = &arena_};
      if (sharded) pool.share = {Bytes{share_bytes * rank}, Bytes{share_bytes}};
      devices_.push_back(std::make_unique<SimulatedDevice>(std::span{&pool, 1}));
      pointers.push_back(devices_.back().get());
      TransferSchedulerConfig scheduler_config;
      scheduler_config.pieces.bytes = Bytes{4096};
      engines_.push_back(std::make_unique<TransferEngine>(scheduler_config, *devices_.back(), clock_, waker_));
      ports.push_back({"rank " + std::to_string(rank), engines_.back().get()});
    }
    group_.emplace(std::move(pointers));
    transfers_.emplace(std::move(ports), clock_, waker_, RankedTransfersOptions{.payload = payload});
    group_->launch([sharded](std::uint32_t rank, BlockAccess& access) {
      std::vector<std::byte> scratch(share_bytes * ranks);
      for (std::uint32_t slot = 0; slot < ranked_slots; ++slot) {
        fill(access.write_target(SlotId{slot}, scratch), seed_of(sharded ? rank : 0, slot));
        access.written(SlotId{slot}, scratch);
      }
    });
    for (const auto& device : devices_) device->run();
  }

  std::vector<TransferEvent> poll() {
    std::vector<TransferEvent> events;
    transfers_->poll(events);
    transfers_->check_invariants();
    return events;
  }
  /// Lets the ranks in the mask run until nothing moves on them.
  std::vector<TransferEvent> run_ranks(std::uint32_t mask = 0b111) {
    std::vector<TransferEvent> all;
    for (bool moved = true; moved;) {
      moved = false;
      std::ranges::move(poll(), std::back_inserter(all));
      for (std::uint32_t rank = 0; rank < ranks; ++rank) {
        if ((mask >> rank & 1) == 0) continue;
        moved |= !devices_[rank]->step_options().empty();
        devices_[rank]->run();
      }
    }
    std::ranges::move(poll(), std::back_inserter(all));
    return all;
  }
  /// The content of the device slot on each rank.
  std::vector<std::vector<std::byte>> on_device(std::uint32_t slot) {
    std::vector<std::vector<std::byte>> found(ranks);
    group_->launch([&](std::uint32_t rank, BlockAccess& access) {
      std::vector<std::byte> scratch(share_bytes * ranks);
      const auto bytes = access.read(SlotId{slot}, scratch);
      found[rank].assign(bytes.begin(), bytes.end());
    });
    for (const auto& device : devices_) device->run();
    return found;
  }
  void wipe(std::uint32_t slot) {
    group_->launch([=](std::uint32_t, BlockAccess& access) {
      std::vector<std::byte> scratch(share_bytes * ranks);
      std::ranges::fill(access.write_target(SlotId{slot}, scratch), std::byte{0xEE});
      access.written(SlotId{slot}, scratch);
    });
    for (const auto& device : devices_) device->run();
  }
  std::span<std::byte> share(std::uint32_t rank, std::uint32_t host_slot) {
    return arena_.block(SlotId{host_slot}).subspan(rank * share_bytes, share_bytes);
  }

  const RankPayload payload_;
  ManualClock clock_;
  test::CountingWaker waker_;
  HostArena arena_{ranked_slots, Bytes{share_bytes * ranks}, Bytes{share_bytes * ranks * 5}};
  std::vector<std::unique_ptr<SimulatedDevice>> devices_;
  std::vector<std::unique_ptr<TransferEngine>> engines_;
  std::optional<RankDevices> group_;
  std::optional<RankedTransfers> transfers_;
};

TEST_F(RankedTransfersTest, move_every_ranks_share_of_a_block_down_and_up) {
  transfers_->submit(transfer(1, swap_out, request, {run(0, 4, 3), run(9, 0, 1)}));
  std::vector<TransferEvent> events = run_ranks();
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(events[0].outcomes, std::vector(4, BlockOutcome::done));
  EXPECT_EQ(events[0].moved, Bytes{4 * share_bytes * ranks});
  EXPECT_FALSE(events[0].runs.empty());
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    for (std::uint32_t i = 0; i < 3; ++i) EXPECT_TRUE(holds(share(rank, 4 + i), seed_of(rank, i)));
    EXPECT_TRUE(holds(share(rank, 0), seed_of(rank, 9)));
  }
  wipe(12);
  transfers_->submit(transfer(2, swap_in, request, {run(5, 12, 1)}));
  events = run_ranks();
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(events[0].direction, swap_in);
  const auto up = on_device(12);
  for (std::uint32_t rank = 0; rank < ranks; ++rank) EXPECT_TRUE(holds(up[rank], seed_of(rank, 1)));
  EXPECT_TRUE(transfers_->idle());
}

TEST_F(RankedTransfersTest, are_done_when_the_last_rank_has_acknowledged) {
  transfers_->submit(transfer(1, swap_out, request, {run(0, 0, 2)}));
  EXPECT_TRUE(run_ranks(0b001).empty());
  EXPECT_TRUE(run_ranks(0b101).empty());
  EXPECT_EQ(transfers_->health(0).transfers, 0U);
  EXPECT_EQ(transfers_->health(1).transfers, 1U);
  const std::vector<TransferEvent> events = run_ranks();
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(events[0].outcomes, std::vector(2, BlockOutcome::done));
}

TEST_F(RankedTransfersTest, say_for_a_block_what_all_ranks_together_have_come_to) {
  // One piece per block: the first block fails on rank 1, and the second one does not fail.
  devices_[1]->fail_next(swap_out);
  transfers_->submit(transfer(1, swap_out, request, {run(0, 0, 1)}));
  transfers_->submit(transfer(2, swap_out, request, {run(1, 1, 1)}));
  std::vector<TransferEvent> events = run_ranks();
  ASSERT_EQ(events.size(), 2U);
  EXPECT_EQ(events[0].outcomes, std::vector(1, BlockOutcome::failed));
  EXPECT_EQ(events[0].error, Errc::io_failed);
  EXPECT_EQ(events[1].outcomes, std::vector(1, BlockOutcome::done));
  EXPECT_FALSE(events[1].error);

  // If it is cancelled before any rank began, nothing was written. If one has begun, its blocks are unconfirmed.
  transfers_->submit(transfer(3, swap_out, request, {run(2, 2, 1)}));
  transfers_->cancel(TransferId{3});
  events = run_ranks();
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(events[0].outcomes, std::vector(1, BlockOutcome::cancelled));
  transfers_->submit(transfer(4, swap_out, request, {run(2, 2, 1)}));
  std::vector<TransferEvent> rank_0;
  engines_[0]->poll(rank_0);  // it begins only there
  transfers_->cancel(TransferId{4});
  events = run_ranks();
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(events[0].outcomes, std::vector(1, BlockOutcome::failed));
  EXPECT_EQ(events[0].error, Errc::cancelled);
}

TEST_F(RankedTransfersTest, name_a_rank_that_falls_behind_and_let_the_others_work) {
  devices_[1]->stuck(swap_out, true);
  transfers_->submit(transfer(1, swap_out, request, {run(0, 0, 1)}));
  EXPECT_TRUE(run_ranks().empty());
  EXPECT_EQ(transfers_->health(1).state, RankHealth::State::well);
  clock_.advance(seconds{2});
  EXPECT_EQ(transfers_->health(1).state, RankHealth::State::slow);
  EXPECT_EQ(transfers_->health(1).name, "rank 1");
  EXPECT_EQ(transfers_->health(1).oldest, seconds{2});
  EXPECT_EQ(transfers_->health(1).behind, seconds{2});
  EXPECT_EQ(transfers_->health(0).state, RankHealth::State::well);
  // The other direction of the same rank and the other ranks continue.
  transfers_->submit(transfer(2, swap_in, request, {run(8, 8, 1)}));
  ASSERT_EQ(run_ranks().size(), 1U);
  transfers_->submit(transfer(3, swap_out, request, {run(3, 3, 1)}));
  EXPECT_TRUE(run_ranks().empty());
  EXPECT_TRUE(holds(share(0, 3), seed_of(0, 3)));
  EXPECT_TRUE(holds(share(2, 3), seed_of(2, 3)));
  EXPECT_EQ(transfers_->health(1).transfers, 2U);
  EXPECT_EQ(transfers_->health(2).transfers, 0U);
  devices_[1]->stuck(swap_out, false);
  EXPECT_EQ(run_ranks().size(), 2U);
  EXPECT_EQ(transfers_->health(1).state, RankHealth::State::well);
  EXPECT_EQ(to_string(RankHealth::State::slow), "slow");
}

TEST_F(RankedTransfersTest, resolve_at_the_deadline_and_confirm_when_the_last_rank_lets_go) {
  devices_[1]->stuck(swap_in, true);
  Transfer made = transfer(1, swap_in, request, {run(0, 0, 2)});
  made.deadline = clock_.now() + seconds{1};
  transfers_->submit(std::move(made));
  EXPECT_TRUE(run_ranks().empty());
  EXPECT_EQ(transfers_->next_deadline(), clock_.now() + seconds{1});
  clock_.advance(seconds{1});
  std::vector<TransferEvent> events = run_ranks();
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(events[0].kind, TransferEvent::Kind::finished);
  EXPECT_EQ(events[0].outcomes, std::vector(2, BlockOutcome::unconfirmed));
  EXPECT_EQ(events[0].error, Errc::deadline_exceeded);
  EXPECT_TRUE(run_ranks().empty());
  devices_[1]->stuck(swap_in, false);
  events = run_ranks();
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(events[0].kind, TransferEvent::Kind::confirmed);
  EXPECT_TRUE(transfers_->idle());
}

/// An engine whose thread does nothing: it accepts transfers, and reports nothing until the test says so.
class FrozenPort final : public TransferPort {
 public:
  void submit(Transfer transfer) override { transfers.push_back(std::move(transfer)); }
  void raise(TransferId id, Urgency urgency) override { raised.emplace_back(id, urgency); }
  void postpone(TransferId id, TimePoint deadline) override { postponed.emplace_back(id, deadline); }
  void cancel(TransferId id) override { cancelled.push_back(id); }
  void limit(Urgency urgency, BytesPerSecond per_second) override { limits.emplace_back(urgency, per_second); }
  std::size_t poll(std::vector<TransferEvent>& out) override {
    out.insert(out.end(), events.begin(), events.end());
    const std::size_t count = events.size();
    events.clear();
    return count;
  }
  [[nodiscard]] TimePoint next_deadline() const override { return never; }
  [[nodiscard]] Fence reached() const override { return {}; }
  [[nodiscard]] Fence after_all_work() const override { return {}; }

  void say(std::uint64_t id, TransferEvent::Kind kind, std::vector<BlockOutcome> outcomes = {}) {
    TransferEvent event;
    event.id = TransferId{id};
    event.kind = kind;
    event.outcomes = std::move(outcomes);
    events.push_back(std::move(event));
  }
  std::deque<Transfer> transfers;
  std::vector<std::pair<TransferId, Urgency>> raised;
  std::vector<std::pair<TransferId, TimePoint>> postponed;
  std::vector<TransferId> cancelled;
  std::vector<std::pair<Urgency, BytesPerSecond>> limits;
  std::vector<TransferEvent> events;
};

class FrozenRanksTest : public testing::Test {
 protected:
  void submit(std::uint64_t id, TimePoint deadline = never) {
    Transfer made = transfer(id, swap_in, request, {run(0, 0, 2)});
    made.deadline = deadline;
    transfers_.submit(std::move(made));
  }
  std::vector<TransferEvent> poll() {
    std::vector<TransferEvent> events;
    transfers_.poll(events);
    transfers_.check_invariants();
    return events;
  }
  static constexpr auto finished = TransferEvent::Kind::finished;
  static constexpr auto confirmed = TransferEvent::Kind::confirmed;
  static constexpr auto done = BlockOutcome::done;
  static constexpr auto unconfirmed = BlockOutcome::unconfirmed;

  ManualClock clock_;
  test::CountingWaker waker_;
  FrozenPort a_;
  FrozenPort b_;
  RankedTransfers transfers_{{{"a", &a_}, {"b", &b_}}, clock_, waker_};
};

TEST_F(FrozenRanksTest, are_given_up_on_a_moment_after_the_deadline) {
  submit(1, clock_.now() + seconds{1});
  a_.say(1, finished, {done, done});
  EXPECT_TRUE(poll().empty());
  clock_.advance(seconds{1});
  EXPECT_TRUE(poll().empty());  // it may be about to report
  EXPECT_EQ(transfers_.next_deadline(), clock_.now() + RankedTransfersOptions{}.report_grace);
  clock_.advance(RankedTransfersOptions{}.report_grace);
  std::vector<TransferEvent> events = poll();
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(events[0].outcomes, std::vector(2, unconfirmed));
  EXPECT_EQ(events[0].error, Errc::deadline_exceeded);
  EXPECT_EQ(transfers_.next_deadline(), never);
  // A late report only ends the quarantine: first it says that something is still under way, and then that nothing is.
  b_.say(1, finished, {done, unconfirmed});
  EXPECT_TRUE(poll().empty());
  b_.say(1, confirmed);
  events = poll();
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(events[0].kind, confirmed);
  EXPECT_FALSE(events[0].runs.empty());
  EXPECT_TRUE(transfers_.idle());
}

TEST_F(FrozenRanksTest, are_waited_for_until_a_deadline_that_was_postponed) {
  const TimePoint first = clock_.now() + seconds{1};
  const TimePoint second = clock_.now() + seconds{3};
  submit(1, first);
  submit(2, first);
  a_.say(1, finished, {done, done});
  EXPECT_TRUE(poll().empty());
  transfers_.postpone(TransferId{1}, second);
  transfers_.postpone(TransferId{1}, first);  // it is later already
  transfers_.postpone(TransferId{2}, never);
  transfers_.postpone(TransferId{7}, never);
  EXPECT_EQ(a_.postponed, (std::vector{std::pair{TransferId{2}, never}}));
  EXPECT_EQ(b_.postponed, (std::vector{std::pair{TransferId{1}, second}, std::pair{TransferId{2}, never}}));
  EXPECT_EQ(transfers_.next_deadline(), second + RankedTransfersOptions{}.report_grace);
  clock_.advance(seconds{2});
  EXPECT_TRUE(poll().empty());
  clock_.advance(seconds{2});
  ASSERT_EQ(poll().size(), 1U);
  transfers_.postpone(TransferId{1}, never);  // it has been reported
  EXPECT_EQ(transfers_.next_deadline(), never);
  transfers_.check_invariants();
}

TEST_F(FrozenRanksTest, that_report_within_the_grace_are_believed) {
  submit(1, clock_.now() + seconds{1});
  a_.say(1, finished, {done, done});
  clock_.advance(seconds{1});
  EXPECT_TRUE(poll().empty());
  b_.say(1, finished, {done, BlockOutcome::cancelled});
  clock_.advance(seconds{1});
  const std::vector<TransferEvent> events = poll();
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(events[0].outcomes, (std::vector{done, BlockOutcome::failed}));
  EXPECT_TRUE(transfers_.idle());
}

TEST_F(FrozenRanksTest, may_confirm_before_the_others_have_finished) {
  submit(1);
  a_.say(1, finished, {unconfirmed, done});
  a_.say(1, confirmed);
  EXPECT_TRUE(poll().empty());
  b_.say(1, finished, {done, done});
  const std::vector<TransferEvent> events = poll();
  ASSERT_EQ(events.size(), 2U);
  EXPECT_EQ(events[0].outcomes, (std::vector{unconfirmed, done}));
  EXPECT_EQ(events[1].kind, confirmed);
}

TEST_F(FrozenRanksTest, hear_what_concerns_the_transfers_that_they_still_owe) {
  submit(1);
  submit(2);
  a_.say(1, finished, {done, done});
  EXPECT_TRUE(poll().empty());
  transfers_.raise(TransferId{1}, request);
  transfers_.cancel(TransferId{1});
  transfers_.cancel(TransferId{2});
  transfers_.cancel(TransferId{7});
  EXPECT_TRUE(a_.raised.empty());
  EXPECT_EQ(b_.raised.size(), 1U);
  EXPECT_EQ(a_.cancelled, std::vector{TransferId{2}});
  EXPECT_EQ(b_.cancelled, (std::vector{TransferId{1}, TransferId{2}}));
  transfers_.limit(store, per_second(KiB));
  EXPECT_EQ(a_.limits, (std::vector{std::pair{store, per_second(KiB)}}));
  EXPECT_EQ(b_.limits, a_.limits);
}

TEST_F(FrozenRanksTest, that_are_lost_owe_nothing_any_more) {
  submit(1);
  submit(2);
  submit(3, clock_.now() + seconds{1});
  a_.say(1, finished, {done, done});
  a_.say(3, finished, {done, unconfirmed});
  clock_.advance(seconds{2});
  ASSERT_EQ(poll().size(), 1U);  // 3, unconfirmed on both ranks
  const std::uint64_t woken = waker_.woken();
  transfers_.lose(1);
  transfers_.lose(1);
  EXPECT_GT(waker_.woken(), woken);
  std::vector<TransferEvent> events = poll();
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(events[0].id, TransferId{1});
  EXPECT_EQ(events[0].outcomes, std::vector(2, BlockOutcome::failed));
  EXPECT_EQ(events[0].error, Errc::stopped);
  EXPECT_EQ(transfers_.health(1).state, RankHealth::State::lost);
  EXPECT_EQ(transfers_.health(1).transfers, 0U);
  // It waits for what rank a still has under way. What b reports after the end is ignored.
  b_.say(2, finished, {done, done});
  a_.say(2, finished, {done, done});
  a_.say(3, confirmed);
  events = poll();
  ASSERT_EQ(events.size(), 2U);
  EXPECT_EQ(events[0].outcomes, std::vector(2, BlockOutcome::failed));
  EXPECT_EQ(events[1].kind, confirmed);
  // No block can be done by all ranks any more.
  submit(4);
  events = poll();
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(events[0].outcomes, std::vector(2, BlockOutcome::cancelled));
  EXPECT_EQ(events[0].error, Errc::stopped);
  EXPECT_EQ(a_.transfers.size(), 3U);
  EXPECT_TRUE(transfers_.idle());
}

TEST_F(FrozenRanksTest, are_idle_when_nothing_is_under_way_and_nothing_is_left_to_report) {
  submit(1);
  EXPECT_FALSE(transfers_.idle());
  a_.say(1, finished, {done, done});
  EXPECT_TRUE(poll().empty());
  EXPECT_FALSE(transfers_.idle());
  transfers_.lose(1);
  EXPECT_FALSE(transfers_.idle()) << "the transfer has failed, and nobody knows yet";
  EXPECT_EQ(poll().size(), 1U);
  EXPECT_TRUE(transfers_.idle());
  submit(2);
  EXPECT_FALSE(transfers_.idle()) << "it is refused";
  EXPECT_EQ(poll().size(), 1U);
  EXPECT_TRUE(transfers_.idle());
}

class ReplicatedRanksTest : public RankedTransfersTest {
 protected:
  ReplicatedRanksTest() : RankedTransfersTest{RankPayload::replicated} {}
};

TEST_F(ReplicatedRanksTest, copy_down_once_and_up_to_all) {
  for (std::uint32_t i = 0; i < ranks; ++i) transfers_->submit(transfer(i + 1, swap_out, request, {run(i, i, 1)}));
  // The rank with the least outstanding work copies: each rank got one.
  for (std::uint32_t rank = 0; rank < ranks; ++rank) EXPECT_EQ(transfers_->health(rank).transfers, 1U);
  EXPECT_EQ(run_ranks().size(), ranks);
  for (std::uint32_t i = 0; i < ranks; ++i) {
    EXPECT_TRUE(holds(arena_.block(SlotId{i}), seed_of(0, i)));
    wipe(i);
  }
  transfers_->submit(transfer(9, swap_in, request, {run(0, 0, ranks)}));
  ASSERT_EQ(run_ranks().size(), 1U);
  for (std::uint32_t i = 0; i < ranks; ++i) {
    for (const auto& block : on_device(i)) EXPECT_TRUE(holds(block, seed_of(0, i)));
  }
}

/// Each rank is late by up to half a second at random, for a hundred thousand steps. No rank waits for another: the first rank is
/// always in time, and after each step it has done all its work, whatever the others do.
TEST_F(RankedTransfersTest, never_wait_for_each_other) {
  Random random{17};
  TimePoint free_at[ranks] = {};
  std::uint64_t submitted = 0;
  std::uint64_t ended = 0;
  for (int step = 0; step < 100'000; ++step) {
    clock_.advance(milliseconds{random.below(20)});
    if (submitted - ended < 64) {
      const std::uint32_t slot = static_cast<std::uint32_t>(random.below(ranked_slots));
      transfers_->submit(transfer(++submitted, random.chance(0.5) ? swap_in : swap_out, request, {run(slot, slot, 1)}));
    }
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      if (clock_.now() < free_at[rank]) continue;
      if (rank > 0) free_at[rank] = clock_.now() + milliseconds{random.below(500)};
      devices_[rank]->run();
    }
    ended += poll().size();
    ended += run_ranks(0b001).size();
    ASSERT_EQ(transfers_->health(0).transfers, 0U);
  }
  EXPECT_GT(ended, 1000U);
  ended += run_ranks().size();
  EXPECT_EQ(ended, submitted);
  EXPECT_TRUE(transfers_->idle());
}

TEST(RankedTransfers, are_of_one_rank_to_sixty_four) {
  ManualClock clock;
  test::CountingWaker waker;
  FrozenPort port;
  EXPECT_THROW(RankedTransfers({}, clock, waker), std::invalid_argument);
  EXPECT_THROW(RankedTransfers(std::vector<RankedTransfers::Rank>(65, {"r", &port}), clock, waker), std::invalid_argument);
  RankedTransfers most{std::vector<RankedTransfers::Rank>(64, {"r", &port}), clock, waker};
  most.submit(transfer(1, swap_in, request, {run(0, 0, 1)}));
  EXPECT_EQ(port.transfers.size(), 64U);
}

TEST(HostShare, lies_within_a_slot) {
  HostArena arena{2, Bytes{100}};
  EXPECT_EQ(checked_size({}, arena), Bytes{100});
  EXPECT_EQ(checked_size({Bytes{40}, {}}, arena), Bytes{60});
  EXPECT_EQ(checked_size({Bytes{40}, Bytes{60}}, arena), Bytes{60});
  EXPECT_THROW((void)checked_size({Bytes{41}, Bytes{60}}, arena), std::invalid_argument);
  EXPECT_THROW((void)checked_size({Bytes{100}, {}}, arena), std::invalid_argument);
  EXPECT_THROW((void)checked_size({Bytes{~0ULL}, Bytes{2}}, arena), std::invalid_argument);
}

}  // namespace
}  // namespace terrace
