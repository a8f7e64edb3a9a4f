// The functions of the driver have the signatures that the toolkit gives for their versions. The compiler checks it: nothing
// runs.

#include "transfer/cuda/driver/driver.hpp"

#include <cudaTypedefs.h>

#include <type_traits>

namespace terrace {

#define TERRACE_SAME_SIGNATURE(name, version) static_assert(std::is_same_v<decltype(CudaDriver::name), PFN_##name##_v##version>);
TERRACE_CUDA_CALLS(TERRACE_SAME_SIGNATURE)
#undef TERRACE_SAME_SIGNATURE

static_assert(std::is_same_v<CudaDriver::MemcpyBatch12080, PFN_cuMemcpyBatchAsync_v12080>);
static_assert(std::is_same_v<CudaDriver::MemcpyBatch13000, PFN_cuMemcpyBatchAsync_v13000>);

}  // namespace terrace
