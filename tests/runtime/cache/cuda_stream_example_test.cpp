// examples/cuda_stream.cpp over the fake driver: an engine with a stream and tensors of its own.
#include "terrace/system.hpp"
#include "tests/transfer/cuda/fake_cuda.hpp"
#include "transfer/cuda/driver_device.hpp"
#include "transfer/device/slot_memory.hpp"
#include "transfer/host/host_arena.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <span>
#include <vector>

namespace terrace::example {
bool run(const CudaDriver& cuda, DeviceOptions device);  // examples/cuda_stream.cpp
}

namespace terrace {
namespace {

TEST(CudaStreamExample, serves_hits_by_layer_on_a_stream_of_the_engine) {
  test::FakeCuda cuda;
  const CustomDevice device{[&cuda](std::span<const PoolMemory> pools) {
    std::vector<CudaPool> memory;
    for (const PoolMemory& pool : pools) {
      // A CUDA device pins the arena that it observes.
      memory.push_back(
          {.slots = pool.slots, .host = const_cast<HostArena*>(pool.host), .share = pool.share, .regions = pool.regions});
    }
    return std::make_shared<DriverDevice>(cuda.driver(), memory, CudaOptions{});
  }};
  EXPECT_TRUE(example::run(cuda.driver(), device));
  EXPECT_GT(cuda.calls("cuStreamIsCapturing"), 0);
  EXPECT_EQ(cuda.complaints(), "");
}

}  // namespace
}  // namespace terrace
