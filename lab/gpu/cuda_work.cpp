#include "lab/gpu/cuda_work.hpp"

#include "terrace/clock.hpp"

#include <chrono>

namespace terrace::tools {
namespace {

constexpr Bytes input_bytes = KiB * 4;
/// About a millisecond on a large GPU.
constexpr int memory_launches = 8;

}  // namespace

CudaWork::CudaWork(const CudaDriver& driver, int ordinal, Bytes memory)
    : driver_{driver},
      context_{driver, cuda_device_at(driver, ordinal)},
      memory_bytes_{memory},
      from_{allocate_device(driver, memory, "steps of compute")},
      to_{allocate_device(driver, memory, "steps of compute")},
      input_{driver, input_bytes, "the input of steps"},
      stream_{make_stream(driver)},
      begin_{make_timed_event(driver)},
      end_{make_timed_event(driver)},
      kernels_{driver, cuda_device_at(driver, ordinal)} {
  driver_.check(driver_.cuMemsetD8Async(from_.get(), 1, count(memory), stream_.get()), "cuMemsetD8Async");
  // A kernel may be loaded at its first launch.
  kernels_.memory(stream_.get(), from_.get(), to_.get(), count(memory));
  kernels_.arithmetic(stream_.get(), to_.get());
  driver_.check(await_stream(driver_, stream_.get()), "cuStreamSynchronize");
  context_.leave();
}

CudaWork::~CudaWork() {
  context_.enter();
  static_cast<void>(await_stream(driver_, stream_.get()));
}

void CudaWork::start(ComputeKind kind) {
  const CurrentContext current{driver_, context_.get()};
  driver_.check(driver_.cuEventRecord(begin_.get(), stream_.get()), "cuEventRecord");
  switch (kind) {
    case ComputeKind::memory:
      for (int i = 0; i < memory_launches; ++i) kernels_.memory(stream_.get(), from_.get(), to_.get(), count(memory_bytes_));
      break;
    case ComputeKind::arithmetic: kernels_.arithmetic(stream_.get(), to_.get()); break;
    case ComputeKind::input:
      driver_.check(driver_.cuMemcpyHtoDAsync(to_.get(), input_.bytes().data(), count(input_bytes), stream_.get()),
                    "cuMemcpyHtoDAsync");
      break;
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
