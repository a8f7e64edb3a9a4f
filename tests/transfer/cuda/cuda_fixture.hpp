#pragma once

#include "tests/transfer/cuda/cuda_support.hpp"
#include "tests/transfer/cuda/fake_cuda.hpp"
#include "tests/transfer/support.hpp"
#include "transfer/cuda/driver_device.hpp"
#include "transfer/host/host_arena.hpp"

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

namespace terrace::test {

/// A CUDA device on the fake driver, with blocks of three parts aligned to 16 bytes, and a stream of an engine.
class CudaOnFake : public testing::Test {
 protected:
  static constexpr std::uint32_t slots = 24;
  static constexpr std::uint64_t part_bytes[3] = {4096 + 64, 32, 16 * 1024};
  static constexpr Bytes block_bytes{part_bytes[0] + part_bytes[1] + part_bytes[2]};

  ~CudaOnFake() override { close(); }

  /// Call it before start().
  void make_machine(FakeCuda::Machine machine = {}) {
    cuda_.emplace(machine);
    context_.emplace(cuda_->driver(), 0);
    engine_ = make_stream(cuda_->driver());
  }
  void start(Layout layout = Layout::packed, std::optional<CopyMethod> only_method = {}) {
    if (!cuda_) make_machine();
    if (layout == Layout::regions) {
      memory_.emplace(cuda_->driver(), slots, part_bytes[0], part_bytes[1], part_bytes[2]);
    }
    open(only_method);
    for (std::uint32_t slot = 0; slot < slots; ++slot) fill(arena_.block(SlotId{slot}), 200 + slot);
  }
  void open(std::optional<CopyMethod> only_method = {}) {
    PoolMemory pool{.slots = slots, .host = &arena_};
    if (memory_) pool.regions = memory_->regions();
    CudaOptions options;
    options.only_method = only_method;
    device_ = std::make_unique<DriverDevice>(cuda_->driver(), std::array{pool}, options);
    device_->set_waker(waker_);
  }
  /// Checks that everything has been given back and that nothing forbidden was done.
  void close() {
    device_.reset();
    memory_.reset();
    engine_ = {};
    context_.reset();
    if (cuda_) {
      EXPECT_EQ(cuda_->complaints(), "");
    }
    cuda_.reset();
  }
  /// Fills each device slot with pattern 100 + slot.
  void write_device() {
    Fence last;
    for (std::uint32_t slot = 0; slot < slots; ++slot) last = device_->launch(writes(slot, 100 + slot));
    await_compute(*device_, last);
  }
  void submit(std::uint64_t token, Direction direction, std::vector<SlotRun> runs, Fence after = {}) {
    device_->submit({token, direction, after, std::move(runs)});
  }
  std::vector<CopyDone> await_done(std::size_t wanted) {
    return await<CopyDone>(waker_, wanted, [this](auto& done) { return device_->poll(done); });
  }
  /// Collects what has ended after a time that is long for a copy that is allowed to run, and short for a test.
  std::size_t ended_soon() {
    std::this_thread::sleep_for(std::chrono::milliseconds{20});
    std::vector<CopyDone> done;
    return device_->poll(done);
  }
  bool host_holds(std::uint32_t slot, std::uint64_t seed) { return holds(arena_.block(SlotId{slot}), seed); }
  bool device_holds(std::uint32_t slot, std::uint64_t seed) {
    bool same = false;
    await_compute(*device_, device_->launch([&](BlockAccess& access) {
      std::vector<std::byte> scratch(count(block_bytes));
      same = holds(access.read(SlotId{slot}, scratch), seed);
    }));
    return same;
  }
  /// Launches work of the engine that blocks until the gate opens, and then writes the block of a device with regions.
  void engine_writes_late(const Gate& gate, std::uint32_t slot, std::uint64_t seed) {
    cuda_->run_on(engine_.get(), [this, gate, slot, seed] {
      gate.wait();
      std::size_t at = 0;
      for (const DeviceRegion& region : memory_->regions()) {
        std::byte* const part = cuda_->at(region.base + slot * region.stride);
        for (std::size_t i = 0; i < region.bytes; ++i) part[i] = pattern(seed, at++);
      }
    });
  }

  HostArena arena_{slots, block_bytes, block_bytes * 5};
  EventFdWaker waker_;
  std::optional<FakeCuda> cuda_;
  std::optional<PrimaryContext> context_;
  StreamHandle engine_;
  std::optional<EngineMemory> memory_;
  std::unique_ptr<DriverDevice> device_;
};

}  // namespace terrace::test
