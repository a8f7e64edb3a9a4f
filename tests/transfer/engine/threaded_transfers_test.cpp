#include "base/random.hpp"
#include "tests/transfer/engine/write_count.hpp"
#include "tests/transfer/support.hpp"
#include "transfer/device/transfer.hpp"
#include "transfer/emulated/emulated_device.hpp"
#include "transfer/engine/transfer_engine.hpp"
#include "transfer/host/host_arena.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <latch>
#include <map>
#include <new>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

/// The engine on its own thread, with a device with threads.
namespace terrace {
namespace {

using enum Direction;
using enum Urgency;
using test::fill;
using test::holds;
using test::run;
using test::transfer;
using test::writes;

constexpr std::uint32_t threaded_slots = 64;
constexpr Bytes threaded_block{2048};

class ThreadedTransfersTest : public testing::Test {
 protected:
  ThreadedTransfersTest() {
    TransferSchedulerConfig config;
    config.pieces = {.bytes = threaded_block * 4, .bytes_in_flight = threaded_block * 8};
    transfers_.emplace(config, device_, clock_, waker_);
    Fence last;
    for (std::uint32_t slot = 0; slot < threaded_slots; ++slot) last = device_.launch(writes(slot, 100 + slot));
    test::await_compute(device_, last);
  }
  ~ThreadedTransfersTest() override {
    release_compute();
    transfers_.reset();
  }

  /// Compute blocks at the returned fence until it is released.
  Fence hold_compute() {
    return device_.launch([this](BlockAccess&) { gate_.wait(); });
  }
  void release_compute() {
    if (!gate_.try_wait()) gate_.count_down();
  }
  std::vector<TransferEvent> await_events(std::size_t wanted) {
    return test::await<TransferEvent>(waker_, wanted, [this](auto& events) { return transfers_->poll(events); });
  }

  SteadyClock clock_;
  EventFdWaker waker_;
  std::latch gate_{1};
  HostArena arena_{threaded_slots, threaded_block, threaded_block * 10};
  EmulatedDevice device_{threaded_slots, arena_};
  std::optional<ThreadedTransfers> transfers_;
};

TEST_F(ThreadedTransfersTest, move_every_byte_out_and_back_in) {
  transfers_->submit(transfer(1, swap_out, request, {run(0, 16, 32), run(40, 0, 8)}));
  std::vector<TransferEvent> events = await_events(1);
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(events[0].outcomes, std::vector(40, BlockOutcome::done));
  for (std::uint32_t i = 0; i < 32; ++i) ASSERT_TRUE(holds(arena_.block(SlotId{16 + i}), 100 + i)) << i;
  for (std::uint32_t i = 0; i < 8; ++i) ASSERT_TRUE(holds(arena_.block(SlotId{i}), 140 + i)) << i;

  transfers_->submit(transfer(2, swap_in, request, {run(16, 20, 32)}));
  events = await_events(1);
  ASSERT_EQ(events.size(), 1U);
  std::vector<std::uint32_t> wrong;
  test::await_compute(device_, device_.launch([&](BlockAccess& access) {
    for (std::uint32_t i = 0; i < 32; ++i) {
      if (!holds(access.read(SlotId{20 + i}, {}), 100 + i)) wrong.push_back(i);
    }
  }));
  EXPECT_TRUE(wrong.empty());
}

TEST_F(ThreadedTransfersTest, end_thousands_of_transfers_each_exactly_once) {
  // More in total than the queue between the test and the engine can hold.
  constexpr std::uint64_t batches = 10;
  constexpr std::uint64_t batch = 500;
  static_assert(batches * batch > ThreadedTransfers::submitted_max);
  Random random{7};
  std::map<std::uint64_t, int> seen;
  std::uint64_t id = 0;
  for (std::uint64_t i = 0; i < batches; ++i) {
    for (std::uint64_t n = 0; n < batch; ++n) {
      const auto slot = static_cast<std::uint32_t>(random.below(threaded_slots / 2 - 8));
      const auto blocks = static_cast<std::uint32_t>(random.between(1, 8));
      const auto urgency = static_cast<Urgency>(random.below(urgency_count));
      // Each direction uses its own half of the slots, because there is no order between the directions.
      const bool out = random.chance(0.5);
      const std::uint32_t at = out ? slot : slot + threaded_slots / 2;
      transfers_->submit(transfer(++id, out ? swap_out : swap_in, urgency, {run(at, at, blocks)}));
      if (random.chance(0.1)) transfers_->cancel(TransferId{id});
      if (random.chance(0.1)) transfers_->raise(TransferId{id}, request);
      if (random.chance(0.1)) transfers_->postpone(TransferId{id}, never);
    }
    for (const TransferEvent& event : await_events(batch)) {
      EXPECT_EQ(event.kind, TransferEvent::Kind::finished);
      EXPECT_NE(event.error, Errc::refused);
      ++seen[event.id.value()];
    }
  }
  EXPECT_EQ(seen.size(), batches * batch);
  std::vector<TransferEvent> more;
  EXPECT_EQ(transfers_->poll(more), 0U);
}

TEST_F(ThreadedTransfersTest, cost_their_caller_one_system_call_for_several_calls) {
  // The thread dozes after a call. On a busy machine it may fall asleep before the next one, and is woken by that. Then try
  // again.
  bool quiet = false;
  std::uint64_t id = 0;
  for (int tries = 0; tries < 100 && !quiet; ++tries) {
    transfers_->submit(transfer(++id, swap_out, request, {run(0, 0, 1)}));
    ASSERT_EQ(await_events(1).size(), 1U);
    const std::uint64_t before = test::writes_of_this_thread();
    for (std::uint32_t n = 0; n < 5; ++n) transfers_->submit(transfer(++id, swap_out, request, {run(n, n, 1)}));
    transfers_->raise(TransferId{id}, request);
    const std::uint64_t by_calls = test::writes_of_this_thread() - before;
    transfers_->wake_transfers();
    transfers_->wake_transfers();
    quiet = by_calls == 0 && test::writes_of_this_thread() - before <= 1;
    ASSERT_EQ(await_events(5).size(), 5U);
  }
  EXPECT_TRUE(quiet);
}

TEST_F(ThreadedTransfersTest, see_calls_that_nobody_wakes_them_for) {
  transfers_->submit(transfer(1, swap_out, request, {run(0, 0, 1)}));
  ASSERT_EQ(await_events(1).size(), 1U);
  transfers_->submit(transfer(2, swap_out, request, {run(1, 1, 1)}));  // the thread dozes
  ASSERT_EQ(await_events(1).size(), 1U);
  std::this_thread::sleep_for(ThreadedTransfers::dozes_for * 2);
  transfers_->submit(transfer(3, swap_out, request, {run(2, 2, 1)}));  // the thread sleeps
  ASSERT_EQ(await_events(1).size(), 1U);
}

TEST_F(ThreadedTransfersTest, wait_for_the_point_a_transfer_names) {
  hold_compute();
  Transfer made = transfer(1, swap_out, request, {run(5, 5, 1)});
  made.after = device_.launch(writes(5, 999));
  transfers_->submit(std::move(made));
  release_compute();
  ASSERT_EQ(await_events(1).size(), 1U);
  EXPECT_TRUE(holds(arena_.block(SlotId{5}), 999));
}

TEST_F(ThreadedTransfersTest, resolve_a_deadline_by_themselves_and_confirm_later) {
  const Fence held = hold_compute();
  std::vector<TransferEvent> events;
  // On a busy machine a deadline may pass before the engine has seen the transfer. Then try again with a later one.
  std::uint64_t id = 0;
  for (auto time = std::chrono::milliseconds{20}; id == 0 || events[0].outcomes[0] == BlockOutcome::cancelled; time *= 2) {
    Transfer made = transfer(++id, swap_out, request, {run(5, 5, 1)});
    made.after = held;
    made.deadline = clock_.now() + time;
    transfers_->submit(std::move(made));
    events = await_events(1);
    ASSERT_EQ(events.size(), 1U);
    EXPECT_EQ(events[0].error, Errc::deadline_exceeded);
  }
  EXPECT_EQ(events[0].outcomes, std::vector{BlockOutcome::unconfirmed});
  EXPECT_EQ(transfers_->next_deadline(), never);
  EXPECT_LT(transfers_->oldest_copy(), clock_.now());
  release_compute();
  events = await_events(1);
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(events[0].kind, TransferEvent::Kind::confirmed);
  EXPECT_EQ(transfers_->oldest_copy(), never);
}

TEST_F(ThreadedTransfersTest, cancel_and_raise_what_is_queued) {
  // Two pieces wait at the gate; the rest of the first transfer and the others are queued.
  Transfer first = transfer(1, swap_out, request, {run(0, 0, 12)});
  first.after = hold_compute();
  transfers_->submit(std::move(first));
  transfers_->submit(transfer(2, swap_out, store, {run(20, 20, 1)}));
  transfers_->submit(transfer(3, swap_out, make_room, {run(30, 30, 1)}));
  transfers_->submit(transfer(4, swap_out, make_room, {run(40, 40, 1)}));
  transfers_->raise(TransferId{2}, request);
  transfers_->cancel(TransferId{3});
  std::vector<TransferEvent> events = await_events(1);
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(events[0].id, TransferId{3});
  EXPECT_EQ(events[0].error, Errc::cancelled);
  release_compute();
  events = await_events(3);
  ASSERT_EQ(events.size(), 3U);
  EXPECT_EQ(events[0].id, TransferId{1});
  EXPECT_EQ(events[1].id, TransferId{2});
  EXPECT_EQ(events[2].id, TransferId{4});
}

TEST_F(ThreadedTransfersTest, refuse_new_transfers_once_stopped_and_end_the_old) {
  Transfer first = transfer(1, swap_out, request, {run(0, 0, 12)});
  first.after = hold_compute();
  transfers_->submit(std::move(first));
  transfers_->submit(transfer(2, swap_out, store, {run(20, 20, 1)}));
  // When this transfer has ended, the engine has seen those before it, and two pieces of the first are under way.
  transfers_->submit(transfer(4, swap_in, request, {run(50, 50, 1)}));
  ASSERT_EQ(await_events(1).size(), 1U);
  transfers_->stop();
  transfers_->submit(transfer(3, swap_out, request, {run(30, 30, 2)}));
  std::map<std::uint64_t, TransferEvent> by_id;
  for (TransferEvent& event : await_events(2)) by_id[event.id.value()] = std::move(event);
  EXPECT_EQ(by_id[2].error, Errc::cancelled);
  EXPECT_EQ(by_id[3].error, Errc::stopped);
  EXPECT_EQ(by_id[3].outcomes, std::vector(2, BlockOutcome::cancelled));
  release_compute();
  const std::vector<TransferEvent> events = await_events(1);
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(events[0].id, TransferId{1});
  std::vector<BlockOutcome> expected(8, BlockOutcome::done);
  expected.insert(expected.end(), 4, BlockOutcome::cancelled);
  EXPECT_EQ(events[0].outcomes, expected);
}

/// A device that sometimes has no memory for a command.
class ForgetfulDevice final : public Device {
 public:
  explicit ForgetfulDevice(Device& device) : device_{device} {}
  [[nodiscard]] const DeviceInfo& info() const override { return device_.info(); }
  void set_waker(Waker& waker) override { device_.set_waker(waker); }
  void submit(CopyCommand command) override {
    if (forgets_.load() > 0) {
      --forgets_;
      throw std::bad_alloc{};
    }
    device_.submit(std::move(command));
  }
  std::size_t poll(std::vector<CopyDone>& done) override { return device_.poll(done); }
  Fence launch(ComputeWork work) override { return device_.launch(std::move(work)); }
  [[nodiscard]] Fence reached() const override { return device_.reached(); }
  [[nodiscard]] Fence after_all_work() const override { return device_.after_all_work(); }
  void forget(int commands) { forgets_ = commands; }

 private:
  Device& device_;
  std::atomic<int> forgets_{0};
};

TEST_F(ThreadedTransfersTest, fail_what_the_device_threw_at_and_live_on) {
  EmulatedDevice device{threaded_slots, arena_};
  ForgetfulDevice forgetful{device};
  TransferSchedulerConfig config;
  config.pieces.bytes = threaded_block * 4;
  ThreadedTransfers transfers{config, forgetful, clock_, waker_};
  const auto moved = [&](std::uint64_t id, std::uint32_t blocks) {
    transfers.submit(transfer(id, swap_out, request, {run(0, 0, blocks)}));
    const auto events = test::await<TransferEvent>(waker_, 1, [&](auto& out) { return transfers.poll(out); });
    EXPECT_EQ(events.size(), 1U);
    return events.front().outcomes;
  };
  test::await_compute(device, device.launch(writes(3, 103)));
  forgetful.forget(1);
  EXPECT_EQ(moved(1, 4), std::vector(4, BlockOutcome::failed));
  EXPECT_EQ(moved(2, 4), std::vector(4, BlockOutcome::done));
  EXPECT_TRUE(holds(arena_.block(SlotId{3}), 103));
  // In a transfer of several pieces, only that piece fails.
  forgetful.forget(1);
  std::vector<BlockOutcome> expected(12, BlockOutcome::done);
  std::fill_n(expected.begin(), 4, BlockOutcome::failed);
  EXPECT_EQ(moved(3, 12), expected);
}

TEST_F(ThreadedTransfersTest, end_with_transfers_still_queued) {
  for (std::uint64_t id = 1; id <= 100; ++id) transfers_->submit(transfer(id, swap_out, store, {run(0, 0, 64)}));
  transfers_.reset();
}

TEST_F(ThreadedTransfersTest, move_no_byte_once_they_have_ended) {
  // The link is so slow that the piece is still under way at the end.
  EmulatedOptions slow;
  slow.link[swap_out].bytes_per_second = per_second(threaded_block * 5);
  EmulatedDevice device{threaded_slots, arena_, slow};
  test::await_compute(device, device.launch(writes(5, 999)));
  {
    ThreadedTransfers transfers{TransferSchedulerConfig{}, device, clock_, waker_};
    transfers.submit(transfer(1, swap_out, request, {run(5, 5, 1)}));
    // When this transfer has ended, the engine has seen the one before.
    transfers.submit(transfer(2, swap_in, request, {run(6, 6, 1)}));
    const auto events = test::await<TransferEvent>(waker_, 1, [&](auto& out) { return transfers.poll(out); });
    ASSERT_EQ(events.size(), 1U);
  }
  EXPECT_TRUE(holds(arena_.block(SlotId{5}), 999)) << "the end waited for what was under way";
}

TEST_F(ThreadedTransfersTest, refuse_transfers_beyond_their_bound) {
  // The engine drains the queue during the loop, so push until one is refused. However fast the engine is, its lane has a limit
  // too.
  std::uint64_t submitted = 0;
  Transfer held = transfer(++submitted, swap_out, request, {run(0, 0, 64)});
  held.after = hold_compute();
  transfers_->submit(std::move(held));
  std::vector<TransferEvent> events;
  while (events.empty()) {
    transfers_->submit(transfer(++submitted, swap_out, request, {run(0, 0, 64)}));
    transfers_->poll(events);
  }
  EXPECT_EQ(events[0].error, Errc::refused);
  EXPECT_EQ(events[0].outcomes, std::vector(64, BlockOutcome::cancelled));
}

}  // namespace
}  // namespace terrace
