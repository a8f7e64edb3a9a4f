#pragma once

#include "terrace/device.hpp"
#include "tests/transfer/support.hpp"
#include "transfer/host/host_arena.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <latch>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

/// The contract of every Device. Blocks have an odd size and a chunk has few host slots, so that wrong arithmetic is noticed. A
/// test program instantiates the suites with drivers, which say how the contract drives a device.
namespace terrace::contract {

using enum Direction;
using test::fill;
using test::holds;
using test::run;
using test::writes;

inline constexpr Bytes block_bytes{1003};
inline constexpr std::uint32_t slots = 24;
inline constexpr std::uint32_t slots_per_chunk = 5;
/// The number of layers of packed blocks. If the blocks are in regions, the device says how many layers they have.
inline constexpr std::uint32_t layers = 17;
static_assert(count(block_bytes) % layers == 0);

/// The layout of host slots. The device's block may be a part of a slot: the bytes before and behind it belong to others.
struct HostLayout {
  std::uint64_t before = 0;
  std::uint64_t behind = 0;

  [[nodiscard]] constexpr Bytes slot_bytes() const { return Bytes{before + count(block_bytes) + behind}; }
  [[nodiscard]] constexpr HostShare share() const { return {Bytes{before}, block_bytes}; }
};
inline constexpr HostLayout whole_slots{};
/// Not aligned, like the blocks.
inline constexpr HostLayout shares_of_slots{.before = 77, .behind = 130};

enum class Failing { none, second_command };

/// Drives a device with threads. A derived class says which `host` layout it needs, sets the device, and calls close() before
/// things that the device needs are destroyed.
class Threaded {
 public:
  /// Why there is no such device on this machine.
  static std::optional<std::string> unavailable() { return std::nullopt; }
  static constexpr HostLayout host = whole_slots;

  Device& device() { return *device_; }
  void submit(CopyCommand command) { device_->submit(std::move(command)); }
  std::vector<CopyDone> await_done(std::size_t wanted) {
    return test::await<CopyDone>(waker_, wanted, [this](auto& done) { return device_->poll(done); });
  }
  void let_copies_happen() {}
  void await_compute(Fence point) { test::await_compute(*device_, point); }
  /// Launches compute that blocks until it is released, and then does the work.
  Fence launch_held(ComputeWork work) {
    return device_->launch([this, work = std::move(work)](BlockAccess& access) {
      gate_.wait();
      work(access);
    });
  }
  void release_compute() {
    if (!gate_.try_wait()) gate_.count_down();
  }
  /// Gives a forbidden copy time to happen: meanwhile the other direction does whole round trips.
  std::size_t done_while_compute_stands_still(Direction direction) {
    const Direction other = direction == swap_out ? swap_in : swap_out;
    std::size_t ended = 0;
    for (std::uint64_t i = 0; i < 200; ++i) {
      device_->submit({1'000 + i, other, Fence{0}, {run(slots - 1, slots - 1, 1)}});
      for (const CopyDone& done : await_done(1)) ended += done.token < 1'000;
    }
    return ended;
  }

 protected:
  Threaded() = default;
  ~Threaded() { close(); }
  void open(std::unique_ptr<Device> device) {
    device_ = std::move(device);
    device_->set_waker(waker_);
  }
  /// Opens the gate first, because the device joins the thread that may wait there.
  void close() {
    release_compute();
    device_.reset();
  }

 private:
  EventFdWaker waker_;
  std::latch gate_{1};
  std::unique_ptr<Device> device_;
};

template <class Driver>
class DeviceContract : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::optional<std::string> why = Driver::unavailable()) GTEST_SKIP() << *why;
  }
  void TearDown() override {
    for (std::uint32_t slot = 0; driver_ && slot < slots; ++slot) {
      EXPECT_TRUE(holds(others_before(slot), 300 + slot)) << slot;
      EXPECT_TRUE(holds(others_behind(slot), 400 + slot)) << slot;
    }
  }
  /// Each device slot has pattern 100 + slot, each host slot 200 + slot; the parts of others have 300 and 400 + slot.
  void start(Failing failing = Failing::none) {
    for (std::uint32_t slot = 0; slot < slots; ++slot) {
      fill(others_before(slot), 300 + slot);
      fill(others_behind(slot), 400 + slot);
    }
    driver_.emplace(arena_, failing);
    Fence last;
    for (std::uint32_t slot = 0; slot < slots; ++slot) {
      last = driver_->device().launch(writes(slot, 100 + slot));
      fill(host_block(slot), 200 + slot);
    }
    driver_->await_compute(last);
  }

  void submit(std::uint64_t token, Direction direction, std::vector<SlotRun> runs, Fence after = {}) {
    driver_->submit({token, direction, after, std::move(runs)});
  }
  std::vector<CopyDone> await_done(std::size_t wanted) { return driver_->await_done(wanted); }
  void copy(Direction direction, std::vector<SlotRun> runs) {
    submit(1, direction, std::move(runs));
    const std::vector<CopyDone> done = await_done(1);
    ASSERT_EQ(done.size(), 1U);
    EXPECT_FALSE(done[0].error);
  }

  /// The device's part of the slot.
  std::span<std::byte> host_block(std::uint32_t slot) {
    return arena_.block(SlotId{slot}).subspan(Driver::host.before, count(block_bytes));
  }
  std::span<std::byte> others_before(std::uint32_t slot) { return arena_.block(SlotId{slot}).first(Driver::host.before); }
  std::span<std::byte> others_behind(std::uint32_t slot) { return arena_.block(SlotId{slot}).last(Driver::host.behind); }
  bool host_holds(std::uint32_t slot, std::uint64_t seed) { return holds(host_block(slot), seed); }
  bool device_holds(std::uint32_t slot, std::uint64_t seed) {
    bool same = false;
    driver_->await_compute(driver_->device().launch([&](BlockAccess& access) {
      std::vector<std::byte> scratch(count(block_bytes));
      same = holds(access.read(SlotId{slot}, scratch), seed);
    }));
    return same;
  }

  std::vector<std::byte> device_block(std::uint32_t slot) {
    std::vector<std::byte> bytes;
    driver_->await_compute(driver_->device().launch([&](BlockAccess& access) {
      std::vector<std::byte> scratch(count(block_bytes));
      const auto block = access.read(SlotId{slot}, scratch);
      bytes.assign(block.begin(), block.end());
    }));
    return bytes;
  }
  /// True if the layers in `range` have the pattern of `inside`, and the others that of `outside`.
  static bool is_mixed(std::span<const std::byte> block, LayerRange range, std::uint32_t of, std::uint64_t inside,
                       std::uint64_t outside) {
    const std::size_t layer_bytes = block.size() / of;
    for (std::size_t at = 0; at < block.size(); ++at) {
      const bool is_inside = at / layer_bytes - range.first < range.count;
      if (block[at] != test::pattern(is_inside ? inside : outside, at)) return false;
    }
    return true;
  }

  HostArena arena_{slots, Driver::host.slot_bytes(), Driver::host.slot_bytes() * slots_per_chunk};
  std::optional<Driver> driver_;
};

TYPED_TEST_SUITE_P(DeviceContract);

TYPED_TEST_P(DeviceContract, says_what_it_is) {
  this->start();
  EXPECT_EQ(this->driver_->device().info().pool().slots, slots);
  EXPECT_EQ(this->driver_->device().info().pool().block_bytes, block_bytes);
  EXPECT_FALSE(this->driver_->device().info().name.empty());
}

TYPED_TEST_P(DeviceContract, swaps_out_every_byte_and_touches_no_other) {
  this->start();
  this->copy(swap_out, {run(7, 2, 1), run(3, 12, 2)});
  for (std::uint32_t slot = 0; slot < slots; ++slot) {
    const std::uint64_t expected = slot == 2 ? 107 : slot == 12 ? 103 : slot == 13 ? 104 : 200 + slot;
    EXPECT_TRUE(this->host_holds(slot, expected)) << slot;
    EXPECT_TRUE(this->device_holds(slot, 100 + slot)) << slot;
  }
}

TYPED_TEST_P(DeviceContract, swaps_in_every_byte_and_touches_no_other) {
  this->start();
  this->copy(swap_in, {run(7, 2, 1), run(3, 12, 2)});
  for (std::uint32_t slot = 0; slot < slots; ++slot) {
    const std::uint64_t expected = slot == 2 ? 207 : slot == 12 ? 203 : slot == 13 ? 204 : 100 + slot;
    EXPECT_TRUE(this->device_holds(slot, expected)) << slot;
    EXPECT_TRUE(this->host_holds(slot, 200 + slot)) << slot;
  }
}

TYPED_TEST_P(DeviceContract, copies_runs_that_cross_chunks_of_the_arena) {
  this->start();
  this->copy(swap_out, {run(0, 3, 18)});
  for (std::uint32_t i = 0; i < 18; ++i) EXPECT_TRUE(this->host_holds(3 + i, 100 + i)) << i;
  this->copy(swap_in, {run(3, 6, 18)});
  for (std::uint32_t i = 0; i < 18; ++i) EXPECT_TRUE(this->device_holds(6 + i, 100 + i)) << i;
}

TYPED_TEST_P(DeviceContract, copies_the_layers_of_a_command_and_touches_no_others) {
  this->start();
  const std::uint32_t all = this->driver_->device().info().pool().layers;
  const LayerRange range{all / 3, std::max(all / 4, 1U)};
  CopyCommand in{1, swap_in, {}, {run(3, 12, 2), run(9, 4, 1)}};
  CopyCommand out{2, swap_out, {}, {run(20, 2, 1), run(7, 13, 4)}};
  in.layers = out.layers = range;
  this->driver_->submit(std::move(in));
  this->driver_->submit(std::move(out));
  ASSERT_EQ(this->await_done(2).size(), 2U);
  for (std::uint32_t slot = 0; slot < slots; ++slot) {
    const std::uint64_t in_from = slot == 12 ? 203 : slot == 13 ? 204 : slot == 4 ? 209 : 100 + slot;
    EXPECT_TRUE(this->is_mixed(this->device_block(slot), range, all, in_from, 100 + slot)) << slot;
    const std::uint64_t out_from = slot == 2 ? 120 : slot >= 13 && slot < 17 ? 100 + slot - 6 : 200 + slot;
    EXPECT_TRUE(this->is_mixed(this->host_block(slot), range, all, out_from, 200 + slot)) << slot;
  }
}

TYPED_TEST_P(DeviceContract, ends_the_commands_of_a_direction_in_order_each_exactly_once) {
  this->start();
  for (std::uint64_t token = 1; token <= 20; ++token) {
    this->submit(token, swap_out, {run(static_cast<std::uint32_t>(token), 0, 1)});
  }
  const std::vector<CopyDone> done = this->await_done(20);
  ASSERT_EQ(done.size(), 20U);
  for (std::uint64_t token = 1; token <= 20; ++token) EXPECT_EQ(done[token - 1].token, token);
  EXPECT_TRUE(this->host_holds(0, 120)) << "the last one wrote last";
  std::vector<CopyDone> more;
  EXPECT_EQ(this->driver_->device().poll(more), 0U);
}

TYPED_TEST_P(DeviceContract, moves_both_directions) {
  this->start();
  this->submit(1, swap_out, {run(0, 0, 4)});
  this->submit(2, swap_in, {run(10, 10, 4)});
  ASSERT_EQ(this->await_done(2).size(), 2U);
  EXPECT_TRUE(this->host_holds(3, 103));
  EXPECT_TRUE(this->device_holds(13, 213));
}

TYPED_TEST_P(DeviceContract, does_not_swap_out_what_compute_has_not_written_yet) {
  this->start();
  const Fence written = this->driver_->launch_held(writes(4, 999));
  this->submit(1, swap_out, {run(4, 4, 1)}, written);
  EXPECT_EQ(this->driver_->done_while_compute_stands_still(swap_out), 0U);
  EXPECT_TRUE(this->host_holds(4, 204));
  this->driver_->release_compute();
  ASSERT_EQ(this->await_done(1).size(), 1U);
  EXPECT_TRUE(this->host_holds(4, 999));
}

TYPED_TEST_P(DeviceContract, does_not_swap_in_over_what_compute_still_reads) {
  this->start();
  bool read_before = false;
  const Fence read = this->driver_->launch_held([&](BlockAccess& access) {
    std::vector<std::byte> scratch(count(block_bytes));
    read_before = holds(access.read(SlotId{4}, scratch), 104);
  });
  this->submit(1, swap_in, {run(9, 4, 1)}, read);
  EXPECT_EQ(this->driver_->done_while_compute_stands_still(swap_in), 0U);
  this->driver_->release_compute();
  ASSERT_EQ(this->await_done(1).size(), 1U);
  EXPECT_TRUE(read_before);
  EXPECT_TRUE(this->device_holds(4, 209));
}

TYPED_TEST_P(DeviceContract, keeps_the_order_of_a_direction_behind_a_command_that_waits) {
  this->start();
  const Fence written = this->driver_->launch_held(writes(4, 999));
  this->submit(1, swap_out, {run(4, 4, 1)}, written);
  this->submit(2, swap_out, {run(5, 4, 1)});
  EXPECT_EQ(this->driver_->done_while_compute_stands_still(swap_out), 0U);
  this->driver_->release_compute();
  const std::vector<CopyDone> done = this->await_done(2);
  ASSERT_EQ(done.size(), 2U);
  EXPECT_EQ(done[0].token, 1U);
  EXPECT_TRUE(this->host_holds(4, 105));
}

TYPED_TEST_P(DeviceContract, computes_in_order_of_launch) {
  this->start();
  std::vector<int> order;
  const Fence first = this->driver_->device().launch([&](BlockAccess&) { order.push_back(1); });
  const Fence second = this->driver_->device().launch([&](BlockAccess&) { order.push_back(2); });
  EXPECT_LT(first, second);
  this->driver_->await_compute(second);
  EXPECT_EQ(order, (std::vector<int>{1, 2}));
  EXPECT_GE(this->driver_->device().reached(), second);
}

TYPED_TEST_P(DeviceContract, reports_a_failed_command_and_goes_on_with_the_next) {
  this->start(Failing::second_command);
  this->submit(1, swap_out, {run(1, 1, 2)});
  this->submit(2, swap_out, {run(3, 3, 2)});
  this->submit(3, swap_out, {run(5, 5, 2)});
  const std::vector<CopyDone> done = this->await_done(3);
  ASSERT_EQ(done.size(), 3U);
  EXPECT_FALSE(done[0].error);
  EXPECT_EQ(done[1].token, 2U);
  EXPECT_EQ(done[1].error, Errc::io_failed);
  EXPECT_FALSE(done[2].error);
  EXPECT_TRUE(this->host_holds(1, 101));
  EXPECT_FALSE(this->host_holds(3, 203)) << "part of it was written";
  EXPECT_FALSE(this->host_holds(3, 103));
  EXPECT_TRUE(this->host_holds(4, 204)) << "but not all";
  EXPECT_TRUE(this->host_holds(6, 106));
}

TYPED_TEST_P(DeviceContract, tells_its_waker_and_a_former_one_no_more) {
  this->start();
  test::CountingWaker former;
  test::CountingWaker waker;
  this->driver_->device().set_waker(former);
  this->driver_->device().set_waker(waker);
  this->submit(1, swap_in, {run(0, 0, 1)});
  this->driver_->let_copies_happen();
  const auto give_up_at = std::chrono::steady_clock::now() + std::chrono::milliseconds{test::patience_ms};
  while (waker.woken() == 0 && std::chrono::steady_clock::now() < give_up_at) std::this_thread::yield();
  EXPECT_EQ(waker.woken(), 1U);
  EXPECT_EQ(former.woken(), 0U);
  this->driver_.reset();  // before its waker
}

REGISTER_TYPED_TEST_SUITE_P(DeviceContract, says_what_it_is, swaps_out_every_byte_and_touches_no_other,
                            swaps_in_every_byte_and_touches_no_other, copies_runs_that_cross_chunks_of_the_arena,
                            copies_the_layers_of_a_command_and_touches_no_others,
                            ends_the_commands_of_a_direction_in_order_each_exactly_once, moves_both_directions,
                            does_not_swap_out_what_compute_has_not_written_yet, does_not_swap_in_over_what_compute_still_reads,
                            keeps_the_order_of_a_direction_behind_a_command_that_waits, computes_in_order_of_launch,
                            reports_a_failed_command_and_goes_on_with_the_next, tells_its_waker_and_a_former_one_no_more);

template <class Driver>
using DeviceContractDeathTest = DeviceContract<Driver>;
TYPED_TEST_SUITE_P(DeviceContractDeathTest);

TYPED_TEST_P(DeviceContractDeathTest, stops_at_slots_and_points_that_do_not_exist) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  this->start();
  Device& device = this->driver_->device();
  EXPECT_DEATH(device.submit({1, swap_out, {}, {run(slots - 1, 0, 2)}}), "sources");
  EXPECT_DEATH(device.submit({1, swap_in, {}, {run(0, slots, 1)}}), "destinations");
  EXPECT_DEATH(device.submit({1, swap_in, {}, {}}), "empty");
  EXPECT_DEATH(device.submit({1, swap_in, Fence{1'000}, {run(0, 0, 1)}}), "after");
  const std::uint32_t all = device.info().pool().layers;
  EXPECT_DEATH(device.submit({1, swap_in, {}, {run(0, 0, 1)}, {}, LayerRange{all - 1, 2}}), "layers");
  EXPECT_DEATH(device.submit({1, swap_in, {}, {run(0, 0, 1)}, {}, LayerRange{0, 0}}), "layers");
}

REGISTER_TYPED_TEST_SUITE_P(DeviceContractDeathTest, stops_at_slots_and_points_that_do_not_exist);

}  // namespace terrace::contract
