// The functions of the driver have the signatures that the toolkit gives for their versions. The compiler checks it: nothing
// runs.

#include "transfer/cuda/driver/driver.hpp"

#include <cudaTypedefs.h>

#include <type_traits>

namespace terrace {

#define TERRACE_SAME_SIGNATURE(name, version) static_assert(std::is_same_v<decltype(CudaDriver::name), PFN_##name##_##version>);

TERRACE_SAME_SIGNATURE(cuGetErrorName, v6000)
TERRACE_SAME_SIGNATURE(cuGetErrorString, v6000)
TERRACE_SAME_SIGNATURE(cuInit, v2000)
TERRACE_SAME_SIGNATURE(cuDriverGetVersion, v2020)
TERRACE_SAME_SIGNATURE(cuDeviceGetCount, v2000)
TERRACE_SAME_SIGNATURE(cuDeviceGet, v2000)
TERRACE_SAME_SIGNATURE(cuDeviceGetName, v2000)
TERRACE_SAME_SIGNATURE(cuDeviceGetAttribute, v2000)
TERRACE_SAME_SIGNATURE(cuDevicePrimaryCtxRetain, v7000)
TERRACE_SAME_SIGNATURE(cuDevicePrimaryCtxRelease, v11000)
TERRACE_SAME_SIGNATURE(cuCtxPushCurrent, v4000)
TERRACE_SAME_SIGNATURE(cuCtxPopCurrent, v4000)
TERRACE_SAME_SIGNATURE(cuCtxSetCurrent, v4000)
TERRACE_SAME_SIGNATURE(cuThreadExchangeStreamCaptureMode, v10010)
TERRACE_SAME_SIGNATURE(cuMemAlloc, v3020)
TERRACE_SAME_SIGNATURE(cuMemFree, v3020)
TERRACE_SAME_SIGNATURE(cuMemHostAlloc, v2020)
TERRACE_SAME_SIGNATURE(cuMemFreeHost, v2000)
TERRACE_SAME_SIGNATURE(cuMemHostRegister, v6050)
TERRACE_SAME_SIGNATURE(cuMemHostUnregister, v4000)
TERRACE_SAME_SIGNATURE(cuMemHostGetDevicePointer, v3020)
TERRACE_SAME_SIGNATURE(cuPointerGetAttribute, v4000)
TERRACE_SAME_SIGNATURE(cuMemsetD8Async, v3020)
TERRACE_SAME_SIGNATURE(cuMemcpyHtoDAsync, v3020)
TERRACE_SAME_SIGNATURE(cuMemcpyDtoHAsync, v3020)
TERRACE_SAME_SIGNATURE(cuCtxGetStreamPriorityRange, v5050)
TERRACE_SAME_SIGNATURE(cuStreamCreate, v2000)
TERRACE_SAME_SIGNATURE(cuStreamCreateWithPriority, v5050)
TERRACE_SAME_SIGNATURE(cuStreamDestroy, v4000)
TERRACE_SAME_SIGNATURE(cuStreamSynchronize, v2000)
TERRACE_SAME_SIGNATURE(cuStreamWaitEvent, v3020)
TERRACE_SAME_SIGNATURE(cuStreamIsCapturing, v10000)
TERRACE_SAME_SIGNATURE(cuEventCreate, v2000)
TERRACE_SAME_SIGNATURE(cuEventDestroy, v4000)
TERRACE_SAME_SIGNATURE(cuEventRecord, v2000)
TERRACE_SAME_SIGNATURE(cuEventQuery, v2000)
TERRACE_SAME_SIGNATURE(cuEventSynchronize, v2000)
TERRACE_SAME_SIGNATURE(cuEventElapsedTime, v2000)
TERRACE_SAME_SIGNATURE(cuModuleLoadData, v2000)
TERRACE_SAME_SIGNATURE(cuModuleUnload, v2000)
TERRACE_SAME_SIGNATURE(cuModuleGetFunction, v2000)
TERRACE_SAME_SIGNATURE(cuFuncSetAttribute, v9000)
TERRACE_SAME_SIGNATURE(cuLaunchKernel, v4000)

#undef TERRACE_SAME_SIGNATURE

static_assert(std::is_same_v<CudaDriver::MemcpyBatch12080, PFN_cuMemcpyBatchAsync_v12080>);
static_assert(std::is_same_v<CudaDriver::MemcpyBatch13000, PFN_cuMemcpyBatchAsync_v13000>);

// A function without a row here would not be checked.
#define TERRACE_ONE(name) +1
static_assert((0 TERRACE_CUDA_CALLS(TERRACE_ONE)) == 43);
#undef TERRACE_ONE

}  // namespace terrace
