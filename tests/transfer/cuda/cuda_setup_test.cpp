// Opening a CUDA device with the fake driver: what it accepts, what it refuses, and what it measures.
#include "tests/transfer/cuda/cuda_fixture.hpp"
#include "transfer/cuda/copy/calibration.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <thread>

namespace terrace::test {
namespace {

using enum Direction;

class CudaSetup : public CudaOnFake {
 protected:
  /// Why opening a device is refused; empty if it is not.
  std::string refusal(std::span<const PoolMemory> pools, const CudaOptions& options = {}) {
    try {
      const DriverDevice device{cuda_->driver(), pools, options};
      return "";
    } catch (const std::runtime_error& error) {
      return error.what();
    } catch (const std::invalid_argument& error) {
      return error.what();
    }
  }
  PoolMemory pool(std::vector<DeviceRegion> regions = {}) {
    return {.slots = slots, .host = &arena_, .regions = std::move(regions)};
  }
};

TEST(CudaMachine, says_in_a_sentence_why_there_is_no_device) {
  const std::optional<std::string> why = CudaDevice::unavailable();
  if (why) {
    EXPECT_TRUE(says(*why, "CUDA")) << *why;
    EXPECT_THROW(static_cast<void>(CudaDevice::open({})), CudaUnavailable);
  }
  EXPECT_TRUE(CudaDevice::unavailable(4096));
}

TEST_F(CudaSetup, takes_a_device_that_is_there) {
  make_machine();
  CudaOptions options;
  options.ordinal = 1;
  EXPECT_EQ(refusal(std::array{pool()}, options), "no CUDA device 1: there is 1");
  options.ordinal = -1;
  EXPECT_TRUE(says(refusal(std::array{pool()}, options), "no CUDA device -1"));
  options.ordinal = 0;
  EXPECT_EQ(refusal(std::array{pool()}, options), "");
}

TEST_F(CudaSetup, says_that_there_is_none_at_all) {
  FakeCuda::Machine machine;
  machine.devices = 0;
  cuda_.emplace(machine);
  EXPECT_TRUE(says(refusal(std::array{pool()}), "no CUDA device on this machine"));
}

TEST_F(CudaSetup, zeroes_what_it_allocates) {
  make_machine();
  open();
  bool zero = true;
  await_compute(*device_, device_->launch([&](BlockAccess& access) {
    std::vector<std::byte> scratch(count(block_bytes));
    for (const std::byte byte : access.read(SlotId{slots - 1}, scratch)) zero &= byte == std::byte{0};
  }));
  EXPECT_TRUE(zero);
}

TEST_F(CudaSetup, pins_each_chunk_of_an_arena_by_itself) {
  make_machine();
  open();
  EXPECT_EQ(cuda_->calls("cuMemHostRegister"), 5) << "24 slots, 5 a chunk";
}

TEST_F(CudaSetup, refuses_pools_that_make_no_sense) {
  make_machine();
  EXPECT_TRUE(says(refusal({}), "at least one pool"));
  PoolMemory empty = pool();
  empty.slots = 0;
  EXPECT_TRUE(says(refusal(std::array{empty}), "at least one slot"));
  PoolMemory endless = pool();
  endless.slots = ~0U;
  EXPECT_TRUE(says(refusal(std::array{endless}), "cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY")) << refusal(std::array{endless});
}

TEST_F(CudaSetup, refuses_regions_that_are_not_memory_of_the_device) {
  make_machine();
  const EngineMemory memory{cuda_->driver(), slots, part_bytes[0], part_bytes[1], part_bytes[2]};
  std::vector<DeviceRegion> regions = memory.regions();
  EXPECT_EQ(refusal(std::array{pool(regions)}), "");
  regions[2].stride += 1024;
  EXPECT_TRUE(says(refusal(std::array{pool(regions)}), "region 2")) << "its last block lies beyond the allocation";
  regions[2] = {reinterpret_cast<std::uintptr_t>(arena_.block(SlotId{0}).data()), part_bytes[2], part_bytes[2]};
  EXPECT_TRUE(says(refusal(std::array{pool(regions)}), "is not memory of this device")) << "the host's";
  EXPECT_TRUE(says(refusal(std::array{pool(memory.regions()), pool(memory.regions())}), "overlap"));
}

TEST_F(CudaSetup, goes_without_kernels_where_they_do_not_load) {
  FakeCuda::Machine machine;
  machine.loads_kernels = false;
  make_machine(machine);
  start();
  const CudaFacts facts = device_->facts();
  EXPECT_EQ(facts.methods, CopyMethods{0b0011});
  EXPECT_TRUE(says(facts.no_kernels, "cuModuleLoadData"));
  EXPECT_EQ(facts.failed, 0U);
  write_device();
  submit(1, swap_out, {run(0, 0, slots)});
  EXPECT_FALSE(await_done(1).at(0).error);
  EXPECT_TRUE(host_holds(slots - 1, 100 + slots - 1));
  device_.reset();
  CudaOptions options;
  options.only_method = CopyMethod::kernel;
  EXPECT_TRUE(says(refusal(std::array{pool()}, options), "copy method kernel is not available on Fake GPU"));
}

TEST_F(CudaSetup, has_bulk_kernels_from_compute_capability_9_on) {
  FakeCuda::Machine machine;
  machine.capability_major = 8;
  make_machine(machine);
  open();
  EXPECT_EQ(device_->facts().methods, CopyMethods{0b0111});
  EXPECT_EQ(device_->facts().compute_capability_major, 8);
  EXPECT_EQ(device_->facts().pci, "0000:1a:00.0");
}

TEST_F(CudaSetup, has_batches_where_the_driver_has) {
  FakeCuda::Machine machine;
  machine.batch_12080 = false;
  machine.batch_13000 = false;
  make_machine(machine);
  open();
  EXPECT_EQ(device_->facts().methods, CopyMethods{0b1110});
}

TEST_F(CudaSetup, tells_the_numa_node_where_the_driver_does) {
  for (const int node : {-1, 0, 3}) {
    FakeCuda::Machine machine;
    machine.numa_node = node;
    make_machine(machine);
    EXPECT_EQ(cuda_numa_node(cuda_->driver(), 0), node < 0 ? std::nullopt : std::optional{static_cast<unsigned>(node)});
    cuda_->fail("cuDeviceGetAttribute", CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuda_numa_node(cuda_->driver(), 0), std::nullopt);
    close();
  }
}

TEST_F(CudaSetup, leaves_the_callers_context_as_it_was) {
  make_machine();
  open();
  // Only the context of the fixture is still current.
  EXPECT_NO_THROW(static_cast<void>(make_stream(cuda_->driver())));
  CUcontext popped = nullptr;
  EXPECT_EQ(cuda_->driver().cuCtxPopCurrent(&popped), CUDA_SUCCESS);
  EXPECT_EQ(cuda_->driver().cuCtxPopCurrent(&popped), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_TRUE(device_->signal(engine_.get())) << "needs none of the caller's";
  EXPECT_EQ(cuda_->driver().cuCtxPopCurrent(&popped), CUDA_ERROR_INVALID_CONTEXT);
  device_.reset();
  EXPECT_EQ(cuda_->driver().cuCtxPushCurrent(context_->get()), CUDA_SUCCESS);
}

// ---- calibration

/// A clock whose n-th reading is n microseconds after the one before. So methods that are measured later are slower.
class SlowerAndSlower final : public Clock {
 public:
  [[nodiscard]] TimePoint now() const noexcept override {
    ++step_;
    return TimePoint{} + std::chrono::microseconds{step_ * step_};
  }

 private:
  mutable std::int64_t step_ = 0;
};

TEST_F(CudaSetup, calibration_measures_every_method_in_every_cell_and_orders_them) {
  make_machine();
  CalibrationOptions options;
  options.bytes = MiB * 4;
  options.rounds = 1;
  const CopyMethodTable table = calibrate_methods(cuda_->driver(), 0, SlowerAndSlower{}, options);
  for (const Direction direction : {swap_out, swap_in}) {
    for (std::size_t bytes = 0; bytes < CopyMethodTable::piece_bytes.size(); ++bytes) {
      for (std::size_t number = 0; number < CopyMethodTable::piece_counts.size(); ++number) {
        const CopyMethodTable::Cell& cell = table.cell(direction, bytes, number);
        for (const double rate : cell.rates) EXPECT_GT(rate, 0);
        EXPECT_EQ(cell.order, (std::array{CopyMethod::batch, CopyMethod::plain, CopyMethod::kernel, CopyMethod::bulk_kernel}));
      }
    }
  }
}

TEST_F(CudaSetup, calibration_is_kept_until_the_driver_or_the_launch_of_kernels_changes) {
  std::string pattern = (std::filesystem::temp_directory_path() / "terrace-paths-XXXXXX").string();
  const std::filesystem::path folder = ::mkdtemp(pattern.data());
  struct Step {
    int driver_version;
    unsigned kernel_blocks;
    bool kept;
  };
  for (const Step& step : {Step{13000, 8, false}, Step{13000, 8, true}, Step{13010, 8, false}, Step{13010, 4, false}}) {
    FakeCuda::Machine machine;
    machine.driver_version = step.driver_version;
    make_machine(machine);
    CalibrationOptions options;
    options.bytes = MiB;
    options.rounds = 1;
    options.kernel_blocks = step.kernel_blocks;
    const CopyMethodTable table = kept_or_measured(cuda_->driver(), 0, folder / "paths.json", SlowerAndSlower{}, options);
    EXPECT_GT(table.cell(swap_in, 0, 3).rates[0], 0);
    EXPECT_EQ(cuda_->calls("cuLaunchKernel") == 0, step.kept);
    close();
  }
  std::filesystem::remove_all(folder);
}

TEST_F(CudaSetup, calibration_waits_for_another_process_that_measures) {
  std::string pattern = (std::filesystem::temp_directory_path() / "terrace-paths-XXXXXX").string();
  const std::filesystem::path folder = ::mkdtemp(pattern.data());
  make_machine();
  CalibrationOptions options;
  options.bytes = MiB;
  options.rounds = 1;
  const int lock = ::open((folder / "paths.json.lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  ASSERT_EQ(::flock(lock, LOCK_EX), 0);
  const auto measure = [&](const char* file) {
    return kept_or_measured(cuda_->driver(), 0, folder / file, SlowerAndSlower{}, options);
  };
  (void)measure("other.json");
  const int launched = cuda_->calls("cuLaunchKernel");
  EXPECT_GT(launched, 0);
  std::thread other{[&] {
    std::this_thread::sleep_for(std::chrono::milliseconds{20});
    std::filesystem::copy_file(folder / "other.json", folder / "paths.json");
    ::close(lock);
  }};
  (void)measure("paths.json");
  other.join();
  EXPECT_EQ(cuda_->calls("cuLaunchKernel"), launched) << "it takes what the other has measured";
  close();
  std::filesystem::remove_all(folder);
}

TEST_F(CudaSetup, calibration_refuses_a_device_that_copies_wrong_bytes) {
  FakeCuda::Machine machine;
  machine.wrong_kernels = true;
  make_machine(machine);
  CalibrationOptions options;
  options.bytes = MiB;
  options.rounds = 1;
  try {
    (void)calibrate_methods(cuda_->driver(), 0, SteadyClock{}, options);
    FAIL();
  } catch (const CudaError& error) {
    EXPECT_TRUE(says(error.what(), "copy method kernel has copied wrong bytes (swap-out, pieces of 4KiB: 1)")) << error.what();
  }
}

TEST_F(CudaSetup, calibration_leaves_out_what_is_not_to_be_had) {
  FakeCuda::Machine machine;
  machine.loads_kernels = false;
  make_machine(machine);
  CalibrationOptions options;
  options.bytes = MiB;
  options.rounds = 1;
  const CopyMethodTable table = calibrate_methods(cuda_->driver(), 0, SteadyClock{}, options);
  EXPECT_GT(table.cell(swap_in, 0, 3).rates[0], 0);
  EXPECT_EQ(table.cell(swap_in, 0, 3).rates[2], 0);
}

}  // namespace
}  // namespace terrace::test
