#pragma once

#include <cuda.h>

#include <stdexcept>
#include <string>
#include <string_view>

// The calls of the driver that the device makes, by the names they are asked for. cuda.h defines most of these names as macros
// for their newest version; a list hands them on as they are spelled, so that the name asked for is the one without a version.
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
  CALL(cuStreamCreate)                    \
  CALL(cuStreamDestroy)                   \
  CALL(cuStreamSynchronize)               \
  CALL(cuStreamWaitEvent)                 \
  CALL(cuStreamIsCapturing)               \
  CALL(cuEventCreate)                     \
  CALL(cuEventDestroy)                    \
  CALL(cuEventRecord)                     \
  CALL(cuEventSynchronize)                \
  CALL(cuEventElapsedTime)                \
  CALL(cuModuleLoadData)                  \
  CALL(cuModuleUnload)                    \
  CALL(cuModuleGetFunction)               \
  CALL(cuFuncSetAttribute)                \
  CALL(cuLaunchKernel)

namespace terrace {

/// There is no driver, no device, or none that is new enough; what() is a sentence for the user.
class CudaUnavailable : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A call of the driver failed: "cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY (out of memory): 64GiB for device slots".
class CudaError : public std::runtime_error {
 public:
  CudaError(CUresult result, const std::string& text) : std::runtime_error{text}, result_{result} {}
  [[nodiscard]] CUresult result() const { return result_; }

 private:
  CUresult result_;
};

/// The driver's functions, found when the program runs and not when it is linked, so that one binary runs where there is no
/// driver. Another table takes its place in tests. Not found among them: null where optional, else there is no such table.
///
/// Unlike the runtime's calls those of the driver leave no "last error" for the next caller to find: what a call reports is
/// reported to us alone. What they do leave is a context that has failed (an illegal address, a lost device): every later call
/// then says so, and ends as failed like the first.
struct CudaDriver {
  // Two signatures under one name: the newer has lost `fail_index`.
  using MemcpyBatch12080 = CUresult(CUDAAPI*)(CUdeviceptr*, CUdeviceptr*, std::size_t*, std::size_t, CUmemcpyAttributes*,
                                              std::size_t*, std::size_t, std::size_t* fail_index, CUstream);
  using MemcpyBatch13000 = CUresult(CUDAAPI*)(CUdeviceptr*, CUdeviceptr*, std::size_t*, std::size_t, CUmemcpyAttributes*,
                                              std::size_t*, std::size_t, CUstream);

#define TERRACE_CUDA_MEMBER(name) decltype(&::name) name = nullptr;
  TERRACE_CUDA_CALLS(TERRACE_CUDA_MEMBER)
#undef TERRACE_CUDA_MEMBER
  MemcpyBatch12080 memcpy_batch_12080 = nullptr;  ///< optional, as the next
  MemcpyBatch13000 memcpy_batch_13000 = nullptr;

  /// "CUDA_ERROR_ILLEGAL_ADDRESS (an illegal memory access was encountered)"
  [[nodiscard]] std::string describe(CUresult result) const;
  /// Throws CudaError unless the call succeeded.
  void check(CUresult result, std::string_view call, std::string_view doing = {}) const;
};

/// The least driver that serves: every call but the batched copies has had its present form since.
inline constexpr int cuda_driver_version_min = 12000;

/// The machine's own, loaded and initialised once and never unloaded: it has threads of its own. Throws CudaUnavailable.
[[nodiscard]] const CudaDriver& cuda_driver();

/// The device's number as the driver knows it. Throws CudaUnavailable where there is none of that number.
[[nodiscard]] CUdevice cuda_device_at(const CudaDriver& driver, int ordinal);
[[nodiscard]] std::string cuda_device_name(const CudaDriver& driver, CUdevice device);
[[nodiscard]] int cuda_attribute(const CudaDriver& driver, CUdevice device, CUdevice_attribute attribute);
/// "13.0", and where the kernel says which release of the driver runs, "13.0, 580.65.06".
[[nodiscard]] std::string cuda_driver_name(const CudaDriver& driver);

}  // namespace terrace
