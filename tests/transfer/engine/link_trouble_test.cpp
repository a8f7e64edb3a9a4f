#include "tests/transfer/support.hpp"
#include "transfer/device/transfer.hpp"
#include "transfer/emulated/emulated_device.hpp"
#include "transfer/engine/transfer_engine.hpp"
#include "transfer/host/host_arena.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

/// The engine with a link that hangs and fails. The test advances the engine's clock. The device uses real time, and its stalls
/// are so long that they do not end, except where a test waits for their end.
namespace terrace {
namespace {

using enum Direction;
using enum Urgency;
using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::seconds;
using test::fill;
using test::holds;
using test::run;
using test::transfer;
using test::writes;

constexpr std::uint32_t troubled_slots = 16;
constexpr Bytes troubled_block{512};

using Outcomes = std::vector<BlockOutcome>;

class LinkTroubleTest : public testing::Test {
 protected:
  ~LinkTroubleTest() override { stop(); }

  /// Fills device slots with pattern 100 + slot and host slots with 200 + slot. A piece is one block.
  void start(const LinkModel& link) {
    stop();
    device_.emplace(troubled_slots, arena_, EmulatedOptions{.name = "troubled", .link = link, .faults = {}});
    TransferSchedulerConfig config;
    config.pieces = {.bytes = troubled_block, .in_flight = 2};
    transfers_.emplace(config, *device_, clock_, waker_);
    Fence last;
    for (std::uint32_t slot = 0; slot < troubled_slots; ++slot) {
      last = device_->launch(writes(slot, 100 + slot));
      fill(arena_.block(SlotId{slot}), 200 + slot);
    }
    test::await_compute(*device_, last);
  }
  void stop() {
    transfers_.reset();
    device_.reset();
  }
  void submit(Transfer made, Duration within) {
    made.deadline = clock_.now() + within;
    transfers_->submit(std::move(made));
  }
  std::vector<TransferEvent> poll() {
    std::vector<TransferEvent> events;
    transfers_->poll(events);
    transfers_->check_invariants();
    return events;
  }
  std::map<std::uint64_t, TransferEvent> await_events(std::size_t wanted) {
    std::map<std::uint64_t, TransferEvent> by_id;
    const auto collect = [this](std::vector<TransferEvent>& events) { return transfers_->poll(events); };
    for (TransferEvent& event : test::await<TransferEvent>(waker_, wanted, collect)) {
      by_id[event.id.value()] = std::move(event);
    }
    return by_id;
  }

  ManualClock clock_;
  EventFdWaker waker_;
  HostArena arena_{troubled_slots, troubled_block, troubled_block * 6};
  std::optional<EmulatedDevice> device_;
  std::optional<TransferEngine> transfers_;
};

TEST_F(LinkTroubleTest, a_stall_that_outlives_the_deadline_leaves_what_is_under_way_unconfirmed) {
  LinkModel link;
  link[swap_out] = {.stall_every = 2, .stall = hours{1}};
  start(link);
  submit(transfer(1, swap_out, request, {run(0, 0, 1)}), seconds{5});
  EXPECT_EQ(await_events(1)[1].outcomes, Outcomes{BlockOutcome::done});

  submit(transfer(2, swap_out, request, {run(4, 4, 4)}), seconds{5});
  submit(transfer(3, swap_out, request, {run(8, 8, 2)}), hours{2});
  EXPECT_TRUE(poll().empty());
  clock_.advance(seconds{5});
  const std::vector<TransferEvent> events = poll();
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(events[0].id, TransferId{2});
  EXPECT_EQ(events[0].error, Errc::deadline_exceeded);
  EXPECT_EQ(events[0].outcomes,
            (Outcomes{BlockOutcome::unconfirmed, BlockOutcome::unconfirmed, BlockOutcome::cancelled, BlockOutcome::cancelled}));
  EXPECT_FALSE(transfers_->idle()) << "two slots are in quarantine";

  // The other direction is not affected.
  submit(transfer(4, swap_in, request, {run(0, 12, 4)}), seconds{5});
  EXPECT_EQ(await_events(1)[4].outcomes, Outcomes(4, BlockOutcome::done));

  // Transfer 3 is behind the stalled stream, and never starts.
  clock_.advance(hours{2});
  const std::vector<TransferEvent> late = poll();
  ASSERT_EQ(late.size(), 1U);
  EXPECT_EQ(late[0].id, TransferId{3});
  EXPECT_EQ(late[0].outcomes, Outcomes(2, BlockOutcome::cancelled));

  while (device_->link_counts(swap_out).stalled == 0) std::this_thread::yield();  // its thread may not have started it yet
  EXPECT_EQ(device_->link_counts(swap_out), LinkCounts{.stalled = 1});
  EXPECT_EQ(device_->link_counts(swap_in), LinkCounts{});
  stop();
  for (std::uint32_t slot = 4; slot < 10; ++slot) EXPECT_TRUE(holds(arena_.block(SlotId{slot}), 200 + slot)) << slot;
}

TEST_F(LinkTroubleTest, a_stall_that_ends_after_the_deadline_confirms_once_the_bytes_have_moved) {
  // On a busy machine the stall may end before the test has looked. Then try again with a longer one.
  for (auto stall = milliseconds{50};; stall *= 2) {
    LinkModel link;
    link[swap_out] = {.stall_every = 1, .stall = stall};
    start(link);
    submit(transfer(1, swap_out, request, {run(4, 4, 1)}), seconds{5});
    EXPECT_TRUE(poll().empty());
    clock_.advance(seconds{5});
    const std::vector<TransferEvent> events = poll();
    ASSERT_EQ(events.size(), 1U);
    if (events[0].outcomes == Outcomes{BlockOutcome::done}) continue;
    EXPECT_EQ(events[0].kind, TransferEvent::Kind::finished);
    EXPECT_EQ(events[0].outcomes, Outcomes{BlockOutcome::unconfirmed});
    break;
  }
  const TransferEvent confirmed = await_events(1)[1];
  EXPECT_EQ(confirmed.kind, TransferEvent::Kind::confirmed);
  EXPECT_TRUE(holds(arena_.block(SlotId{4}), 104));
  EXPECT_TRUE(transfers_->idle());
  EXPECT_EQ(device_->link_counts(swap_out), LinkCounts{.stalled = 1});
}

TEST_F(LinkTroubleTest, a_link_that_fails_one_way_fails_the_blocks_of_that_direction_only) {
  LinkModel link;
  link[swap_in] = {.jitter_max = std::chrono::microseconds{50}, .fail_every = 3};
  start(link);
  submit(transfer(1, swap_in, request, {run(0, 0, 7)}), hours{1});
  submit(transfer(2, swap_out, request, {run(8, 8, 7)}), hours{1});
  std::map<std::uint64_t, TransferEvent> events = await_events(2);
  Outcomes expected(7, BlockOutcome::done);
  expected[2] = expected[5] = BlockOutcome::failed;
  EXPECT_EQ(events[1].outcomes, expected);
  EXPECT_EQ(events[1].error, Errc::io_failed);
  EXPECT_EQ(events[1].moved, troubled_block * 5);
  EXPECT_EQ(events[2].outcomes, Outcomes(7, BlockOutcome::done));
  EXPECT_FALSE(events[2].error);
  EXPECT_EQ(device_->link_counts(swap_in), LinkCounts{.failed = 2});
  EXPECT_EQ(device_->link_counts(swap_out), LinkCounts{});
  EXPECT_TRUE(transfers_->idle()) << "what has failed is not in quarantine";
  for (std::uint32_t slot = 8; slot < 15; ++slot) EXPECT_TRUE(holds(arena_.block(SlotId{slot}), 100 + slot)) << slot;
}

}  // namespace
}  // namespace terrace
