#include "tests/transfer/support.hpp"
#include "transfer/emulated/timed_device.hpp"
#include "transfer/engine/transfer_engine.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

/// How much of a link the engine uses, and how long an urgent transfer waits for it, in virtual time: a link of 55 GB/s each way
/// whose ends of copies are noticed 60 microseconds late, as through an interrupt and two threads.
namespace terrace {
namespace {

using enum Direction;
using enum Urgency;
using std::chrono::microseconds;
using test::run;
using test::transfer;

constexpr TimedDevice::Link gpu_link{.bytes_per_second = BytesPerSecond{55'000'000'000}, .notice = microseconds{60}};

class LinkUse : public testing::Test {
 protected:
  void make(Bytes block_bytes) {
    transfers_.reset();
    device_.emplace(std::vector{DevicePool{.slots = 1U << 20U, .block_bytes = block_bytes}}, gpu_link, clock_);
    transfers_.emplace(TransferSchedulerConfig{}, *device_, clock_, waker_);
  }
  void submit(Direction direction, Urgency urgency, std::uint32_t blocks) {
    transfers_->submit(transfer(++last_, direction, urgency, {run(0, 0, blocks)}));
  }
  /// Lets time pass until the transfers with these ids have ended. Returns when the last one was noticed.
  TimePoint run_until(std::uint64_t first, std::uint64_t last) {
    std::uint64_t left = last - first + 1;
    std::vector<TransferEvent> events;
    while (true) {
      transfers_->poll(events);
      left -= static_cast<std::uint64_t>(std::ranges::count_if(events, [&](const TransferEvent& event) {
        return event.kind == TransferEvent::Kind::finished && event.id.value() >= first && event.id.value() <= last;
      }));
      events.clear();
      if (left == 0) return clock_.now();
      EXPECT_NE(device_->next_notice(), never);
      clock_.advance(device_->next_notice() - clock_.now());
    }
  }

  ManualClock clock_;
  test::CountingWaker waker_;
  std::optional<TimedDevice> device_;
  std::optional<TransferEngine> transfers_;
  std::uint64_t last_ = 0;
};

TEST_F(LinkUse, every_urgency_uses_nine_tenths_of_the_link_whatever_the_size_of_transfers) {
  struct Case {
    Bytes block_bytes;
    std::uint32_t blocks;  ///< of a transfer
    std::uint64_t transfers;
  };
  for (const Case& each : {Case{MiB * 2, 64, 4}, Case{MiB * 2, 1, 256}, Case{KiB * 640, 1, 1000}, Case{MiB * 16, 1, 100}}) {
    for (const Urgency urgency : {request, make_room, store}) {
      if (urgency != request && each.block_bytes > TransferPieces{}.bytes_in_flight) continue;  // one of them at a time
      for (const Direction direction : {swap_out, swap_in}) {
        SCOPED_TRACE(to_string(each.block_bytes) + " * " + std::to_string(each.blocks));
        make(each.block_bytes);
        const TimePoint begin = clock_.now();
        const std::uint64_t first = last_ + 1;
        for (std::uint64_t n = 0; n < each.transfers; ++n) submit(direction, urgency, each.blocks);
        const Duration took = run_until(first, last_) - begin;
        EXPECT_GE(static_cast<double>(device_->busy(direction).count()), 0.9 * static_cast<double>(took.count()));
      }
    }
  }
}

TEST_F(LinkUse, an_urgent_transfer_waits_for_eight_mebibytes_at_most) {
  for (const Bytes block_bytes : {KiB * 64, KiB * 640, MiB * 2}) {
    for (const Urgency background : {make_room, store}) {
      SCOPED_TRACE(to_string(block_bytes));
      make(block_bytes);
      submit(swap_in, background, static_cast<std::uint32_t>(MiB * 64 / block_bytes));
      submit(swap_in, background, static_cast<std::uint32_t>(MiB * 64 / block_bytes));
      std::vector<TransferEvent> events;
      transfers_->poll(events);
      for (int n = 0; n < 5; ++n) {  // in the middle of the work
        clock_.advance(device_->next_notice() - clock_.now());
        transfers_->poll(events);
      }
      const TimePoint asked = clock_.now();
      submit(swap_in, request, 1);
      const TimePoint noticed = run_until(last_, last_);
      EXPECT_LE(noticed - asked, device_->time_for(MiB * 8 + block_bytes) + gpu_link.notice);
    }
  }
}

TEST_F(LinkUse, background_goes_on_while_requests_come_now_and_then) {
  make(MiB * 2);
  submit(swap_out, store, 1000);
  const TimePoint begin = clock_.now();
  for (int n = 0; n < 100; ++n) {
    submit(swap_out, request, 2);
    run_until(last_, last_);
  }
  const Duration took = clock_.now() - begin;
  EXPECT_GE(static_cast<double>(device_->busy(swap_out).count()), 0.9 * static_cast<double>(took.count()));
}

}  // namespace
}  // namespace terrace
