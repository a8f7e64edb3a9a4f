// CudaDevice in a build without the CUDA toolkit. Its functions say that there is no CUDA device.
#include "transfer/cuda/cuda_device.hpp"

#include <stdexcept>

namespace terrace {
namespace {

constexpr const char* not_built = "this build has no CUDA device: it was configured without the CUDA toolkit (TERRACE_CUDA)";

}  // namespace

// NOLINTNEXTLINE(performance-unnecessary-value-param): as in the build with CUDA
std::unique_ptr<CudaDevice> CudaDevice::open(std::span<const PoolMemory>, CudaOptions) { throw std::runtime_error{not_built}; }

std::shared_ptr<HostPins> CudaDevice::shared_pins() { return nullptr; }

std::optional<std::string> CudaDevice::unavailable(int) { return not_built; }

std::optional<unsigned> CudaDevice::numa_node(int) { return std::nullopt; }

CopyMethodTable CudaDevice::calibrated(int, const std::filesystem::path&) { throw std::runtime_error{not_built}; }

}  // namespace terrace
