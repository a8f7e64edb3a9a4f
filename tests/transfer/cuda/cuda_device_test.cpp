// The CUDA device with the fake driver: every copy method, and the order relative to compute.
#include "base/waker.hpp"
#include "tests/transfer/cuda/cuda_fixture.hpp"
#include "transfer/host/host_arena.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <tuple>

namespace terrace::test {
namespace {

using enum Direction;

class CudaMethods : public CudaOnFake, public testing::WithParamInterface<std::tuple<CopyMethod, Layout>> {
 protected:
  void start_method() { start(std::get<1>(GetParam()), std::get<0>(GetParam())); }
  /// A driver call that only this copy method makes.
  const char* call(Direction direction) {
    switch (std::get<0>(GetParam())) {
      case CopyMethod::batch: return "memcpy_batch_13000";
      case CopyMethod::plain: return direction == swap_out ? "cuMemcpyDtoHAsync" : "cuMemcpyHtoDAsync";
      default: return "cuLaunchKernel";
    }
  }
};

TEST_P(CudaMethods, move_every_byte_and_touch_no_other) {
  start_method();
  write_device();
  for (const Direction direction : {swap_out, swap_in}) {
    const int before = cuda_->calls(call(direction));
    submit(1, direction, {run(3, 1, 11), run(20, 14, 1), run(0, 20, 2)});
    ASSERT_FALSE(await_done(1).at(0).error);
    EXPECT_GT(cuda_->calls(call(direction)), before) << "went another way";
  }
  // The swap-out put device blocks 3 to 13 into host slots 1 to 11, block 20 into slot 14, and blocks 0 and 1 into slots 20 and
  // 21.
  const auto in_host = [](std::uint32_t slot) {
    if (slot >= 1 && slot < 12) return 100 + slot + 2;
    if (slot == 14) return 120U;
    if (slot == 20 || slot == 21) return 100 + slot - 20;
    return 200 + slot;
  };
  for (std::uint32_t slot = 0; slot < slots; ++slot) {
    EXPECT_TRUE(host_holds(slot, in_host(slot))) << slot;
    const bool came_back = (slot >= 1 && slot < 12) || slot == 14 || slot == 20 || slot == 21;
    const std::uint32_t from = slot < 12 ? slot + 2 : slot == 14 ? 20 : slot - 20;
    EXPECT_TRUE(device_holds(slot, came_back ? in_host(from) : 100 + slot)) << slot;
  }
}

TEST_P(CudaMethods, move_more_than_they_have_descriptors_for_behind_compute_that_waits) {
  start_method();
  write_device();
  const Gate gate;
  cuda_->run_on(engine_.get(), [gate] { gate.wait(); });
  const Result<Fence> point = device_->signal(engine_.get());
  ASSERT_TRUE(point);
  // More commands than the descriptor ring has pages. If a page were reused too early, bytes would go to the wrong place.
  constexpr std::uint32_t commands = 3 * TileRing::pages;
  for (std::uint32_t i = 0; i < commands; ++i) {
    const std::uint32_t slot = i * 7 % (slots - 1);
    submit(i, swap_out, {run(slot, i % 2 == 0 ? slot : slots - 2 - slot, 1)}, *point);
  }
  EXPECT_EQ(ended_soon(), 0U);
  gate.open();
  for (const CopyDone& done : await_done(commands)) EXPECT_FALSE(done.error);
  std::vector<std::uint64_t> expected;
  for (std::uint32_t slot = 0; slot < slots; ++slot) expected.push_back(200 + slot);
  for (std::uint32_t i = 0; i < commands; ++i) {
    const std::uint32_t slot = i * 7 % (slots - 1);
    expected[i % 2 == 0 ? slot : slots - 2 - slot] = 100 + slot;
  }
  for (std::uint32_t slot = 0; slot < slots; ++slot) EXPECT_TRUE(host_holds(slot, expected[slot])) << slot;
}

TEST_P(CudaMethods, tell_how_long_a_command_kept_its_stream_and_not_what_it_waited_for) {
  using std::chrono::nanoseconds;
  start_method();
  write_device();
  const Gate gate;
  cuda_->run_on(engine_.get(), [this, gate] {
    gate.wait();
    cuda_->pass_time(5'000'000);  // time of a computation
  });
  const Result<Fence> point = device_->signal(engine_.get());
  ASSERT_TRUE(point);
  submit(1, swap_out, {run(3, 1, 4)}, *point);
  submit(2, swap_out, {run(9, 9, 1)});
  EXPECT_EQ(ended_soon(), 0U);
  gate.open();
  const std::vector<CopyDone> done = await_done(2);
  // A byte takes a nanosecond. The driver reports milliseconds as a float.
  const auto bytes = static_cast<double>(count(block_bytes));
  EXPECT_NEAR(static_cast<double>(nanoseconds{done.at(0).took}.count()), 4 * bytes, 8);
  EXPECT_NEAR(static_cast<double>(nanoseconds{done.at(1).took}.count()), bytes, 8) << "nor what was before it on the stream";
}

INSTANTIATE_TEST_SUITE_P(FakeCuda, CudaMethods,
                         testing::Combine(testing::Values(CopyMethod::batch, CopyMethod::plain, CopyMethod::kernel,
                                                          CopyMethod::bulk_kernel),
                                          testing::Values(Layout::packed, Layout::regions)),
                         [](const auto& name) {
                           return std::string{to_string(std::get<0>(name.param))} +
                                  (std::get<1>(name.param) == Layout::packed ? "_packed" : "_regions");
                         });

TEST_F(CudaOnFake, every_method_leaves_the_gaps_between_an_engines_blocks_alone) {
  for (const CopyMethod method : {CopyMethod::batch, CopyMethod::plain, CopyMethod::kernel, CopyMethod::bulk_kernel}) {
    start(Layout::regions, method);
    submit(1, swap_in, {run(0, 0, slots)});
    ASSERT_FALSE(await_done(1).at(0).error);
    const std::vector<DeviceRegion>& regions = memory_->regions();
    for (const DeviceRegion& last : {regions[1], regions[2]}) {
      for (std::uint32_t slot = 0; slot < slots; ++slot) {
        const std::byte* const gap = cuda_->at(last.base + slot * last.stride) + last.bytes;
        for (int i = 0; i < 16; ++i) ASSERT_EQ(gap[i], std::byte{0xA5}) << to_string(method) << " " << slot;
      }
    }
    close();
  }
}

TEST_F(CudaOnFake, batches_go_through_the_older_call_where_the_driver_has_no_newer) {
  FakeCuda::Machine machine;
  machine.batch_13000 = false;
  make_machine(machine);
  start(Layout::regions, CopyMethod::batch);
  write_device();
  submit(1, swap_out, {run(3, 3, 4)});
  ASSERT_FALSE(await_done(1).at(0).error);
  EXPECT_TRUE(host_holds(6, 106));
  EXPECT_EQ(cuda_->calls("memcpy_batch_12080"), 1);
}

TEST_F(CudaOnFake, batches_name_host_memory_by_the_addresses_that_the_device_knows) {
  for (const bool batch_13000 : {true, false}) {
    FakeCuda::Machine machine;
    machine.host_addresses = false;
    machine.batch_13000 = batch_13000;
    make_machine(machine);
    start(Layout::regions, CopyMethod::batch);
    write_device();
    submit(1, swap_out, {run(3, 3, 4)});
    ASSERT_FALSE(await_done(1).at(0).error);
    EXPECT_TRUE(host_holds(6, 106));
    submit(2, swap_in, {run(7, 8, 1)});
    ASSERT_FALSE(await_done(1).at(0).error);
    EXPECT_TRUE(device_holds(8, 207));
    close();
  }
}

TEST_F(CudaOnFake, a_batch_of_many_descriptors_is_made_in_several_calls) {
  constexpr std::uint32_t blocks = 1025;
  make_machine();
  HostArena arena{2 * blocks, Bytes{64}, Bytes{64} * (2 * blocks)};
  CudaOptions options;
  options.only_method = CopyMethod::batch;
  DriverDevice device{cuda_->driver(), std::array{PoolMemory{.slots = blocks, .host = &arena}}, options};
  device.set_waker(waker_);
  std::vector<SlotRun> in;
  std::vector<SlotRun> out;
  for (std::uint32_t i = 0; i < blocks; ++i) {
    fill(arena.block(SlotId{i}), i);
    in.push_back(run(i, blocks - 1 - i, 1));
    out.push_back(run(blocks - 1 - i, blocks + i, 1));
  }
  device.submit({1, swap_in, {}, in});
  ASSERT_FALSE(test::await<CopyDone>(waker_, 1, [&](auto& done) { return device.poll(done); }).at(0).error);
  EXPECT_EQ(cuda_->calls("memcpy_batch_13000"), 3);
  device.submit({2, swap_out, {}, out});
  ASSERT_FALSE(test::await<CopyDone>(waker_, 1, [&](auto& done) { return device.poll(done); }).at(0).error);
  for (std::uint32_t i = 0; i < blocks; ++i) EXPECT_TRUE(holds(arena.block(SlotId{blocks + i}), i)) << i;
}

TEST_F(CudaOnFake, a_kernel_moves_more_tiles_than_a_page_of_the_ring_has) {
  // One block of 5000 tiles and a part of a tile.
  const Bytes large{5000 * std::uint64_t{kernel_tile_bytes} + 48};
  make_machine();
  HostArena arena{2, large, large};
  CudaOptions options;
  options.only_method = CopyMethod::kernel;
  DriverDevice device{cuda_->driver(), std::array{PoolMemory{.slots = 1, .host = &arena}}, options};
  EventFdWaker waker;
  device.set_waker(waker);
  fill(arena.block(SlotId{0}), 7);
  const auto copy = [&](Direction direction, SlotRun moved) {
    device.submit({1, direction, {}, {moved}});
    EXPECT_FALSE(test::await<CopyDone>(waker, 1, [&](auto& done) { return device.poll(done); }).at(0).error);
  };
  copy(swap_in, run(0, 0, 1));
  copy(swap_out, run(0, 1, 1));
  EXPECT_TRUE(holds(arena.block(SlotId{1}), 7));
}

TEST_F(CudaOnFake, pools_have_their_own_blocks_and_may_share_an_arena) {
  make_machine();
  HostArena other{4, Bytes{640}, Bytes{1280}};
  const std::array pools{PoolMemory{.slots = 4, .host = &arena_}, PoolMemory{.slots = 6, .host = &other},
                         PoolMemory{.slots = 2, .host = &arena_}};
  DriverDevice device{cuda_->driver(), pools, {}};
  device.set_waker(waker_);
  ASSERT_EQ(device.info().pools.size(), 3U);
  EXPECT_EQ(device.info().pool(PoolId{1}).block_bytes, Bytes{640});
  EXPECT_EQ(device.info().pool(PoolId{2}).slots, 2U);
  fill(other.block(SlotId{2}), 1);
  fill(arena_.block(SlotId{2}), 2);
  device.submit({1, swap_in, {}, {run(2, 1, 1)}, PoolId{1}});
  device.submit({2, swap_in, {}, {run(2, 1, 1)}, PoolId{2}});
  device.submit({3, swap_in, {}, {run(3, 1, 1)}, PoolId{0}});
  ASSERT_EQ(test::await<CopyDone>(waker_, 3, [&](auto& done) { return device.poll(done); }).size(), 3U);
  bool first = false;
  bool second = false;
  test::await_compute(device, device.launch([&](BlockAccess& access) {
    std::vector<std::byte> scratch(count(block_bytes));
    first = holds(access.read(PoolId{1}, SlotId{1}, scratch), 1);
    second = holds(access.read(PoolId{2}, SlotId{1}, scratch), 2);
  }));
  EXPECT_TRUE(first);
  EXPECT_TRUE(second);
}

TEST_F(CudaOnFake, layers_move_by_their_regions_wherever_those_lie) {
  make_machine();
  // Two layers: all K, then all V, each in its own array.
  constexpr std::uint64_t part = 640;
  constexpr std::uint32_t blocks = 4;
  HostArena arena{blocks, Bytes{4 * part}, Bytes{8 * part}};
  const DeviceMemory memory = allocate_device(cuda_->driver(), Bytes{4 * part * blocks}, "four arrays");
  PoolMemory pool{.slots = blocks, .host = &arena};
  for (std::uint32_t i = 0; i < 4; ++i) pool.regions.push_back({memory.get() + i * part * blocks, part, part, i % 2});
  DriverDevice device{cuda_->driver(), std::array{pool}, {}};
  device.set_waker(waker_);
  EXPECT_EQ(device.info().pool().layers, 2U);
  Fence written;
  for (std::uint32_t slot = 0; slot < blocks; ++slot) written = device.launch(test::writes(slot, 100 + slot));
  test::await_compute(device, written);
  for (std::uint32_t slot = 0; slot < blocks; ++slot) fill(arena.block(SlotId{slot}), 200 + slot);
  device.submit({1, swap_in, {}, {run(1, 1, 2)}, {}, LayerRange{1, 1}});
  ASSERT_FALSE(test::await<CopyDone>(waker_, 1, [&](auto& done) { return device.poll(done); }).at(0).error);
  int wrong = 0;
  test::await_compute(device, device.launch([&](BlockAccess& access) {
    std::vector<std::byte> scratch(4 * part);
    for (std::uint32_t slot = 0; slot < blocks; ++slot) {
      const auto block = access.read(SlotId{slot}, scratch);
      for (std::size_t at = 0; at < block.size(); ++at) {
        const bool loaded = (slot == 1 || slot == 2) && at / part % 2 == 1;
        wrong += block[at] != test::pattern((loaded ? 200 : 100) + slot, at);
      }
    }
  }));
  EXPECT_EQ(wrong, 0);
}

// ---- order relative to compute

TEST_F(CudaOnFake, a_copy_waits_for_what_the_engine_has_marked) {
  start(Layout::regions);
  write_device();
  const Gate gate;
  engine_writes_late(gate, 4, 999);
  const Result<Fence> written = device_->signal(engine_.get());
  ASSERT_TRUE(written);
  submit(1, swap_out, {run(4, 4, 1)}, *written);
  submit(2, swap_in, {run(9, 9, 1)});
  const std::vector<CopyDone> others = await_done(1);
  EXPECT_EQ(others[0].token, 2U) << "the other direction goes on";
  EXPECT_EQ(ended_soon(), 0U);
  EXPECT_LT(device_->reached(), *written);
  EXPECT_TRUE(host_holds(4, 204));
  gate.open();
  ASSERT_EQ(await_done(1).size(), 1U);
  EXPECT_TRUE(host_holds(4, 999));
  await_compute(*device_, *written);
}

TEST_F(CudaOnFake, a_late_kernel_shows_where_the_fence_is_missing) {
  start(Layout::regions);
  write_device();
  const Gate gate;
  engine_writes_late(gate, 4, 999);
  ASSERT_TRUE(device_->signal(engine_.get()));
  submit(1, swap_out, {run(4, 4, 1)}, Fence{0});
  ASSERT_EQ(await_done(1).size(), 1U);
  EXPECT_TRUE(host_holds(4, 104)) << "what was there before";
  gate.open();
}

TEST_F(CudaOnFake, a_point_is_reached_only_after_all_before_it) {
  start(Layout::regions);
  write_device();
  const Gate gate;
  engine_writes_late(gate, 4, 999);
  const Result<Fence> slow = device_->signal(engine_.get());
  const StreamHandle other = make_stream(cuda_->driver());
  const Result<Fence> fast = device_->signal(other.get());
  ASSERT_TRUE(slow && fast);
  EXPECT_LT(*slow, *fast);
  submit(1, swap_out, {run(4, 4, 1)}, *fast);
  EXPECT_EQ(ended_soon(), 0U) << "the later point's own event has happened";
  EXPECT_LT(device_->reached(), *slow);
  gate.open();
  ASSERT_EQ(await_done(1).size(), 1U);
  EXPECT_TRUE(host_holds(4, 999));
  await_compute(*device_, *fast);
}

TEST_F(CudaOnFake, launched_work_and_marks_of_the_engine_are_one_timeline) {
  start(Layout::regions);
  write_device();
  const Gate gate;
  const Gate work_gate;
  bool worked = false;
  engine_writes_late(gate, 4, 999);
  ASSERT_TRUE(device_->signal(engine_.get()));
  const Fence work = device_->launch([&](BlockAccess& access) {
    worked = true;
    work_gate.wait();
    std::vector<std::byte> scratch(count(block_bytes));
    fill(access.write_target(SlotId{5}, scratch), 555);
    access.written(SlotId{5}, scratch);
  });
  const Result<Fence> after = device_->signal(engine_.get());
  ASSERT_TRUE(after);
  submit(1, swap_out, {run(4, 4, 2)}, *after);
  EXPECT_EQ(ended_soon(), 0U);
  EXPECT_FALSE(worked) << "before what was marked before it";
  gate.open();
  EXPECT_EQ(ended_soon(), 0U);
  EXPECT_LT(device_->reached(), work);
  work_gate.open();
  ASSERT_EQ(await_done(1).size(), 1U);
  EXPECT_TRUE(host_holds(4, 999));
  EXPECT_TRUE(host_holds(5, 555));
}

TEST_F(CudaOnFake, a_stream_that_is_being_captured_cannot_be_marked) {
  start();
  cuda_->set_capturing(engine_.get(), true);
  EXPECT_EQ(device_->signal(StreamRef{nullptr}).error(), Errc::invalid_argument) << "the default stream waits for all others";
  EXPECT_EQ(device_->signal(engine_.get()).error(), Errc::invalid_argument);
  cuda_->set_capturing(engine_.get(), false);
  const Result<Fence> point = device_->signal(engine_.get());
  ASSERT_TRUE(point);
  EXPECT_EQ(*point, Fence{1}) << "no point was given out before";
  await_compute(*device_, *point);
}

TEST_F(CudaOnFake, a_stream_of_another_context_cannot_be_marked) {
  start(Layout::regions);
  const StreamHandle foreign = make_stream(cuda_->driver());
  cuda_->set_foreign(foreign.get());
  EXPECT_EQ(device_->signal(foreign.get()).error(), Errc::io_failed);
  EXPECT_EQ(device_->facts().first_failure, "cuEventRecord: CUDA_ERROR_INVALID_HANDLE (as the test has it)");
  const Result<Fence> point = device_->signal(engine_.get());
  ASSERT_TRUE(point) << "and leaves nothing behind";
  EXPECT_EQ(*point, Fence{1});
  submit(1, swap_out, {run(1, 1, 1)}, *point);
  EXPECT_FALSE(await_done(1).at(0).error);
}

TEST_F(CudaOnFake, events_are_used_again) {
  start();
  for (std::uint32_t i = 0; i < 500; ++i) {
    const Result<Fence> point = device_->signal(engine_.get());
    ASSERT_TRUE(point);
    submit(i, swap_out, {run(1, 1, 1)}, *point);
    ASSERT_EQ(await_done(1).size(), 1U);
    await_compute(*device_, *point);
  }
  EXPECT_LT(cuda_->calls("cuEventCreate"), 50);
}

TEST_F(CudaOnFake, what_is_not_on_a_stream_is_dropped_when_it_is_destroyed_and_what_is_on_one_ends) {
  start(Layout::regions);
  write_device();
  const Gate gate;
  const Gate work_gate;
  cuda_->run_on(engine_.get(), [gate] { gate.wait(); });
  const Result<Fence> marked = device_->signal(engine_.get());
  ASSERT_TRUE(marked);
  const int recorded = cuda_->calls("cuEventRecord");
  submit(1, swap_out, {run(1, 1, 1)}, *marked);
  bool worked = false;
  const Fence work = device_->launch([&](BlockAccess&) { worked = true; });
  submit(2, swap_out, {run(2, 2, 1)}, work);  // it is put on its stream only when the work is done
  // The first transfer is on its stream when the event after it is, and waits there.
  while (cuda_->calls("cuEventRecord") == recorded) std::this_thread::yield();
  std::thread opener{[gate] {
    std::this_thread::sleep_for(std::chrono::milliseconds{20});
    gate.open();
  }};
  device_.reset();
  opener.join();
  EXPECT_TRUE(host_holds(1, 101));
  EXPECT_TRUE(host_holds(2, 202));
  EXPECT_FALSE(worked);
}

}  // namespace
}  // namespace terrace::test
