#pragma once

#include <cuda.h>

#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

// The functions of the driver that the device calls. cuda.h defines most of these names as macros that expand to the newest
// version of a function. This list passes the names on unexpanded, so that the driver is asked for the name without a version.
#define TERRACE_CUDA_CALLS(CALL)          \
  CALL(cuGetErrorName)                    \
  CALL(cuGetErrorString)                  \
  CALL(cuInit)                            \
  CALL(cuDriverGetVersion)                \
  CALL(cuDeviceGetCount)                  \
  CALL(cuDeviceGet)                       \
  CALL(cuDeviceGetName)                   \
  CALL(cuDeviceGetAttribute)              \
  CALL(cuDevicePrimaryCtxRetain)          \
  CALL(cuDevicePrimaryCtxRelease)         \
  CALL(cuCtxPushCurrent)                  \
  CALL(cuCtxPopCurrent)                   \
  CALL(cuCtxSetCurrent)                   \
  CALL(cuThreadExchangeStreamCaptureMode) \
  CALL(cuMemAlloc)                        \
  CALL(cuMemFree)                         \
  CALL(cuMemHostAlloc)                    \
  CALL(cuMemFreeHost)                     \
  CALL(cuMemHostRegister)                 \
  CALL(cuMemHostUnregister)               \
  CALL(cuMemHostGetDevicePointer)         \
  CALL(cuPointerGetAttribute)             \
  CALL(cuMemsetD8Async)                   \
  CALL(cuMemcpyHtoDAsync)                 \
  CALL(cuMemcpyDtoHAsync)                 \
  CALL(cuCtxGetStreamPriorityRange)       \
  CALL(cuStreamCreate)                    \
  CALL(cuStreamCreateWithPriority)        \
  CALL(cuStreamDestroy)                   \
  CALL(cuStreamSynchronize)               \
  CALL(cuStreamWaitEvent)                 \
  CALL(cuStreamIsCapturing)               \
  CALL(cuEventCreate)                     \
  CALL(cuEventDestroy)                    \
  CALL(cuEventRecord)                     \
  CALL(cuEventQuery)                      \
  CALL(cuEventSynchronize)                \
  CALL(cuEventElapsedTime)                \
  CALL(cuModuleLoadData)                  \
  CALL(cuModuleUnload)                    \
  CALL(cuModuleGetFunction)               \
  CALL(cuFuncSetAttribute)                \
  CALL(cuLaunchKernel)

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

#define TERRACE_CUDA_MEMBER(name) decltype(&::name) name = nullptr;
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

}  // namespace terrace
