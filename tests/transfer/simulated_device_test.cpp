#include "tests/simulated/simulated_device.hpp"
#include "tests/transfer/support.hpp"
#include "transfer/host/host_arena.hpp"

#include <gtest/gtest.h>

#include <stdexcept>
#include <vector>

namespace terrace {
namespace {

using enum Direction;
using Part = SimulatedDevice::Part;
using test::fill;
using test::holds;
using test::pattern;
using test::run;
using test::writes;

constexpr std::uint32_t simulated_slots = 8;

class SimulatedDeviceTest : public testing::Test {
 protected:
  SimulatedDeviceTest() {
    for (std::uint32_t slot = 0; slot < simulated_slots; ++slot) {
      device_.launch(writes(slot, 100 + slot));
      fill(arena_.block(SlotId{slot}), 200 + slot);
    }
    device_.run();
  }

  std::vector<std::uint64_t> done() {
    std::vector<CopyDone> polled;
    device_.poll(polled);
    std::vector<std::uint64_t> tokens;
    for (const CopyDone& each : polled) tokens.push_back(each.token);
    return tokens;
  }
  bool host_holds(std::uint32_t slot, std::uint64_t seed) { return holds(arena_.block(SlotId{slot}), seed); }
  /// Number of leading bytes of the host slot that have the pattern of the seed.
  std::size_t arrived(std::uint32_t slot, std::uint64_t seed) {
    const std::span<const std::byte> block = arena_.block(SlotId{slot});
    std::size_t at = 0;
    while (at < block.size() && block[at] == pattern(seed, at)) ++at;
    return at;
  }

  HostArena arena_{simulated_slots, Bytes{90}};
  SimulatedDevice device_{simulated_slots, arena_, 3};
};

TEST_F(SimulatedDeviceTest, does_nothing_until_a_step) {
  EXPECT_TRUE(device_.step_options().empty());
  const Fence point = device_.launch([](BlockAccess&) { FAIL() << "nobody stepped"; });
  device_.submit({1, swap_out, {}, {run(0, 0, 1)}});
  EXPECT_EQ(device_.step_options(), (std::vector{Part::compute, Part::swap_out}));
  EXPECT_LT(device_.reached(), point);
  EXPECT_TRUE(done().empty());
  EXPECT_TRUE(host_holds(0, 200));
}

TEST_F(SimulatedDeviceTest, shows_a_copy_half_way) {
  device_.submit({1, swap_out, {}, {run(0, 5, 1), run(3, 2, 1)}});
  device_.step(Part::swap_out);
  EXPECT_EQ(arrived(5, 100), 30U);
  device_.step(Part::swap_out);
  EXPECT_EQ(arrived(5, 100), 60U);
  device_.step(Part::swap_out);
  EXPECT_TRUE(host_holds(5, 100));
  EXPECT_TRUE(host_holds(2, 202));
  EXPECT_TRUE(done().empty()) << "a block is still to come";
  for (int i = 0; i < 3; ++i) device_.step(Part::swap_out);
  EXPECT_TRUE(host_holds(2, 103));
  EXPECT_EQ(done(), std::vector<std::uint64_t>{1});
}

TEST_F(SimulatedDeviceTest, offers_a_copy_only_once_its_point_is_reached) {
  const Fence first = device_.launch(writes(0, 1));
  const Fence second = device_.launch(writes(0, 2));
  device_.submit({1, swap_out, first, {run(0, 0, 1)}});
  device_.submit({2, swap_in, second, {run(1, 1, 1)}});
  EXPECT_EQ(device_.step_options(), std::vector{Part::compute});
  device_.step(Part::compute);
  EXPECT_EQ(device_.step_options(), (std::vector{Part::compute, Part::swap_out}));
  device_.step(Part::compute);
  EXPECT_EQ(device_.step_options(), (std::vector{Part::swap_out, Part::swap_in}));
}

TEST_F(SimulatedDeviceTest, fails_the_next_command_with_part_of_its_bytes_written) {
  device_.fail_next(swap_out);
  device_.submit({1, swap_in, {}, {run(0, 0, 1)}});
  device_.submit({2, swap_out, {}, {run(1, 1, 1)}});
  device_.submit({3, swap_out, {}, {run(2, 2, 1)}});
  device_.run();
  std::vector<CopyDone> polled;
  device_.poll(polled);
  ASSERT_EQ(polled.size(), 3U);
  for (const CopyDone& each : polled) EXPECT_EQ(each.error, each.token == 2 ? ErrorCode{Errc::io_failed} : ErrorCode{});
  EXPECT_EQ(arrived(1, 101), 15U);
  EXPECT_TRUE(host_holds(2, 102));
}

TEST_F(SimulatedDeviceTest, fails_a_command_half_way_too) {
  device_.submit({1, swap_out, {}, {run(1, 1, 2)}});
  for (int i = 0; i < 3; ++i) device_.step(Part::swap_out);
  device_.fail_next(swap_out);
  device_.run();
  std::vector<CopyDone> polled;
  device_.poll(polled);
  ASSERT_EQ(polled.size(), 1U);
  EXPECT_EQ(polled[0].error, Errc::io_failed);
  EXPECT_TRUE(host_holds(1, 101));
  EXPECT_EQ(arrived(2, 102), 15U);
}

TEST_F(SimulatedDeviceTest, freezes_a_stuck_stream_where_it_is) {
  device_.submit({1, swap_out, {}, {run(0, 0, 1)}});
  device_.submit({2, swap_in, {}, {run(1, 1, 1)}});
  device_.step(Part::swap_out);
  device_.stuck(swap_out, true);
  device_.run();
  EXPECT_EQ(done(), std::vector<std::uint64_t>{2});
  EXPECT_EQ(arrived(0, 100), 30U);
  EXPECT_EQ(device_.commands(swap_out), 1U);
  device_.stuck(swap_out, false);
  device_.run();
  EXPECT_EQ(done(), std::vector<std::uint64_t>{1});
  EXPECT_TRUE(host_holds(0, 100));
}

TEST_F(SimulatedDeviceTest, holds_back_the_word_of_what_it_has_done) {
  test::CountingWaker waker;
  device_.set_waker(waker);
  device_.delay_completion(swap_out, true);
  device_.submit({1, swap_out, {}, {run(0, 0, 1)}});
  device_.submit({2, swap_in, {}, {run(1, 1, 1)}});
  device_.run();
  EXPECT_TRUE(host_holds(0, 100));
  EXPECT_EQ(done(), std::vector<std::uint64_t>{2});
  EXPECT_EQ(waker.woken(), 1U);
  device_.delay_completion(swap_out, false);
  EXPECT_EQ(waker.woken(), 2U);
  EXPECT_EQ(done(), std::vector<std::uint64_t>{1});
  device_.delay_completion(swap_out, false);
  EXPECT_TRUE(done().empty()) << "it was said already";
  device_.submit({3, swap_out, {}, {run(0, 0, 1)}});
  device_.run();
  EXPECT_EQ(done(), std::vector<std::uint64_t>{3});
}

TEST_F(SimulatedDeviceTest, lets_work_launch_more_work) {
  Fence inner;
  const Fence outer = device_.launch([&](BlockAccess&) { inner = device_.launch(writes(0, 5)); });
  device_.run();
  EXPECT_GT(inner, outer);
  EXPECT_EQ(device_.reached(), inner);
}

TEST_F(SimulatedDeviceTest, takes_at_least_one_step_a_block) {
  EXPECT_THROW((SimulatedDevice{1, arena_, 0}), std::invalid_argument);
}

using SimulatedDeviceDeathTest = SimulatedDeviceTest;

TEST_F(SimulatedDeviceDeathTest, stops_at_a_step_that_is_no_option) {
  EXPECT_DEATH(device_.step(Part::compute), "launched_");
  EXPECT_DEATH(device_.step(Part::swap_in), "can_step");
}

}  // namespace
}  // namespace terrace
