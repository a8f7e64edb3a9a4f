// The steps of compute beside which `terrace-lab transfer` measures a GPU, on the fake driver.

#include "lab/transfer/transfer_device.hpp"
#include "tests/transfer/cuda/fake_cuda.hpp"

#include <gtest/gtest.h>

#include <stdexcept>
#include <thread>

namespace terrace::test {
namespace {

using tools::ComputeKind;

void await_end(tools::ComputeWork& work) {
  while (!work.ended()) std::this_thread::yield();
}

TEST(CudaWork, makes_steps_of_each_kind_and_gives_everything_back) {
  FakeCuda cuda;
  {
    const auto work = tools::make_cuda_work(cuda.driver(), 0, MiB);
    const int launches = cuda.calls("cuLaunchKernel");
    const int copies = cuda.calls("cuMemcpyHtoDAsync");
    work->start(ComputeKind::memory);
    await_end(*work);
    const int of_memory = cuda.calls("cuLaunchKernel") - launches;
    EXPECT_GT(of_memory, 1);
    work->start(ComputeKind::arithmetic);
    await_end(*work);
    EXPECT_EQ(cuda.calls("cuLaunchKernel"), launches + of_memory + 1);
    EXPECT_EQ(cuda.calls("cuMemcpyHtoDAsync"), copies);
    work->start(ComputeKind::input);
    await_end(*work);
    EXPECT_EQ(cuda.calls("cuLaunchKernel"), launches + of_memory + 1);
    EXPECT_EQ(cuda.calls("cuMemcpyHtoDAsync"), copies + 1);
  }
  EXPECT_EQ(cuda.complaints(), "");
}

TEST(CudaWork, says_which_call_failed_and_gives_everything_back) {
  int failures = 0;
  for (bool fails = true; fails; ++failures) {
    FakeCuda cuda;
    cuda.fail_any(CUDA_ERROR_OUT_OF_MEMORY, failures);
    fails = false;
    try {
      const auto work = tools::make_cuda_work(cuda.driver(), 0, MiB);
      cuda.fail_any(CUDA_SUCCESS, -1);
    } catch (const std::runtime_error& error) {
      fails = true;
      EXPECT_STRNE(error.what(), "");
    }
    EXPECT_EQ(cuda.complaints(), "") << "after " << failures << " calls";
  }
  EXPECT_GT(failures, 15);
}

}  // namespace
}  // namespace terrace::test
