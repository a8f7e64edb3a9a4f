#include "lab/gpu/bench_kernels.hpp"

/// The compiled form of compute_kernels.cu.
extern "C" const unsigned char terrace_bench_kernels[];

namespace terrace::tools {
namespace {

constexpr unsigned threads = 256;
/// A round is 16 steps of eight warps on four schedulers, so 32 cycles.
constexpr unsigned rounds_a_millisecond = 55'000;

Owned<CUmodule> load_module(const CudaDriver& driver) {
  CUmodule module = nullptr;
  driver.check(driver.cuModuleLoadData(&module, terrace_bench_kernels), "cuModuleLoadData");
  return {module, driver.cuModuleUnload};
}

}  // namespace

BenchKernels::BenchKernels(const CudaDriver& driver, CUdevice device)
    : driver_{driver},
      multiprocessors_{static_cast<unsigned>(cuda_attribute(driver, device, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT))},
      shared_bytes_{static_cast<unsigned>(cuda_attribute(driver, device, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN))},
      module_{load_module(driver)},
      memory_{function("terrace_bench_memory")},
      arithmetic_{function("terrace_bench_arithmetic")} {
  driver_.check(
      driver_.cuFuncSetAttribute(arithmetic_, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, static_cast<int>(shared_bytes_)),
      "cuFuncSetAttribute");
}

CUfunction BenchKernels::function(const char* name) const {
  CUfunction found = nullptr;
  driver_.check(driver_.cuModuleGetFunction(&found, module_.get(), name), "cuModuleGetFunction", name);
  return found;
}

void BenchKernels::memory(CUstream stream, CUdeviceptr from, CUdeviceptr to, std::uint64_t bytes) const {
  std::uint64_t vectors = bytes / 16;
  void* parameters[] = {&from, &to, &vectors};
  driver_.check(driver_.cuLaunchKernel(memory_, multiprocessors_ * 8, 1, 1, threads, 1, 1, 0, stream, parameters, nullptr),
                "cuLaunchKernel", "terrace_bench_memory");
}

void BenchKernels::compute(CUstream stream, CUdeviceptr out, unsigned blocks, unsigned shared_bytes,
                           unsigned milliseconds) const {
  unsigned rounds = milliseconds * rounds_a_millisecond;
  void* parameters[] = {&out, &rounds};
  driver_.check(driver_.cuLaunchKernel(arithmetic_, blocks, 1, 1, threads, 1, 1, shared_bytes, stream, parameters, nullptr),
                "cuLaunchKernel", "terrace_bench_arithmetic");
}

void BenchKernels::arithmetic(CUstream stream, CUdeviceptr out) const {
  compute(stream, out, multiprocessors_, shared_bytes_, 1);
}

void BenchKernels::wait(CUstream stream, CUdeviceptr out, unsigned milliseconds) const {
  compute(stream, out, 1, threads * sizeof(float), milliseconds);
}

}  // namespace terrace::tools
