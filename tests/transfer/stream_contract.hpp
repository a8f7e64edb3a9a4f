#pragma once

#include "terrace/device.hpp"
#include "tests/transfer/support.hpp"
#include "transfer/host/host_arena.hpp"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

/// The contract of every Device for an engine that has memory and streams of its own: each byte is where the regions say, and
/// streams and copies wait for each other on the device. A driver has the memory and the streams:
///
///     Device& device();
///     StreamRef stream(int number);               three streams, 0 to 2
///     void run(int stream, std::function<void()>);
///     void synchronize(int stream);
///     std::uint64_t allocate(std::size_t bytes);  memory of the engine, as the device addresses it
///     std::byte* at(std::uint64_t address);
///     void open(const EnginePool&);               opens the device
namespace terrace::contract {

inline constexpr std::uint32_t engine_slots = 12;
inline constexpr std::uint32_t engine_layers = 3;
/// Odd sizes. The parts of a layer are not adjacent on the host: all K come before all V.
inline constexpr std::uint64_t k_bytes = 101;
inline constexpr std::uint64_t v_bytes = 54;
inline constexpr Bytes engine_block_bytes{engine_layers * (k_bytes + v_bytes)};

struct EnginePool {
  HostArena& arena;
  HostShare share;
  std::vector<DeviceRegion> regions;
};

template <class Driver>
class StreamContract : public testing::Test {
 protected:
  using Gate = test::Gate;

  StreamContract() {
    regions_ = arrays();
    driver_.open({arena_, {Bytes{before}, engine_block_bytes}, regions_});
    driver_.device().set_waker(waker_);
    for (std::uint32_t slot = 0; slot < engine_slots; ++slot) {
      write(regions_, slot, 100 + slot);
      test::fill(host_block(slot), 200 + slot);
      test::fill(arena_.block(SlotId{slot}).first(before), 300 + slot);
    }
  }
  ~StreamContract() override {
    for (const Gate& gate : gates_) gate.open();
    for (std::uint32_t slot = 0; slot < engine_slots; ++slot) {
      EXPECT_TRUE(test::holds(arena_.block(SlotId{slot}).first(before), 300 + slot)) << "another rank's share";
    }
  }

  /// One array has the K of all layers, block by block; the V of each layer has an array of its own. Blocks have gaps.
  std::vector<DeviceRegion> arrays() {
    std::vector<DeviceRegion> regions;
    const std::uint64_t stride = engine_layers * k_bytes + 16;
    const std::uint64_t k = driver_.allocate(engine_slots * stride);
    for (std::uint32_t layer = 0; layer < engine_layers; ++layer)
      regions.push_back({k + layer * k_bytes, stride, k_bytes, layer});
    for (std::uint32_t layer = 0; layer < engine_layers; ++layer) {
      regions.push_back({driver_.allocate(engine_slots * (v_bytes + layer)), v_bytes + layer, v_bytes, layer});
    }
    return regions;
  }
  /// The engine's own view of its block, in the order of the host's bytes.
  template <class Byte>
  void each_byte(const std::vector<DeviceRegion>& regions, std::uint32_t slot, const Byte& byte) {
    std::size_t at = 0;
    for (const DeviceRegion& region : regions) {
      std::byte* const part = driver_.at(region.base + slot * region.stride);
      for (std::size_t i = 0; i < region.bytes; ++i) byte(part[i], at++, region.layer);
    }
  }
  void write(const std::vector<DeviceRegion>& regions, std::uint32_t slot, std::uint64_t seed) {
    each_byte(regions, slot, [seed](std::byte& byte, std::size_t at, std::uint32_t) { byte = test::pattern(seed, at); });
  }
  /// True if these layers of the block have the pattern.
  bool has(const std::vector<DeviceRegion>& regions, std::uint32_t slot, std::uint64_t seed, LayerRange wanted) {
    bool same = true;
    each_byte(regions, slot, [&](std::byte& byte, std::size_t at, std::uint32_t layer) {
      if (layer - wanted.first < wanted.count) same = same && byte == test::pattern(seed, at);
    });
    return same;
  }
  bool has(std::uint32_t slot, std::uint64_t seed) { return has(regions_, slot, seed, {0, engine_layers}); }
  std::span<std::byte> host_block(std::uint32_t slot) {
    return arena_.block(SlotId{slot}).subspan(before, count(engine_block_bytes));
  }
  bool host_has(std::uint32_t slot, std::uint64_t seed) { return test::holds(host_block(slot), seed); }

  /// Holds a stream until the gate is opened. Gates that are still closed are opened at the end.
  Gate hold(int stream) {
    gates_.emplace_back();
    driver_.run(stream, [gate = gates_.back()] { gate.wait(); });
    return gates_.back();
  }
  Fence signal(int stream) {
    const Result<Fence> point = driver_.device().signal(driver_.stream(stream));
    EXPECT_TRUE(point);
    return point ? *point : Fence{};
  }
  void submit(std::uint64_t token, Direction direction, SlotRun run, Fence after, std::optional<LayerRange> only = {}) {
    driver_.device().submit({token, direction, after, {run}, PoolId{}, only});
  }
  Result<void> await(int stream, std::vector<std::uint64_t> tokens) {
    return driver_.device().await(driver_.stream(stream), tokens);
  }
  /// Awaits as an engine does: again as long as the copies are not on a stream.
  void await_soon(int stream, const std::vector<std::uint64_t>& tokens) {
    const auto give_up_at = std::chrono::steady_clock::now() + std::chrono::milliseconds{test::patience_ms};
    Result<void> ordered = await(stream, tokens);
    while (!ordered && ordered.error() == Errc::not_ready && std::chrono::steady_clock::now() < give_up_at) {
      std::this_thread::yield();
      ordered = await(stream, tokens);
    }
    EXPECT_TRUE(ordered) << ordered.error();
  }
  std::vector<CopyDone> await_done(std::size_t wanted) {
    return test::await<CopyDone>(waker_, wanted, [this](auto& done) { return driver_.device().poll(done); });
  }
  /// A time that is long for work that is allowed to run, and short for a test.
  static void let_time_pass() { std::this_thread::sleep_for(std::chrono::milliseconds{20}); }

  static constexpr std::uint64_t before = 77;  ///< bytes of each host slot that belong to another rank
  HostArena arena_{engine_slots, engine_block_bytes + Bytes{before}, (engine_block_bytes + Bytes{before}) * 5};
  EventFdWaker waker_;
  Driver driver_;
  std::vector<DeviceRegion> regions_;
  std::vector<Gate> gates_;
};

TYPED_TEST_SUITE_P(StreamContract);

TYPED_TEST_P(StreamContract, gathers_and_scatters_the_regions_by_layer_too) {
  this->submit(1, Direction::swap_out, test::run(3, 6, 2), {});
  this->submit(2, Direction::swap_in, test::run(9, 0, 2), {}, LayerRange{1, 2});
  this->submit(3, Direction::swap_out, test::run(5, 1, 1), {}, LayerRange{0, 1});
  for (const CopyDone& done : this->await_done(3)) EXPECT_FALSE(done.error);
  EXPECT_TRUE(this->host_has(6, 103) && this->host_has(7, 104) && this->host_has(8, 208));
  for (const std::uint32_t slot : {0U, 1U}) {
    EXPECT_TRUE(this->has(this->regions_, slot, 209 + slot, {1, 2}));
    EXPECT_TRUE(this->has(this->regions_, slot, 100 + slot, {0, 1}));
  }
  std::size_t at = 0;
  for (const DeviceRegion& region : this->regions_) {
    for (std::size_t i = 0; i < region.bytes; ++i, ++at) {
      EXPECT_EQ(this->host_block(1)[at], test::pattern(region.layer == 0 ? 105 : 201, at)) << at;
    }
  }
}

TYPED_TEST_P(StreamContract, a_copy_waits_for_what_a_stream_was_given_before_it_was_marked) {
  const test::Gate gate = this->hold(0);
  this->driver_.run(0, [this] { this->write(this->regions_, 4, 999); });
  this->submit(1, Direction::swap_out, test::run(4, 5, 1), this->signal(0));
  this->let_time_pass();
  EXPECT_TRUE(this->host_has(5, 205));
  gate.open();
  EXPECT_FALSE(this->await_done(1).at(0).error);
  EXPECT_TRUE(this->host_has(5, 999));
}

TYPED_TEST_P(StreamContract, a_stream_waits_on_the_device_for_a_load) {
  const test::Gate gate = this->hold(0);
  this->submit(1, Direction::swap_in, test::run(3, 4, 1), this->signal(0));
  this->await_soon(1, {1});
  std::atomic<int> read{0};
  this->driver_.run(1, [&] { read = this->has(4, 203) ? 1 : 2; });
  this->let_time_pass();
  EXPECT_EQ(read, 0) << "the copy cannot have begun";
  gate.open();
  this->driver_.synchronize(1);
  EXPECT_EQ(read, 1);
  EXPECT_FALSE(this->await_done(1).at(0).error);
}

TYPED_TEST_P(StreamContract, a_stream_waits_before_it_writes_a_slot_that_is_still_copied_out) {
  const test::Gate gate = this->hold(0);
  this->submit(1, Direction::swap_out, test::run(4, 5, 1), this->signal(0));
  this->await_soon(1, {1});
  this->driver_.run(1, [this] { this->write(this->regions_, 4, 999); });
  this->let_time_pass();
  gate.open();
  this->driver_.synchronize(1);
  EXPECT_FALSE(this->await_done(1).at(0).error);
  EXPECT_TRUE(this->host_has(5, 104)) << "the copy came first";
  EXPECT_TRUE(this->has(4, 999));
}

TYPED_TEST_P(StreamContract, a_stream_waits_for_some_layers_and_not_for_later_ones) {
  const test::Gate first = this->hold(0);
  this->submit(1, Direction::swap_in, test::run(3, 4, 1), this->signal(0), LayerRange{0, 1});
  const test::Gate rest = this->hold(2);
  this->submit(2, Direction::swap_in, test::run(3, 4, 1), this->signal(2), LayerRange{1, 2});
  this->await_soon(1, {1});
  std::atomic<int> read{0};
  this->driver_.run(1, [&] { read = this->has(this->regions_, 4, 203, {0, 1}) ? 1 : 2; });
  this->let_time_pass();
  EXPECT_EQ(read, 0);
  first.open();
  this->driver_.synchronize(1);
  EXPECT_EQ(read, 1);
  EXPECT_TRUE(this->has(this->regions_, 4, 104, {1, 2})) << "they have not come yet";
  rest.open();
  this->await_soon(1, {2});
  this->driver_.synchronize(1);
  EXPECT_TRUE(this->has(4, 203));
  EXPECT_EQ(this->await_done(2).size(), 2U);
}

TYPED_TEST_P(StreamContract, a_stream_does_not_wait_for_a_copy_that_is_not_on_a_stream_yet) {
  const test::Gate gate;
  const Fence work = this->driver_.device().launch([gate](BlockAccess&) { gate.wait(); });
  this->submit(1, Direction::swap_in, test::run(3, 4, 1), work);
  this->submit(2, Direction::swap_in, test::run(5, 5, 1), {});
  this->let_time_pass();
  EXPECT_EQ(this->await(1, {1}).error(), Errc::not_ready);
  EXPECT_EQ(this->await(1, {2}).error(), Errc::not_ready) << "it goes after the first";
  EXPECT_EQ(this->driver_.device().await(this->driver_.stream(1), work).error(), Errc::not_ready);
  this->driver_.synchronize(1);  // it does not wait
  gate.open();
  this->await_soon(1, {1, 2});
  this->driver_.synchronize(1);
  EXPECT_TRUE(this->has(4, 203) && this->has(5, 205));
  EXPECT_EQ(this->await_done(2).size(), 2U);
}

TYPED_TEST_P(StreamContract, a_stream_waits_for_a_point_of_another_stream) {
  const test::Gate gate = this->hold(0);
  this->driver_.run(0, [this] { this->write(this->regions_, 4, 999); });
  const Fence written = this->signal(0);
  ASSERT_TRUE(this->driver_.device().await(this->driver_.stream(1), written));
  std::atomic<int> read{0};
  this->driver_.run(1, [&] { read = this->has(4, 999) ? 1 : 2; });
  this->let_time_pass();
  EXPECT_EQ(read, 0);
  gate.open();
  this->driver_.synchronize(1);
  EXPECT_EQ(read, 1);
  const Fence later{written.value() + 1};
  EXPECT_EQ(this->driver_.device().await(this->driver_.stream(1), later).error(), Errc::invalid_argument);
}

TYPED_TEST_P(StreamContract, knows_a_command_from_its_submission_until_its_end_was_reported) {
  EXPECT_EQ(this->await(1, {7}).error(), Errc::not_found);
  this->submit(7, Direction::swap_out, test::run(4, 5, 1), {});
  this->await_soon(1, {7});
  ASSERT_EQ(this->await_done(1).size(), 1U);
  EXPECT_EQ(this->await(1, {7}).error(), Errc::not_found);
  EXPECT_TRUE(this->await(1, {})) << "nothing is waited for";
  this->driver_.synchronize(1);
}

TYPED_TEST_P(StreamContract, takes_new_addresses_between_transfers_and_leaves_the_old_ones_alone) {
  const std::vector<DeviceRegion> awake = this->arrays();
  const std::vector<RelocatedPool> moved{{PoolId{}, awake}};
  Device& device = this->driver_.device();
  const test::Gate gate = this->hold(0);
  this->submit(1, Direction::swap_in, test::run(3, 4, 1), this->signal(0));
  EXPECT_EQ(device.relocate(moved).error(), Errc::in_use) << "a copy is under way";
  EXPECT_EQ(device.check_relocation(moved).error(), Errc::in_use);
  gate.open();
  EXPECT_FALSE(this->await_done(1).at(0).error);
  EXPECT_TRUE(this->has(4, 203));
  const test::Gate work_gate;
  const Fence work = device.launch([work_gate](BlockAccess&) { work_gate.wait(); });
  EXPECT_EQ(device.relocate(moved).error(), Errc::in_use) << "launched work may use the old ones";
  EXPECT_EQ(device.check_relocation(moved).error(), Errc::in_use);
  work_gate.open();
  test::await_compute(device, work);
  std::vector<RelocatedPool> wrong = moved;
  wrong[0].regions[2].stride += 16;
  EXPECT_THROW(static_cast<void>(device.relocate(wrong)), std::invalid_argument);
  EXPECT_THROW(static_cast<void>(device.check_relocation(wrong)), std::invalid_argument);
  wrong = {{PoolId{1}, awake}};
  EXPECT_THROW(static_cast<void>(device.relocate(wrong)), std::invalid_argument);
  ASSERT_TRUE(device.check_relocation(moved));
  this->submit(5, Direction::swap_in, test::run(7, 6, 1), {});
  EXPECT_FALSE(this->await_done(1).at(0).error);
  EXPECT_TRUE(this->has(6, 207)) << "a check moves nothing";
  ASSERT_TRUE(device.relocate(moved));
  this->submit(2, Direction::swap_in, test::run(8, 4, 1), {});
  EXPECT_FALSE(this->await_done(1).at(0).error);
  EXPECT_TRUE(this->has(awake, 4, 208, {0, engine_layers}));
  EXPECT_TRUE(this->has(4, 203));
}

TYPED_TEST_P(StreamContract, reads_and_writes_blocks_in_regions_for_launched_work) {
  bool same = false;
  Device& device = this->driver_.device();
  static_cast<void>(device.launch(test::writes(4, 999)));
  test::await_compute(device, device.launch([&](BlockAccess& access) {
    std::vector<std::byte> scratch(test::scratch_bytes);
    same = test::holds(access.read(SlotId{4}, scratch), 999);
  }));
  EXPECT_TRUE(same);
  EXPECT_TRUE(this->has(4, 999));
  EXPECT_TRUE(this->has(5, 105));
}

TYPED_TEST_P(StreamContract, says_that_it_does_not_see_the_work_of_the_engine) {
  const Fence reached = this->driver_.device().reached();
  EXPECT_GT(this->driver_.device().after_all_work(), reached) << "streams may touch the blocks, and no point marks them";
}

REGISTER_TYPED_TEST_SUITE_P(
    StreamContract, gathers_and_scatters_the_regions_by_layer_too, a_copy_waits_for_what_a_stream_was_given_before_it_was_marked,
    a_stream_waits_on_the_device_for_a_load, a_stream_waits_before_it_writes_a_slot_that_is_still_copied_out,
    a_stream_waits_for_some_layers_and_not_for_later_ones, a_stream_does_not_wait_for_a_copy_that_is_not_on_a_stream_yet,
    a_stream_waits_for_a_point_of_another_stream, knows_a_command_from_its_submission_until_its_end_was_reported,
    takes_new_addresses_between_transfers_and_leaves_the_old_ones_alone, reads_and_writes_blocks_in_regions_for_launched_work,
    says_that_it_does_not_see_the_work_of_the_engine);

}  // namespace terrace::contract
