// examples/cuda_stream.cpp over the fake driver: an engine with a stream and tensors of its own.
#include "terrace/system.hpp"
#include "tests/transfer/cuda/fake_cuda.hpp"
#include "transfer/cuda/driver_device.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <span>

namespace terrace::example {
bool run(const CudaDriver& cuda, DeviceOptions device);  // examples/cuda_stream.cpp
}

namespace terrace {
namespace {

TEST(CudaStreamExample, serves_hits_by_layer_on_a_stream_of_the_engine) {
  test::FakeCuda cuda;
  const CustomDevice device{
      [&cuda](std::span<const PoolMemory> pools) { return std::make_shared<DriverDevice>(cuda.driver(), pools, CudaOptions{}); }};
  EXPECT_TRUE(example::run(cuda.driver(), device));
  EXPECT_GT(cuda.calls("cuStreamIsCapturing"), 0);
  EXPECT_EQ(cuda.complaints(), "");
}

}  // namespace
}  // namespace terrace
