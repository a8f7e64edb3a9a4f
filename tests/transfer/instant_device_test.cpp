// The Device contract, for a device on which nothing has to be waited for.
#include "transfer/emulated/instant_device.hpp"
#include "tests/transfer/support.hpp"
#include "transfer/host/host_arena.hpp"

#include <gtest/gtest.h>

#include <array>
#include <vector>

namespace terrace {
namespace {

using enum Direction;
using test::fill;
using test::holds;
using test::pattern;
using test::run;
using test::writes;

constexpr std::uint32_t instant_slots = 8;
constexpr std::size_t instant_block_bytes = 90;
constexpr std::uint32_t layers = 3;

class InstantDeviceTest : public testing::Test {
 protected:
  InstantDeviceTest() {
    for (std::uint32_t slot = 0; slot < instant_slots; ++slot) {
      device_.launch(writes(slot, 100 + slot));
      fill(arena_.block(SlotId{slot}), 200 + slot);
    }
  }

  std::vector<std::byte> device_block(std::uint32_t slot) {
    std::vector<std::byte> bytes;
    device_.launch([&](BlockAccess& access) {
      const auto block = access.read(SlotId{slot}, {});
      bytes.assign(block.begin(), block.end());
    });
    return bytes;
  }

  HostArena arena_{instant_slots, Bytes{instant_block_bytes}};
  InstantDevice device_{std::array{PoolMemory{.slots = instant_slots, .host = &arena_, .layers = layers}}};
};

TEST_F(InstantDeviceTest, has_copied_and_computed_when_the_call_returns) {
  const Fence before = device_.reached();
  const Fence written = device_.launch(writes(4, 999));
  EXPECT_LT(before, written);
  EXPECT_EQ(device_.reached(), written);
  EXPECT_EQ(device_.after_all_work(), written);
  device_.submit({1, swap_out, written, {run(4, 0, 2)}});
  EXPECT_TRUE(holds(arena_.block(SlotId{0}), 999));
  EXPECT_TRUE(holds(arena_.block(SlotId{1}), 105));
  EXPECT_TRUE(holds(arena_.block(SlotId{2}), 202)) << "it touches no other";
  device_.submit({2, swap_in, {}, {run(7, 3, 1)}});
  EXPECT_TRUE(holds(device_block(3), 207));
  EXPECT_TRUE(holds(device_block(2), 102)) << "it touches no other";
}

TEST_F(InstantDeviceTest, copies_the_layers_of_a_command_alone) {
  CopyCommand command{1, swap_out, {}, {run(0, 0, 1)}};
  command.layers = LayerRange{1, 1};
  device_.submit(std::move(command));
  const auto block = arena_.block(SlotId{0});
  for (std::size_t at = 0; at < block.size(); ++at) {
    const bool is_inside = at * layers / instant_block_bytes == 1;
    EXPECT_EQ(block[at], pattern(is_inside ? 100 : 200, at)) << at;
  }
}

TEST_F(InstantDeviceTest, reports_commands_in_order_each_once_and_tells_its_waker) {
  test::CountingWaker waker;
  device_.set_waker(waker);
  device_.submit({5, swap_out, {}, {run(0, 0, 1)}});
  device_.submit({6, swap_in, {}, {run(1, 1, 1)}});
  EXPECT_EQ(waker.woken(), 2U);
  std::vector<CopyDone> done;
  ASSERT_EQ(device_.poll(done), 2U);
  EXPECT_EQ(done[0].token, 5U);
  EXPECT_EQ(done[1].token, 6U);
  EXPECT_FALSE(done[0].error || done[1].error);
  EXPECT_EQ(device_.poll(done), 0U);
}

using InstantDeviceDeathTest = InstantDeviceTest;

TEST_F(InstantDeviceDeathTest, stops_at_slots_and_points_that_do_not_exist) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_DEATH(device_.submit({1, swap_out, {}, {run(instant_slots - 1, 0, 2)}}), "sources");
  EXPECT_DEATH(device_.submit({1, swap_in, Fence{1'000}, {run(0, 0, 1)}}), "after");
}

}  // namespace
}  // namespace terrace
