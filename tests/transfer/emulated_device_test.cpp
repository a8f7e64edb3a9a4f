#include "transfer/emulated/emulated_device.hpp"
#include "tests/transfer/support.hpp"
#include "transfer/host/host_arena.hpp"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <chrono>
#include <optional>
#include <stdexcept>
#include <thread>
#include <vector>

namespace terrace {
namespace {

using enum Direction;
using test::fill;
using test::holds;
using test::pattern;
using test::run;
using test::writes;

constexpr Bytes emulated_block{4096};
constexpr std::uint32_t emulated_slots = 16;

/// A link whose other direction has no limit and never fails.
LinkModel link_out(const LinkDirection& out) {
  LinkModel link;
  link[swap_out] = out;
  return link;
}

class EmulatedDeviceTest : public testing::Test {
 protected:
  ~EmulatedDeviceTest() override { device_.reset(); }

  void start(EmulatedFaults faults = {}, LinkModel link = {}) {
    device_.emplace(emulated_slots, arena_, EmulatedOptions{.name = "emulated", .link = link, .faults = faults});
    device_->set_waker(waker_);
    for (std::uint32_t slot = 0; slot < emulated_slots; ++slot) fill(arena_.block(SlotId{slot}), 200 + slot);
  }
  /// Fills each device slot with pattern 100 + slot.
  void write_device() {
    Fence last;
    for (std::uint32_t slot = 0; slot < emulated_slots; ++slot) last = device_->launch(writes(slot, 100 + slot));
    test::await_compute(*device_, last);
  }
  std::vector<CopyDone> await_done(std::size_t wanted) {
    return test::await<CopyDone>(waker_, wanted, [this](auto& done) { return device_->poll(done); });
  }
  std::vector<std::byte> device_bytes(std::uint32_t slot) {
    std::vector<std::byte> bytes;
    test::await_compute(*device_, device_->launch([&](BlockAccess& access) {
      const std::span<const std::byte> block = access.read(SlotId{slot}, {});
      bytes.assign(block.begin(), block.end());
    }));
    return bytes;
  }
  /// Number of bits of the host slot that differ from the pattern of the seed.
  int wrong_bits(std::uint32_t slot, std::uint64_t seed) {
    int wrong = 0;
    const std::span<const std::byte> block = arena_.block(SlotId{slot});
    for (std::size_t at = 0; at < block.size(); ++at) {
      wrong += std::popcount(std::to_integer<unsigned char>(block[at] ^ pattern(seed, at)));
    }
    return wrong;
  }
  /// Swaps out a slot that compute is about to write, and waits for its fence. Returns whether the host then has what compute
  /// wrote.
  bool swap_out_after_compute() {
    const Fence written = device_->launch(writes(3, 999));
    device_->submit({1, swap_out, written, {run(3, 3, 1)}});
    EXPECT_EQ(await_done(1).size(), 1U);
    return holds(arena_.block(SlotId{3}), 999);
  }

  HostArena arena_{emulated_slots, emulated_block, emulated_block * 6};
  EventFdWaker waker_;
  std::optional<EmulatedDevice> device_;
};

TEST_F(EmulatedDeviceTest, plants_no_fault_unless_told_to) {
  start();
  write_device();
  for (const Direction direction : {swap_out, swap_in}) {
    device_->submit({1, direction, {}, {run(0, 0, emulated_slots)}});
    const std::vector<CopyDone> done = await_done(1);
    ASSERT_EQ(done.size(), 1U);
    EXPECT_FALSE(done[0].error);
  }
  for (std::uint32_t slot = 0; slot < emulated_slots; ++slot) {
    EXPECT_EQ(wrong_bits(slot, 100 + slot), 0) << slot;
    EXPECT_TRUE(holds(device_bytes(slot), 100 + slot)) << slot;
  }
  EXPECT_TRUE(swap_out_after_compute());
  EXPECT_EQ(device_->planted(), PlantedFaults{});
}

TEST_F(EmulatedDeviceTest, flips_exactly_one_bit_of_every_nth_block_swapped_out) {
  start({.flip_every = 3});
  write_device();
  device_->submit({1, swap_out, {}, {run(0, 0, 4), run(8, 8, 1)}});
  device_->submit({2, swap_out, {}, {run(4, 4, 4)}});
  ASSERT_EQ(await_done(2).size(), 2U);
  const int expected[] = {0, 0, 1, 0, 1, 0, 0, 1, 0};  // blocks in their order: slots 0 to 3, 8, 4 to 7
  for (std::uint32_t slot = 0; slot < 9; ++slot) EXPECT_EQ(wrong_bits(slot, 100 + slot), expected[slot]) << slot;
  EXPECT_EQ(device_->planted(), PlantedFaults{.flipped = 3});
}

TEST_F(EmulatedDeviceTest, flips_nothing_that_is_swapped_in) {
  start({.flip_every = 1});
  device_->submit({1, swap_in, {}, {run(0, 0, 2)}});
  ASSERT_EQ(await_done(1).size(), 1U);
  EXPECT_TRUE(holds(device_bytes(1), 201));
  EXPECT_EQ(device_->planted(), PlantedFaults{});
}

TEST_F(EmulatedDeviceTest, reports_a_late_swap_in_done_before_its_bytes_have_moved) {
  start({.late_every = 2, .late_by = std::chrono::hours{1}});
  write_device();
  device_->submit({1, swap_in, {}, {run(1, 1, 1)}});
  device_->submit({2, swap_in, {}, {run(2, 2, 1)}});
  ASSERT_EQ(await_done(2).size(), 2U);
  EXPECT_TRUE(holds(device_bytes(1), 201));
  EXPECT_TRUE(holds(device_bytes(2), 102)) << "still what was there before";
  EXPECT_EQ(device_->planted(), PlantedFaults{.late = 1});
}

TEST_F(EmulatedDeviceTest, moves_late_bytes_in_the_end) {
  start({.late_every = 1, .late_by = std::chrono::microseconds{100}});
  write_device();
  device_->submit({1, swap_in, {}, {run(2, 2, 1)}});
  ASSERT_EQ(await_done(1).size(), 1U);
  while (device_->planted().late_landed == 0) std::this_thread::yield();
  EXPECT_TRUE(holds(device_bytes(2), 202));
}

TEST_F(EmulatedDeviceTest, swaps_out_stale_bytes_where_fences_are_ignored) {
  // Compute is so late that the copy certainly comes first.
  start({.ignore_fences = true, .compute_lag = std::chrono::hours{1}});
  EXPECT_FALSE(swap_out_after_compute());
  EXPECT_EQ(device_->planted(), PlantedFaults{.unfenced = 1});
}

TEST_F(EmulatedDeviceTest, fails_every_nth_command_after_half_of_its_first_block) {
  start({}, link_out({.fail_every = 3}));
  write_device();
  for (std::uint32_t i = 0; i < 6; ++i) device_->submit({i, swap_out, {}, {run(2 * i, 2 * i, 2)}});
  const std::vector<CopyDone> done = await_done(6);
  ASSERT_EQ(done.size(), 6U);
  for (std::uint32_t i = 0; i < 6; ++i) {
    EXPECT_EQ(done[i].error, i % 3 == 2 ? ErrorCode{Errc::io_failed} : ErrorCode{}) << i;
  }
  const std::span<const std::byte> half = arena_.block(SlotId{4});
  for (std::size_t at = 0; at < half.size(); ++at) {
    ASSERT_EQ(half[at], pattern(at < half.size() / 2 ? 104 : 204, at)) << at;
  }
  EXPECT_TRUE(holds(arena_.block(SlotId{5}), 205));
  EXPECT_EQ(device_->link_counts(swap_out), LinkCounts{.failed = 2});
  EXPECT_EQ(device_->planted(), PlantedFaults{});
}

TEST_F(EmulatedDeviceTest, moves_every_byte_over_a_link_with_a_rate) {
  start({}, link_out({.bytes_per_second = per_second(MiB * 64), .latency = std::chrono::microseconds{50}}));
  write_device();
  for (std::uint32_t slot = 0; slot < emulated_slots; ++slot) device_->submit({slot, swap_out, {}, {run(slot, slot, 1)}});
  ASSERT_EQ(await_done(emulated_slots).size(), emulated_slots);
  for (std::uint32_t slot = 0; slot < emulated_slots; ++slot) EXPECT_TRUE(holds(arena_.block(SlotId{slot}), 100 + slot));
}

TEST_F(EmulatedDeviceTest, keeps_order_and_every_byte_over_a_link_with_jitter_and_stalls) {
  start({}, link_out({.jitter_max = std::chrono::microseconds{300}, .stall_every = 4, .stall = std::chrono::milliseconds{1}}));
  write_device();
  for (std::uint32_t slot = 0; slot < emulated_slots; ++slot) device_->submit({slot, swap_out, {}, {run(slot, slot, 1)}});
  const std::vector<CopyDone> done = await_done(emulated_slots);
  ASSERT_EQ(done.size(), emulated_slots);
  for (std::uint32_t slot = 0; slot < emulated_slots; ++slot) {
    EXPECT_EQ(done[slot].token, slot);
    if (slot % 4 == 3) {
      EXPECT_GE(done[slot].took, std::chrono::milliseconds{1}) << slot;
    }
    EXPECT_TRUE(holds(arena_.block(SlotId{slot}), 100 + slot)) << slot;
  }
  EXPECT_EQ(device_->link_counts(swap_out), LinkCounts{.stalled = emulated_slots / 4});
  EXPECT_EQ(device_->link_counts(swap_in), LinkCounts{});
}

TEST_F(EmulatedDeviceTest, stands_still_in_one_direction_only) {
  start({}, link_out({.stall_every = 2, .stall = std::chrono::hours{1}}));
  write_device();
  for (std::uint32_t slot = 0; slot < 4; ++slot) device_->submit({slot, swap_out, {}, {run(slot, slot, 1)}});
  for (std::uint32_t slot = 8; slot < 12; ++slot) device_->submit({slot, swap_in, {}, {run(slot, slot, 1)}});
  EXPECT_EQ(await_done(5).size(), 5U) << "one before the stall, and all of the other direction";
  device_.reset();
  EXPECT_TRUE(holds(arena_.block(SlotId{0}), 100));
  for (std::uint32_t slot = 1; slot < 4; ++slot) EXPECT_TRUE(holds(arena_.block(SlotId{slot}), 200 + slot)) << slot;
}

TEST_F(EmulatedDeviceTest, drops_what_is_queued_when_it_is_destroyed) {
  // One byte per second: the first command would take the link for an hour. The other direction has its own rate.
  start({}, link_out({.bytes_per_second = BytesPerSecond{1}}));
  write_device();
  device_->submit({1, swap_out, {}, {run(0, 0, 1)}});
  device_->submit({2, swap_out, {}, {run(1, 1, 1)}});
  device_->submit({3, swap_in, {}, {run(2, 2, 1)}});
  const std::vector<CopyDone> done = await_done(1);
  ASSERT_EQ(done.size(), 1U);
  EXPECT_EQ(done[0].token, 3U);
  device_.reset();
  EXPECT_TRUE(holds(arena_.block(SlotId{0}), 200));
  EXPECT_TRUE(holds(arena_.block(SlotId{1}), 201));
}

TEST_F(EmulatedDeviceTest, drops_late_bytes_and_computations_to_come_when_it_is_destroyed) {
  start({.late_every = 1, .late_by = std::chrono::hours{1}, .ignore_fences = true, .compute_lag = std::chrono::hours{1}});
  device_->submit({1, swap_in, {}, {run(2, 2, 1)}});
  bool computed = false;
  const Fence point = device_->launch([&](BlockAccess&) { computed = true; });
  device_->submit({2, swap_out, point, {run(2, 2, 1)}});
  ASSERT_EQ(await_done(2).size(), 2U);
  EXPECT_EQ(device_->planted(), (PlantedFaults{.late = 1, .unfenced = 1}));
  device_.reset();
  EXPECT_FALSE(computed);
}

TEST_F(EmulatedDeviceTest, must_have_layers_that_divide_a_block) {
  EXPECT_THROW((EmulatedDevice{std::array{PoolMemory{.slots = emulated_slots, .host = &arena_, .layers = 3}}}),
               std::invalid_argument);
  EXPECT_THROW((EmulatedDevice{std::array{PoolMemory{.slots = emulated_slots, .host = &arena_, .layers = 0}}}),
               std::invalid_argument);
  EXPECT_EQ((EmulatedDevice{std::array{PoolMemory{.slots = emulated_slots, .host = &arena_, .layers = 8}}}.info().pool().layers),
            8U);
}

TEST_F(EmulatedDeviceTest, has_copied_and_computed_when_the_call_returns_if_it_is_instant) {
  EmulatedDevice device{emulated_slots, arena_, {.instant = true}};
  test::CountingWaker waker;
  device.set_waker(waker);
  for (std::uint32_t slot = 0; slot < emulated_slots; ++slot) fill(arena_.block(SlotId{slot}), 200 + slot);
  const Fence before = device.reached();
  const Fence written = device.launch(writes(4, 999));
  EXPECT_LT(before, written);
  EXPECT_EQ(device.reached(), written);
  EXPECT_EQ(device.after_all_work(), written);
  device.submit({5, swap_out, written, {run(4, 0, 1)}});
  EXPECT_TRUE(holds(arena_.block(SlotId{0}), 999));
  device.submit({6, swap_in, {}, {run(7, 3, 1)}});
  bool swapped_in = false;
  device.launch([&](BlockAccess& access) { swapped_in = holds(access.read(SlotId{3}, {}), 207); });
  EXPECT_TRUE(swapped_in);
  const Fence marked = device.signal(StreamRef{&waker}).value();
  EXPECT_EQ(device.reached(), marked) << "every stream stands for the calling thread";
  EXPECT_TRUE(device.await(StreamRef{&waker}, device.reached()));
  EXPECT_TRUE(device.await(StreamRef{&waker}, std::array<std::uint64_t, 2>{5, 6}));
  EXPECT_EQ(device.check_relocation({}).error(), Errc::in_use) << "a command was not collected";

  EXPECT_EQ(waker.woken(), 2U);
  std::vector<CopyDone> done;
  ASSERT_EQ(device.poll(done), 2U);
  EXPECT_EQ(done[0].token, 5U);
  EXPECT_EQ(done[1].token, 6U);
  EXPECT_FALSE(done[0].error || done[1].error);
  EXPECT_EQ(device.poll(done), 0U);
  EXPECT_EQ(device.await(StreamRef{}, std::array<std::uint64_t, 1>{5}).error(), Errc::not_found);
}

TEST_F(EmulatedDeviceTest, must_have_a_slot) { EXPECT_THROW((EmulatedDevice{0, arena_}), std::invalid_argument); }

}  // namespace
}  // namespace terrace
