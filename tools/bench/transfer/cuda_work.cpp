#include "tools/bench/transfer/cuda_work.hpp"

#include "base/check.hpp"
#include "terrace/clock.hpp"

#include <chrono>

/// The compiled form of compute_kernels.cu.
extern "C" const unsigned char terrace_bench_kernels[];

namespace terrace::tools {
namespace {

constexpr Bytes input_bytes = KiB * 4;
/// The length of a step: about a millisecond on a large GPU.
constexpr int memory_launches = 8;
constexpr unsigned arithmetic_rounds = 20'000;
constexpr unsigned threads = 256;

Owned<CUmodule> load_module(const CudaDriver& driver) {
  CUmodule module = nullptr;
  driver.check(driver.cuModuleLoadData(&module, terrace_bench_kernels), "cuModuleLoadData");
  return {module, driver.cuModuleUnload};
}

}  // namespace

CudaWork::CudaWork(const CudaDriver& driver, int ordinal, Bytes memory)
    : driver_{driver},
      device_{cuda_device_at(driver, ordinal)},
      context_{driver, device_},
      memory_bytes_{memory},
      multiprocessors_{static_cast<unsigned>(cuda_attribute(driver, device_, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT))},
      shared_bytes_{
          static_cast<unsigned>(cuda_attribute(driver, device_, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN))},
      from_{allocate_device(driver, memory, "steps of compute")},
      to_{allocate_device(driver, memory, "steps of compute")},
      input_{driver, input_bytes, "the input of steps"},
      stream_{make_stream(driver)},
      begin_{event()},
      end_{event()},
      module_{load_module(driver)},
      memory_{function("terrace_bench_memory")},
      arithmetic_{function("terrace_bench_arithmetic")} {
  driver_.check(
      driver_.cuFuncSetAttribute(arithmetic_, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, static_cast<int>(shared_bytes_)),
      "cuFuncSetAttribute");
  driver_.check(driver_.cuMemsetD8Async(from_.get(), 1, count(memory), stream_.get()), "cuMemsetD8Async");
  // A kernel may be loaded at its first launch.
  launch_memory();
  launch_arithmetic();
  driver_.check(await_stream(driver_, stream_.get()), "cuStreamSynchronize");
  context_.leave();
}

CudaWork::~CudaWork() {
  context_.enter();
  static_cast<void>(await_stream(driver_, stream_.get()));
}

CUfunction CudaWork::function(const char* name) const {
  CUfunction found = nullptr;
  driver_.check(driver_.cuModuleGetFunction(&found, module_.get(), name), "cuModuleGetFunction", name);
  return found;
}

EventHandle CudaWork::event() const {
  CUevent made = nullptr;
  driver_.check(driver_.cuEventCreate(&made, CU_EVENT_BLOCKING_SYNC), "cuEventCreate");
  return {made, driver_.cuEventDestroy};
}

void CudaWork::launch_memory() {
  CUdeviceptr from = from_.get();
  CUdeviceptr to = to_.get();
  std::uint64_t vectors = count(memory_bytes_) / 16;
  void* parameters[] = {&from, &to, &vectors};
  driver_.check(driver_.cuLaunchKernel(memory_, multiprocessors_ * 8, 1, 1, threads, 1, 1, 0, stream_.get(), parameters, nullptr),
                "cuLaunchKernel", "terrace_bench_memory");
}

void CudaWork::launch_arithmetic() {
  CUdeviceptr to = to_.get();
  unsigned rounds = arithmetic_rounds;
  void* parameters[] = {&to, &rounds};
  driver_.check(driver_.cuLaunchKernel(arithmetic_, multiprocessors_, 1, 1, threads, 1, 1, shared_bytes_, stream_.get(),
                                       parameters, nullptr),
                "cuLaunchKernel", "terrace_bench_arithmetic");
}

void CudaWork::copy_input() {
  driver_.check(driver_.cuMemcpyHtoDAsync(to_.get(), input_.bytes().data(), count(input_bytes), stream_.get()),
                "cuMemcpyHtoDAsync");
}

void CudaWork::start(ComputeKind kind) {
  const CurrentContext current{driver_, context_.get()};
  driver_.check(driver_.cuEventRecord(begin_.get(), stream_.get()), "cuEventRecord");
  switch (kind) {
    case ComputeKind::memory:
      for (int i = 0; i < memory_launches; ++i) launch_memory();
      break;
    case ComputeKind::arithmetic: launch_arithmetic(); break;
    case ComputeKind::input: copy_input(); break;
  }
  driver_.check(driver_.cuEventRecord(end_.get(), stream_.get()), "cuEventRecord");
}

std::optional<Duration> CudaWork::ended() {
  const CurrentContext current{driver_, context_.get()};
  const CUresult result = driver_.cuEventQuery(end_.get());
  if (result == CUDA_ERROR_NOT_READY) return std::nullopt;
  driver_.check(result, "cuEventQuery");
  float milliseconds = 0;
  driver_.check(driver_.cuEventElapsedTime(&milliseconds, begin_.get(), end_.get()), "cuEventElapsedTime");
  return std::chrono::round<Duration>(std::chrono::duration<float, std::milli>{milliseconds});
}

std::unique_ptr<ComputeWork> make_cuda_work(int ordinal) { return std::make_unique<CudaWork>(cuda_driver(), ordinal); }

}  // namespace terrace::tools
