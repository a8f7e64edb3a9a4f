// The CUDA device with the real driver of this machine. Without a GPU, each test is skipped and says why.
#include "tests/transfer/cuda/cuda_support.hpp"
#include "tests/transfer/device_contract.hpp"
#include "transfer/cuda/copy/calibration.hpp"
#include "transfer/host/host_arena.hpp"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <random>
#include <thread>

extern "C" const unsigned char terrace_test_kernels[];

namespace terrace::contract {
namespace {

class RealMachine {
 public:
  static std::optional<std::string> unavailable() { return CudaDevice::unavailable(); }
  const CudaDriver& driver() { return cuda_driver(); }
};

using Drivers = test::CudaContracts<RealMachine>;
INSTANTIATE_TYPED_TEST_SUITE_P(Gpu, DeviceContract, Drivers);
INSTANTIATE_TYPED_TEST_SUITE_P(Gpu, DeviceContractDeathTest, Drivers);

}  // namespace
}  // namespace terrace::contract

namespace terrace::test {
namespace {

using enum Direction;

/// Aligned blocks in three parts, larger than a tile of any kernel; and a stream of an engine.
class Gpu : public testing::Test {
 protected:
  static constexpr std::uint32_t slots = 64;
  static constexpr std::uint64_t part_bytes[3] = {4096 + 64, 32, 64 * 1024};
  static constexpr Bytes block_bytes{part_bytes[0] + part_bytes[1] + part_bytes[2]};

  void SetUp() override {
    if (const std::optional<std::string> why = CudaDevice::unavailable()) GTEST_SKIP() << *why;
    driver_ = &cuda_driver();
    context_.emplace(*driver_, cuda_device_at(*driver_, 0));
    engine_ = make_stream(*driver_);
    memory_.emplace(*driver_, slots, part_bytes[0], part_bytes[1], part_bytes[2]);
  }
  void TearDown() override {
    device_.reset();
    memory_.reset();
    engine_ = {};
    context_.reset();
  }
  void open(Layout layout, std::optional<CopyMethod> method) {
    PoolMemory pool{.slots = slots, .host = &arena_};
    if (layout == Layout::regions) pool.regions = memory_->regions();
    CudaOptions options;
    options.only_method = method;
    device_ = std::make_unique<DriverDevice>(*driver_, std::array{pool}, options);
    device_->set_waker(waker_);
  }
  [[nodiscard]] bool has(CopyMethod method) {
    open(Layout::packed, std::nullopt);
    const bool has_method = device_->facts().methods.test(static_cast<std::size_t>(method));
    device_.reset();
    return has_method;
  }
  void copy(Direction direction, std::vector<SlotRun> runs, Fence after = {}) {
    device_->submit({1, direction, after, std::move(runs)});
    const std::vector<CopyDone> done = await_done(1);
    ASSERT_EQ(done.size(), 1U);
    EXPECT_FALSE(done[0].error) << device_->facts().first_failure;
  }
  std::vector<CopyDone> await_done(std::size_t wanted) {
    return await<CopyDone>(waker_, wanted, [this](auto& done) { return device_->poll(done); });
  }
  bool device_holds(std::uint32_t slot, std::uint64_t seed) {
    bool same = false;
    await_compute(*device_, device_->launch([&](BlockAccess& access) {
      std::vector<std::byte> scratch(count(block_bytes));
      same = holds(access.read(SlotId{slot}, scratch), seed);
    }));
    return same;
  }

  const CudaDriver* driver_ = nullptr;
  HostArena arena_{slots, block_bytes, block_bytes * 7};
  EventFdWaker waker_;
  std::optional<PrimaryContext> context_;
  StreamHandle engine_;
  std::optional<EngineMemory> memory_;
  std::unique_ptr<DriverDevice> device_;
};

class GpuMethods : public Gpu, public testing::WithParamInterface<std::tuple<CopyMethod, Layout>> {};

TEST_P(GpuMethods, move_every_byte_of_random_runs_there_and_back) {
  const auto [method, layout] = GetParam();
  if (!has(method)) GTEST_SKIP() << "this device or driver has no " << to_string(method);
  open(layout, method);
  std::mt19937 random{11};
  std::vector<std::uint64_t> in_host(slots);
  std::vector<std::uint64_t> on_device(slots);
  for (std::uint32_t slot = 0; slot < slots; ++slot) {
    in_host[slot] = on_device[slot] = slot;
    fill(arena_.block(SlotId{slot}), slot);
  }
  copy(swap_in, {run(0, 0, slots)});
  for (std::uint64_t round = 0; round < 100; ++round) {
    const Direction direction = random() % 2 == 0 ? swap_out : swap_in;
    std::vector<std::uint64_t>& from = direction == swap_out ? on_device : in_host;
    std::vector<std::uint64_t>& to = direction == swap_out ? in_host : on_device;
    const std::uint32_t number = 1 + static_cast<std::uint32_t>(random()) % 20;
    const std::uint32_t source = static_cast<std::uint32_t>(random()) % (slots - number);
    const std::uint32_t destination = static_cast<std::uint32_t>(random()) % (slots - number);
    copy(direction, {run(source, destination, number)});
    for (std::uint32_t i = 0; i < number; ++i) to[destination + i] = from[source + i];
    // A block that was not used before, so that old bytes cannot pass for new ones.
    const std::uint32_t changed = static_cast<std::uint32_t>(random()) % slots;
    in_host[changed] = 1000 + round;
    fill(arena_.block(SlotId{changed}), in_host[changed]);
  }
  for (std::uint32_t slot = 0; slot < slots; ++slot) {
    EXPECT_TRUE(holds(arena_.block(SlotId{slot}), in_host[slot])) << slot;
    EXPECT_TRUE(device_holds(slot, on_device[slot])) << slot;
  }
  EXPECT_EQ(device_->facts().failed, 0U) << device_->facts().first_failure;
}

INSTANTIATE_TEST_SUITE_P(Gpu, GpuMethods,
                         testing::Combine(testing::Values(CopyMethod::batch, CopyMethod::plain, CopyMethod::kernel,
                                                          CopyMethod::bulk_kernel),
                                          testing::Values(Layout::packed, Layout::regions)),
                         [](const auto& name) {
                           return std::string{to_string(std::get<0>(name.param))} +
                                  (std::get<1>(name.param) == Layout::packed ? "_packed" : "_regions");
                         });

/// A kernel of the engine blocks on its stream, and writes one part of a block when it is released.
class GpuLateKernel : public Gpu {
 protected:
  void SetUp() override {
    Gpu::SetUp();
    if (IsSkipped()) return;
    CUmodule module = nullptr;
    driver_->check(driver_->cuModuleLoadData(&module, terrace_test_kernels), "cuModuleLoadData");
    module_ = {module, driver_->cuModuleUnload};
    driver_->check(driver_->cuModuleGetFunction(&late_write_, module, "terrace_test_late_write"), "cuModuleGetFunction");
    gate_.emplace(*driver_, KiB, "a gate");
    // Run it once with an open gate: a kernel may be loaded at its first launch, and that waits for all running work.
    open_gate();
    launch_late_write(0);
    driver_->check(driver_->cuStreamSynchronize(engine_.get()), "cuStreamSynchronize");
    gate().store(0);
    open(Layout::regions, std::nullopt);
    for (std::uint32_t slot = 0; slot < slots; ++slot) fill(arena_.block(SlotId{slot}), 200 + slot);
    copy(swap_in, {run(0, 0, slots)});
  }
  void TearDown() override {
    if (gate_) {
      open_gate();
      static_cast<void>(driver_->cuStreamSynchronize(engine_.get()));
      device_.reset();
      gate_.reset();
      module_ = {};
    }
    Gpu::TearDown();
  }
  std::atomic_ref<unsigned> gate() { return std::atomic_ref{*reinterpret_cast<unsigned*>(gate_->bytes().data())}; }
  void open_gate() { gate().store(1); }
  void launch_late_write(std::uint32_t slot) {
    const DeviceRegion& region = memory_->regions()[2];
    CUdeviceptr gate = gate_->device_address();
    CUdeviceptr part = region.base + slot * region.stride;
    auto bytes = static_cast<unsigned>(region.bytes);
    unsigned char value = 0xEE;
    void* parameters[] = {&gate, &part, &bytes, &value};
    driver_->check(driver_->cuLaunchKernel(late_write_, 1, 1, 1, 256, 1, 1, 0, engine_.get(), parameters, nullptr),
                   "cuLaunchKernel");
  }
  /// The host's copy of the part that the kernel writes.
  std::byte host_part(std::uint32_t slot) { return arena_.block(SlotId{slot})[part_bytes[0] + part_bytes[1]]; }

  Owned<CUmodule> module_;
  CUfunction late_write_ = nullptr;
  std::optional<PinnedBuffer> gate_;
};

TEST_F(GpuLateKernel, is_waited_for_by_the_copies_that_name_its_point) {
  launch_late_write(4);
  const Result<Fence> written = device_->signal(engine_.get());
  ASSERT_TRUE(written);
  device_->submit({1, swap_out, *written, {run(4, 5, 1)}});
  device_->submit({2, swap_in, Fence{0}, {run(9, 9, 1)}});
  EXPECT_EQ(await_done(1).at(0).token, 2U);
  std::this_thread::sleep_for(std::chrono::milliseconds{100});
  std::vector<CopyDone> done;
  EXPECT_EQ(device_->poll(done), 0U);
  EXPECT_LT(device_->reached(), *written);
  open_gate();
  ASSERT_EQ(await_done(1).size(), 1U);
  EXPECT_EQ(host_part(5), std::byte{0xEE});
  await_compute(*device_, *written);
}

TEST_F(GpuLateKernel, shows_where_the_fence_is_missing) {
  launch_late_write(4);
  ASSERT_TRUE(device_->signal(engine_.get()));
  device_->submit({1, swap_out, Fence{0}, {run(4, 5, 1)}});
  ASSERT_EQ(await_done(1).size(), 1U);
  EXPECT_TRUE(holds(arena_.block(SlotId{5}), 204)) << "what was there before";
  open_gate();
}

TEST_F(Gpu, follows_the_arenas_chunks_as_they_come_and_go) {
  for (const CopyMethod method : {CopyMethod::plain, CopyMethod::batch, CopyMethod::kernel, CopyMethod::bulk_kernel}) {
    if (!has(method)) continue;
    open(Layout::regions, method);
    for (std::uint64_t round = 0; round < 20; ++round) {
      ASSERT_TRUE(arena_.grow(7));
      std::vector<ArenaEvent> events;
      const auto settle = [&] {
        for (events.clear(); events.empty(); arena_.poll(events)) std::this_thread::yield();
      };
      settle();
      ASSERT_EQ(events.at(0).kind, ArenaEvent::Kind::warm) << events[0].why;
      const std::uint32_t first = events[0].slots.first.value();
      for (std::uint32_t i = 0; i < 7; ++i) fill(arena_.block(SlotId{first + i}), 100 * round + i);
      copy(swap_in, {run(first, 20, 7)});
      for (std::uint32_t i = 0; i < 7; ++i) fill(arena_.block(SlotId{first + i}), 0);
      copy(swap_out, {run(20, first, 7)});
      for (std::uint32_t i = 0; i < 7; ++i) EXPECT_TRUE(holds(arena_.block(SlotId{first + i}), 100 * round + i)) << i;
      arena_.give_back(first / arena_.slots_per_chunk());
      settle();
      ASSERT_EQ(events.at(0).kind, ArenaEvent::Kind::gone);
    }
    EXPECT_EQ(device_->facts().failed, 0U) << device_->facts().first_failure;
    device_.reset();
  }
}

/// Uses one GPU, or two if there are two.
TEST_F(Gpu, ranks_move_their_shares_of_one_arena_and_follow_its_chunks) {
  constexpr std::uint32_t ranks = 2;
  const bool two = !CudaDevice::unavailable(1);
  for (const bool same : {true, false}) {
    if (!same && !two) continue;
    for (const CopyMethod method : {CopyMethod::plain, CopyMethod::batch, CopyMethod::kernel, CopyMethod::bulk_kernel}) {
      if (!has(method)) continue;
      HostArena arena{slots, block_bytes * ranks, block_bytes * ranks * 7};
      std::array<std::unique_ptr<DriverDevice>, ranks> devices;
      CudaOptions options;
      options.only_method = method;
      options.pins = CudaDevice::shared_pins();
      for (std::uint32_t rank = 0; rank < ranks; ++rank) {
        options.ordinal = same ? 0 : static_cast<int>(rank);
        const PoolMemory pool{.slots = slots, .host = &arena, .share = {block_bytes * rank, block_bytes}};
        devices[rank] = std::make_unique<DriverDevice>(*driver_, std::array{pool}, options);
        devices[rank]->set_waker(waker_);
      }
      const auto part = [&](std::uint32_t slot, std::uint32_t rank) {
        return arena.block(SlotId{slot}).subspan(count(block_bytes) * rank, count(block_bytes));
      };
      const auto copy_on = [&](std::uint32_t rank, Direction direction, SlotRun moved) {
        devices[rank]->submit({1, direction, {}, {moved}});
        const auto done = await<CopyDone>(waker_, 1, [&](auto& out) { return devices[rank]->poll(out); });
        EXPECT_FALSE(done.at(0).error) << devices[rank]->facts().first_failure;
      };
      const auto there_and_back = [&](std::uint32_t slot, std::uint32_t number, std::uint64_t seed) {
        for (std::uint32_t i = 0; i < number; ++i) {
          for (std::uint32_t rank = 0; rank < ranks; ++rank) {
            if (devices[rank]) fill(part(slot + i, rank), seed + 2 * i + rank);
          }
        }
        for (std::uint32_t rank = 0; rank < ranks; ++rank) {
          if (devices[rank]) copy_on(rank, swap_in, run(slot, 0, number));
        }
        for (std::uint32_t i = 0; i < number; ++i) fill(arena.block(SlotId{slot + i}), 0);
        for (std::uint32_t rank = 0; rank < ranks; ++rank) {
          if (devices[rank]) copy_on(rank, swap_out, run(0, slot, number));
        }
        for (std::uint32_t i = 0; i < number; ++i) {
          for (std::uint32_t rank = 0; rank < ranks; ++rank) {
            EXPECT_TRUE(!devices[rank] || holds(part(slot + i, rank), seed + 2 * i + rank)) << i << ", " << rank;
          }
        }
      };
      there_and_back(0, slots, 1);
      std::vector<ArenaEvent> events;
      const auto settle = [&] {
        for (events.clear(); events.empty(); arena.poll(events)) std::this_thread::yield();
      };
      ASSERT_TRUE(arena.grow(7));
      settle();
      ASSERT_EQ(events.at(0).kind, ArenaEvent::Kind::warm) << events[0].why;
      const std::uint32_t first = events[0].slots.first.value();
      there_and_back(first, 7, 1000);
      // Registrations of the first device stay for the second one, and end when that is asked to remove them.
      devices[0].reset();
      there_and_back(first, 7, 2000);
      arena.give_back(first / arena.slots_per_chunk());
      settle();
      ASSERT_EQ(events.at(0).kind, ArenaEvent::Kind::gone);
      there_and_back(3, 9, 3000);
      EXPECT_EQ(devices[1]->facts().failed, 0U) << devices[1]->facts().first_failure;
    }
  }
}

TEST_F(Gpu, tells_how_long_a_command_kept_its_stream) {
  open(Layout::regions, std::nullopt);
  const auto begin = std::chrono::steady_clock::now();
  device_->submit({1, swap_in, Fence{0}, {run(0, 0, slots)}});
  const std::vector<CopyDone> done = await_done(1);
  const auto passed = std::chrono::steady_clock::now() - begin;
  ASSERT_EQ(done.size(), 1U);
  EXPECT_GT(done[0].took, Duration{});
  EXPECT_LT(done[0].took, passed);
}

TEST_F(Gpu, takes_new_addresses_between_transfers) {
  open(Layout::regions, std::nullopt);
  EngineMemory awake{*driver_, slots, part_bytes[0], part_bytes[1], part_bytes[2]};
  ASSERT_TRUE(device_->relocate(std::array{RelocatedPool{PoolId{0}, awake.regions()}}));
  memory_.reset();  // the engine is asleep: later writes there fail
  for (std::uint32_t slot = 0; slot < slots; ++slot) fill(arena_.block(SlotId{slot}), 300 + slot);
  copy(swap_in, {run(0, 0, slots)});
  for (std::uint32_t slot = 0; slot < slots; ++slot) EXPECT_TRUE(device_holds(slot, 300 + slot)) << slot;
  device_.reset();
}

TEST_F(Gpu, does_not_mark_a_stream_of_another_context) {
  open(Layout::regions, std::nullopt);
  // The device itself does not call these functions.
  void* const library = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(library, nullptr);
  const auto create = reinterpret_cast<CUresult (*)(CUcontext*, unsigned, CUdevice)>(::dlsym(library, "cuCtxCreate_v2"));
  const auto destroy = reinterpret_cast<CUresult (*)(CUcontext)>(::dlsym(library, "cuCtxDestroy_v2"));
  if (create == nullptr || destroy == nullptr) GTEST_SKIP() << "this driver makes no contexts in the way the test knows";
  CUcontext other = nullptr;
  driver_->check(create(&other, 0, cuda_device_at(*driver_, 0)), "cuCtxCreate");  // and makes it current
  StreamHandle foreign = make_stream(*driver_);
  EXPECT_EQ(device_->signal(foreign.get()).error(), Errc::io_failed);
  EXPECT_FALSE(device_->facts().first_failure.empty());
  foreign = {};
  driver_->check(destroy(other), "cuCtxDestroy");
  EXPECT_TRUE(device_->signal(engine_.get())) << "and the device is as before";
  copy(swap_in, {run(0, 0, slots)});
}

TEST_F(Gpu, is_calibrated_for_both_directions_and_all_sizes) {
  const CopyMethodTable table = calibrate_methods(*driver_, 0, SteadyClock{});
  for (const Direction direction : {swap_out, swap_in}) {
    for (std::size_t number = 0; number < CopyMethodTable::piece_counts.size(); ++number) {
      EXPECT_GT(table.cell(direction, 3, number).rates[static_cast<std::size_t>(CopyMethod::plain)], 0);
    }
  }
}

}  // namespace
}  // namespace terrace::test
