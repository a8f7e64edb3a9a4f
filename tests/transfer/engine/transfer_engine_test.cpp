#include "transfer/engine/transfer_engine.hpp"
#include "base/random.hpp"
#include "tests/simulated/simulated_device.hpp"
#include "tests/transfer/support.hpp"
#include "transfer/device/transfer.hpp"
#include "transfer/host/host_arena.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <vector>

/// The engine on one thread, with a device and a clock that the test advances.
namespace terrace {
namespace {

using enum Direction;
using enum Urgency;
using std::chrono::seconds;
using test::fill;
using test::holds;
using test::run;
using test::transfer;
using test::writes;

constexpr std::uint32_t slots = 32;
constexpr Bytes block_bytes{64};

class TransferEngineTest : public testing::Test {
 protected:
  TransferEngineTest() {
    for (std::uint32_t slot = 0; slot < slots; ++slot) {
      device_.launch(writes(slot, 100 + slot));
      fill(arena_.block(SlotId{slot}), 200 + slot);
    }
    device_.run();
    TransferSchedulerConfig config;
    config.pieces.bytes = block_bytes * 4;
    config.pieces.in_flight = 2;
    config.queued_blocks_max = 20;
    transfers_.emplace(config, device_, clock_, waker_);
  }

  std::vector<TransferEvent> poll() {
    std::vector<TransferEvent> events(1);  // of the caller: poll() appends
    const std::size_t appended = transfers_->poll(events);
    EXPECT_EQ(appended, events.size() - 1);
    events.erase(events.begin());
    transfers_->check_invariants();
    return events;
  }
  /// Polls and steps until nothing moves.
  std::vector<TransferEvent> poll_all() {
    std::vector<TransferEvent> events = poll();
    while (!device_.step_options().empty()) {
      device_.run();
      std::ranges::move(poll(), std::back_inserter(events));
    }
    return events;
  }
  bool host_holds(std::uint32_t slot, std::uint64_t seed) { return holds(arena_.block(SlotId{slot}), seed); }

  ManualClock clock_;
  test::CountingWaker waker_;
  HostArena arena_{slots, block_bytes, block_bytes * 7};
  SimulatedDevice device_{slots, arena_};
  std::optional<TransferEngine> transfers_;
};

TEST_F(TransferEngineTest, move_every_byte_of_a_transfer) {
  transfers_->submit(transfer(1, swap_out, request, {run(0, 10, 9), run(20, 0, 1)}));
  const std::vector<TransferEvent> events = poll_all();
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(events[0].outcomes, std::vector(10, BlockOutcome::done));
  EXPECT_EQ(events[0].moved, block_bytes * 10);
  for (std::uint32_t i = 0; i < 9; ++i) EXPECT_TRUE(host_holds(10 + i, 100 + i));
  EXPECT_TRUE(host_holds(0, 120));
  EXPECT_TRUE(transfers_->idle());
}

TEST_F(TransferEngineTest, ask_to_be_polled_for_what_nothing_wakes_them_for) {
  EXPECT_EQ(transfers_->next_deadline(), never);
  Transfer made = transfer(1, swap_out, request, {run(0, 0, 1)});
  made.deadline = clock_.now() + seconds{5};
  transfers_->submit(std::move(made));
  EXPECT_LE(transfers_->next_deadline(), clock_.now());
  poll();
  EXPECT_EQ(transfers_->next_deadline(), clock_.now() + seconds{5});
  transfers_->cancel(TransferId{1});
  EXPECT_LE(transfers_->next_deadline(), clock_.now());
}

TEST_F(TransferEngineTest, start_the_most_urgent_of_the_transfers_submitted_together) {
  transfers_->submit(transfer(1, swap_out, store, {run(0, 0, 12)}));
  transfers_->submit(transfer(2, swap_out, request, {run(20, 20, 1)}));
  transfers_->raise(TransferId{99}, request);
  poll();
  device_.step(SimulatedDevice::Part::swap_out);
  device_.step(SimulatedDevice::Part::swap_out);
  const std::vector<TransferEvent> events = poll();
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(events[0].id, TransferId{2});
}

TEST_F(TransferEngineTest, keep_no_more_under_way_than_an_urgent_transfer_may_wait_for) {
  transfers_->submit(transfer(1, swap_out, store, {run(0, 0, 20)}));
  poll();
  EXPECT_EQ(device_.commands(swap_out), 2U);
  transfers_->submit(transfer(2, swap_out, request, {run(0, 0, 20)}));
  poll();
  EXPECT_EQ(device_.commands(swap_out), 4U);
}

TEST_F(TransferEngineTest, report_a_refused_transfer_as_cancelled_whole) {
  transfers_->submit(transfer(1, swap_out, request, {run(0, 0, 20)}));
  transfers_->submit(transfer(2, swap_out, request, {run(20, 20, 3)}));
  transfers_->submit(transfer(3, swap_out, request, {}));
  const std::vector<TransferEvent> events = poll();
  ASSERT_EQ(events.size(), 2U);
  EXPECT_EQ(events[0].id, TransferId{2});
  EXPECT_EQ(events[0].outcomes, std::vector(3, BlockOutcome::cancelled));
  EXPECT_EQ(events[0].error, Errc::refused);
  EXPECT_EQ(events[1].error, Errc::invalid_argument);
  EXPECT_EQ(poll_all().size(), 1U);
}

TEST_F(TransferEngineTest, resolve_a_transfer_on_a_stuck_stream_at_its_deadline_and_confirm_it_when_it_moves_again) {
  device_.stuck(swap_in, true);
  Transfer made = transfer(1, swap_in, request, {run(0, 0, 12)});
  made.deadline = clock_.now() + seconds{1};
  transfers_->submit(std::move(made));
  EXPECT_TRUE(poll_all().empty());
  clock_.advance(seconds{1});
  std::vector<TransferEvent> events = poll();
  ASSERT_EQ(events.size(), 1U);
  std::vector<BlockOutcome> expected(8, BlockOutcome::unconfirmed);
  expected.insert(expected.end(), 4, BlockOutcome::cancelled);
  EXPECT_EQ(events[0].outcomes, expected);
  EXPECT_EQ(events[0].error, Errc::deadline_exceeded);
  EXPECT_FALSE(transfers_->idle());

  device_.stuck(swap_in, false);
  events = poll_all();
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(events[0].kind, TransferEvent::Kind::confirmed);
  EXPECT_TRUE(transfers_->idle());
}

TEST_F(TransferEngineTest, believe_the_device_and_not_the_bytes) {
  device_.delay_completion(swap_out, true);
  Transfer made = transfer(1, swap_out, request, {run(0, 0, 1)});
  made.deadline = clock_.now() + seconds{1};
  transfers_->submit(std::move(made));
  poll_all();
  EXPECT_TRUE(host_holds(0, 100));
  clock_.advance(seconds{2});
  const std::vector<TransferEvent> events = poll();
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(events[0].outcomes, std::vector{BlockOutcome::unconfirmed});
  device_.delay_completion(swap_out, false);
  EXPECT_EQ(poll().size(), 1U);
}

TEST_F(TransferEngineTest, report_the_blocks_of_a_failed_piece) {
  device_.fail_next(swap_out);
  transfers_->submit(transfer(1, swap_out, request, {run(0, 0, 6)}));
  const std::vector<TransferEvent> events = poll_all();
  ASSERT_EQ(events.size(), 1U);
  std::vector<BlockOutcome> expected(4, BlockOutcome::failed);
  expected.insert(expected.end(), 2, BlockOutcome::done);
  EXPECT_EQ(events[0].outcomes, expected);
  EXPECT_EQ(events[0].error, Errc::io_failed);
}

TEST_F(TransferEngineTest, pass_the_point_to_wait_for_on_to_the_device) {
  Transfer made = transfer(1, swap_out, request, {run(3, 3, 1)});
  made.after = device_.launch(writes(3, 999));
  transfers_->submit(std::move(made));
  poll();
  EXPECT_EQ(device_.step_options(), std::vector{SimulatedDevice::Part::compute});
  EXPECT_EQ(poll_all().size(), 1U);
  EXPECT_TRUE(host_holds(3, 999));
}

TEST_F(TransferEngineTest, may_end_before_what_is_under_way) {
  transfers_->submit(transfer(1, swap_out, request, {run(0, 0, 1)}));
  poll();
  transfers_.reset();
  device_.run();
  EXPECT_TRUE(host_holds(0, 100));
  EXPECT_EQ(waker_.woken(), 0U) << "the waker may be gone with the engine";
}

/// Random transfers, cancellations, failures, frozen streams and steps. As the runtime promises, a slot is not used again before
/// its transfer has ended. A block that is reported done must have the bytes of its source at that moment.
TEST(TransferEngineProperty, a_block_reported_done_is_where_it_should_be) {
  std::uint64_t verified = 0;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random{seed};
    ManualClock clock;
    NullWaker waker;
    HostArena arena{slots, block_bytes, block_bytes * 7};
    SimulatedDevice device{slots, arena, 3};
    TransferSchedulerConfig config;
    config.pieces.bytes = block_bytes * 2;
    TransferEngine transfers{config, device, clock, waker};
    std::uint64_t content = 0;
    std::map<std::uint64_t, std::pair<Transfer, std::uint64_t>> ids;
    bool free[slots];
    std::ranges::fill(free, true);

    const auto settle = [&](const TransferEvent& event) {
      const auto& [made, first_content] = ids.at(event.id.value());
      const std::uint32_t slot = made.runs[0].source.value();
      bool unconfirmed = false;
      for (std::uint32_t i = 0; i < event.outcomes.size(); ++i) {
        unconfirmed |= event.outcomes[i] == BlockOutcome::unconfirmed;
        if (event.outcomes[i] != BlockOutcome::done) continue;
        const std::span<const std::byte> in_arena = arena.block(SlotId{slot + i});
        if (made.direction == swap_out) {
          EXPECT_TRUE(holds(in_arena, first_content + i));
          ++verified;
          continue;
        }
        // Compute compares before anything that is launched later changes the block again.
        device.launch([&verified, slot, i, expected = std::vector(in_arena.begin(), in_arena.end())](BlockAccess& access) {
          EXPECT_TRUE(std::ranges::equal(access.read(SlotId{slot + i}, {}), expected));
          ++verified;
        });
      }
      if (!unconfirmed) std::fill_n(free + slot, made.runs[0].count, true);
    };
    for (int i = 0; i < 3'000; ++i) {
      const auto slot = static_cast<std::uint32_t>(random.below(slots - 8));
      const auto blocks = static_cast<std::uint32_t>(random.between(1, 8));
      if (random.chance(0.3) && std::all_of(free + slot, free + slot + blocks, [](bool is_free) { return is_free; })) {
        std::fill_n(free + slot, blocks, false);
        Transfer made = transfer(static_cast<std::uint64_t>(i), random.chance(0.7) ? swap_out : swap_in,
                                 static_cast<Urgency>(random.below(urgency_count)), {run(slot, slot, blocks)});
        for (std::uint32_t n = 0; n < blocks; ++n) made.after = device.launch(writes(slot + n, content + n));
        if (random.chance(0.3)) made.deadline = clock.now() + std::chrono::milliseconds{random.below(50)};
        ids[static_cast<std::uint64_t>(i)] = {made, content};
        content += blocks;
        transfers.submit(std::move(made));
      }
      if (random.chance(0.02)) transfers.cancel(TransferId{random.below(static_cast<std::uint64_t>(i) + 1)});
      if (random.chance(0.02)) device.fail_next(swap_out);
      if (random.chance(0.05)) device.stuck(swap_out, random.chance(0.5));
      clock.advance(std::chrono::milliseconds{random.below(3)});
      for (std::uint64_t steps = random.below(20); steps > 0; --steps) {
        const std::vector<SimulatedDevice::Part> options = device.step_options();
        if (!options.empty()) device.step(options[random.below(options.size())]);
      }
      std::vector<TransferEvent> events;
      transfers.poll(events);
      transfers.check_invariants();
      for (const TransferEvent& event : events) settle(event);
    }
  }
  EXPECT_GT(verified, 10'000U);
}

}  // namespace
}  // namespace terrace
