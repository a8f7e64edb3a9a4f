#include "lab/gpu/bench_kernels.hpp"
#include "lab/transfer/transfer_device.hpp"
#include "terrace/clock.hpp"
#include "transfer/cuda/driver/driver.hpp"
#include "transfer/cuda/driver/handles.hpp"

#include <chrono>

namespace terrace::tools {
namespace {

constexpr Bytes input_bytes = KiB * 4;
/// About a millisecond on a large GPU.
constexpr int memory_launches = 8;

/// Steps on a stream of their own, as an engine has it, timed by events of the device:
///
/// - memory: copies of `memory` bytes within device memory, which should be more than its cache, by all multiprocessors;
/// - arithmetic: BenchKernels::arithmetic();
/// - input: one copy of 4 KiB from pinned memory.
class CudaWork final : public ComputeWork {
 public:
  CudaWork(const CudaDriver& driver, int ordinal, Bytes memory)
      : driver_{driver},
        context_{driver, cuda_device_at(driver, ordinal)},
        memory_bytes_{memory},
        from_{allocate_device(driver, memory, "steps of compute")},
        to_{allocate_device(driver, memory, "steps of compute")},
        input_{driver, input_bytes, "the input of steps"},
        stream_{make_stream(driver)},
        begin_{make_event(driver, EventTiming::yes)},
        end_{make_event(driver, EventTiming::yes)},
        kernels_{driver, cuda_device_at(driver, ordinal)} {
    driver_.check(driver_.cuMemsetD8Async(from_.get(), 1, count(memory), stream_.get()), "cuMemsetD8Async");
    // A kernel may be loaded at its first launch.
    kernels_.memory(stream_.get(), from_.get(), to_.get(), count(memory));
    kernels_.arithmetic(stream_.get(), to_.get());
    driver_.check(await_stream(driver_, stream_.get()), "cuStreamSynchronize");
    context_.leave();
  }
  /// Waits for the end of the step.
  ~CudaWork() override {
    context_.enter();
    static_cast<void>(await_stream(driver_, stream_.get()));
  }
  CudaWork(const CudaWork&) = delete;
  CudaWork& operator=(const CudaWork&) = delete;

  [[nodiscard]] std::span<const ComputeKind> kinds() const override { return kinds_; }

  void start(ComputeKind kind) override {
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

  [[nodiscard]] std::optional<Duration> ended() override {
    const CurrentContext current{driver_, context_.get()};
    const CUresult result = driver_.cuEventQuery(end_.get());
    if (result == CUDA_ERROR_NOT_READY) return std::nullopt;
    driver_.check(result, "cuEventQuery");
    float milliseconds = 0;
    driver_.check(driver_.cuEventElapsedTime(&milliseconds, begin_.get(), end_.get()), "cuEventElapsedTime");
    return std::chrono::round<Duration>(std::chrono::duration<float, std::milli>{milliseconds});
  }

 private:
  static constexpr ComputeKind kinds_[] = {ComputeKind::memory, ComputeKind::arithmetic, ComputeKind::input};

  const CudaDriver& driver_;
  PrimaryContext context_;
  Bytes memory_bytes_;
  DeviceMemory from_;
  DeviceMemory to_;
  PinnedBuffer input_;
  StreamHandle stream_;
  EventHandle begin_;
  EventHandle end_;
  BenchKernels kernels_;
};

}  // namespace

std::unique_ptr<ComputeWork> make_cuda_work(int ordinal) { return make_cuda_work(cuda_driver(), ordinal, MiB * 256); }

std::unique_ptr<ComputeWork> make_cuda_work(const CudaDriver& driver, int ordinal, Bytes memory) {
  return std::make_unique<CudaWork>(driver, ordinal, memory);
}

}  // namespace terrace::tools
