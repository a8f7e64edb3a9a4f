#pragma once

#include <cuda.h>

#include <cstdint>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

// The functions of the driver that the device calls. cuda.h defines most of these names as macros that expand to the newest
// version of a function. This list passes the names on unexpanded, so that the driver is asked for the name without a version.
// The number is the version of CUDA in which the function got its present signature.
#define TERRACE_CUDA_CALLS(CALL)                 \
  CALL(cuGetErrorName, 6000)                     \
  CALL(cuGetErrorString, 6000)                   \
  CALL(cuInit, 2000)                             \
  CALL(cuDriverGetVersion, 2020)                 \
  CALL(cuDeviceGetCount, 2000)                   \
  CALL(cuDeviceGet, 2000)                        \
  CALL(cuDeviceGetName, 2000)                    \
  CALL(cuDeviceGetAttribute, 2000)               \
  CALL(cuDevicePrimaryCtxRetain, 7000)           \
  CALL(cuDevicePrimaryCtxRelease, 11000)         \
  CALL(cuCtxPushCurrent, 4000)                   \
  CALL(cuCtxPopCurrent, 4000)                    \
  CALL(cuCtxSetCurrent, 4000)                    \
  CALL(cuThreadExchangeStreamCaptureMode, 10010) \
  CALL(cuMemAlloc, 3020)                         \
  CALL(cuMemFree, 3020)                          \
  CALL(cuMemHostAlloc, 2020)                     \
  CALL(cuMemFreeHost, 2000)                      \
  CALL(cuMemHostRegister, 6050)                  \
  CALL(cuMemHostUnregister, 4000)                \
  CALL(cuMemHostGetDevicePointer, 3020)          \
  CALL(cuPointerGetAttribute, 4000)              \
  CALL(cuMemsetD8Async, 3020)                    \
  CALL(cuMemcpyHtoDAsync, 3020)                  \
  CALL(cuMemcpyDtoHAsync, 3020)                  \
  CALL(cuCtxGetStreamPriorityRange, 5050)        \
  CALL(cuStreamCreate, 2000)                     \
  CALL(cuStreamCreateWithPriority, 5050)         \
  CALL(cuStreamDestroy, 4000)                    \
  CALL(cuStreamSynchronize, 2000)                \
  CALL(cuStreamWaitEvent, 3020)                  \
  CALL(cuStreamIsCapturing, 10000)               \
  CALL(cuEventCreate, 2000)                      \
  CALL(cuEventDestroy, 4000)                     \
  CALL(cuEventRecord, 2000)                      \
  CALL(cuEventQuery, 2000)                       \
  CALL(cuEventSynchronize, 2000)                 \
  CALL(cuEventElapsedTime, 2000)                 \
  CALL(cuModuleLoadData, 2000)                   \
  CALL(cuModuleUnload, 2000)                     \
  CALL(cuModuleGetFunction, 2000)                \
  CALL(cuFuncSetAttribute, 9000)                 \
  CALL(cuLaunchKernel, 4000)

namespace terrace {

/// There is no driver, no device, or no driver that is new enough. what() is a sentence for the user.
class CudaUnavailable : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A call of the driver failed. Example of a text: "cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY (out of memory): 64GiB for device
/// slots".
class CudaError : public std::runtime_error {
 public:
  CudaError(CUresult result, const std::string& text) : std::runtime_error{text}, result_{result} {}
  [[nodiscard]] CUresult result() const { return result_; }

 private:
  CUresult result_;
};

/// The functions of the driver. They are looked up when the program runs, and not linked, so that a binary also runs on a machine
/// without a driver. Tests use another table. An optional function is null if the driver does not have it. If any other function
/// is missing, there is no table.
///
/// The driver has no "last error" that a later call would report, unlike the runtime API: only the failed call itself reports a
/// failure. But a context may fail as a whole (an illegal address, a lost device). Then every later call fails, too.
struct CudaDriver {
  // There are two signatures with the same name; the newer one has no `fail_index`.
  using MemcpyBatch12080 = CUresult(CUDAAPI*)(CUdeviceptr*, CUdeviceptr*, std::size_t*, std::size_t, CUmemcpyAttributes*,
                                              std::size_t*, std::size_t, std::size_t* fail_index, CUstream);
  using MemcpyBatch13000 = CUresult(CUDAAPI*)(CUdeviceptr*, CUdeviceptr*, std::size_t*, std::size_t, CUmemcpyAttributes*,
                                              std::size_t*, std::size_t, CUstream);

#define TERRACE_CUDA_MEMBER(name, version) decltype(&::name) name = nullptr;
  TERRACE_CUDA_CALLS(TERRACE_CUDA_MEMBER)
#undef TERRACE_CUDA_MEMBER
  MemcpyBatch12080 memcpy_batch_12080 = nullptr;  ///< optional, as is the next one
  MemcpyBatch13000 memcpy_batch_13000 = nullptr;

  /// Returns name and text of an error: "CUDA_ERROR_ILLEGAL_ADDRESS (an illegal memory access was encountered)".
  [[nodiscard]] std::string describe(CUresult result) const;
  /// Throws CudaError unless the call succeeded.
  void check(CUresult result, std::string_view call, std::string_view doing = {}) const;
};

/// The oldest driver version that is supported. All functions have had their current form since this version, except the batched
/// copies.
inline constexpr int cuda_driver_version_min = 12000;

/// Returns the driver of this machine. It is loaded and initialised once, and never unloaded, because it runs its own threads.
/// Throws CudaUnavailable.
[[nodiscard]] const CudaDriver& cuda_driver();

/// Returns the driver's handle of a device. Throws CudaUnavailable if there is no device with this ordinal.
[[nodiscard]] CUdevice cuda_device_at(const CudaDriver& driver, int ordinal);
[[nodiscard]] std::string cuda_device_name(const CudaDriver& driver, CUdevice device);
[[nodiscard]] int cuda_attribute(const CudaDriver& driver, CUdevice device, CUdevice_attribute attribute);
/// Returns the NUMA node next to the device; nothing if the driver does not report it, or if there is only one node. Throws
/// CudaUnavailable.
[[nodiscard]] std::optional<unsigned> cuda_numa_node(const CudaDriver& driver, int ordinal);
/// Returns the CUDA version of the driver, for example "13.0". If the kernel knows the release of the driver, it follows: "13.0,
/// 580.65.06".
[[nodiscard]] std::string cuda_driver_name(const CudaDriver& driver);

/// How one or several driver calls have ended.
struct CudaOutcome {
  CUresult result = CUDA_SUCCESS;
  std::string_view call;  ///< the name of the call that failed

  [[nodiscard]] bool failed() const { return result != CUDA_SUCCESS; }
};

/// The driver calls that have failed while a device was open. All code that makes such a call reports its failure here. Threads:
/// any.
class FailureLog {
 public:
  explicit FailureLog(const CudaDriver& driver) : driver_{driver} {}

  /// Notes the outcome if it is a failure. Returns true if it is one.
  bool note(const CudaOutcome& outcome) {
    if (!outcome.failed()) return false;
    const std::lock_guard lock{mutex_};
    if (failed_++ == 0) first_ = std::string{outcome.call} + ": " + driver_.describe(outcome.result);
    return true;
  }

  /// How many there are; and the first call that failed, with the driver's reason, which is empty if there was none.
  [[nodiscard]] std::pair<std::uint64_t, std::string> read() const {
    const std::lock_guard lock{mutex_};
    return {failed_, first_};
  }

 private:
  const CudaDriver& driver_;
  mutable std::mutex mutex_;
  std::uint64_t failed_ = 0;
  std::string first_;
};

}  // namespace terrace
