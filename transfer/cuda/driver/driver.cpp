#include "transfer/cuda/driver/driver.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <array>
#include <fstream>

namespace terrace {
namespace {

using GetProcAddress = CUresult(CUDAAPI*)(const char*, void**, int, cuuint64_t, CUdriverProcAddressQueryResult*);

std::string version_text(int version) { return fmt::format("{}.{}", version / 1000, version % 1000 / 10); }

/// Returns null if the driver has no such function of that version.
template <class Function>
Function find(GetProcAddress get_proc_address, const char* name, int version) {
  void* found = nullptr;
  CUdriverProcAddressQueryResult status{};
  if (get_proc_address(name, &found, version, CU_GET_PROC_ADDRESS_LEGACY_STREAM, &status) != CUDA_SUCCESS) return nullptr;
  return status == CU_GET_PROC_ADDRESS_SUCCESS ? reinterpret_cast<Function>(found) : nullptr;
}

CudaDriver load() {
  void* const library = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* const why = ::dlerror();  // NOLINT(concurrency-mt-unsafe): each thread has its own in glibc
    throw CudaUnavailable{fmt::format("no CUDA driver on this machine ({})", why == nullptr ? "libcuda.so.1" : why)};
  }
  const auto get_proc_address = reinterpret_cast<GetProcAddress>(::dlsym(library, "cuGetProcAddress_v2"));
  const auto driver_version = reinterpret_cast<CUresult(CUDAAPI*)(int*)>(::dlsym(library, "cuDriverGetVersion"));
  int version = 0;
  if (driver_version != nullptr) static_cast<void>(driver_version(&version));
  const auto too_old = [&](std::string_view missing) {
    return CudaUnavailable{
        fmt::format("the CUDA driver of this machine is too old: it is for CUDA {}, and {} or newer is needed{}",
                    version_text(version), version_text(cuda_driver_version_min), missing)};
  };
  if (get_proc_address == nullptr || version < cuda_driver_version_min) throw too_old("");
  CudaDriver driver;
#define TERRACE_CUDA_FIND(name, version)                                                       \
  driver.name = find<decltype(driver.name)>(get_proc_address, #name, cuda_driver_version_min); \
  if (driver.name == nullptr) throw too_old(" (it has no " #name ")");
  TERRACE_CUDA_CALLS(TERRACE_CUDA_FIND)
#undef TERRACE_CUDA_FIND
  driver.memcpy_batch_12080 = find<CudaDriver::MemcpyBatch12080>(get_proc_address, "cuMemcpyBatchAsync", 12080);
  driver.memcpy_batch_13000 = find<CudaDriver::MemcpyBatch13000>(get_proc_address, "cuMemcpyBatchAsync", 13000);
  const CUresult started = driver.cuInit(0);
  if (started == CUDA_ERROR_NO_DEVICE) throw CudaUnavailable{"a CUDA driver, but no CUDA device on this machine"};
  if (started != CUDA_SUCCESS) {
    throw CudaUnavailable{fmt::format("the CUDA driver of this machine does not start: {}", driver.describe(started))};
  }
  return driver;
}

}  // namespace

std::string CudaDriver::describe(CUresult result) const {
  const char* name = nullptr;
  const char* text = nullptr;
  if (cuGetErrorName(result, &name) != CUDA_SUCCESS || name == nullptr) return fmt::format("error {}", static_cast<int>(result));
  if (cuGetErrorString(result, &text) != CUDA_SUCCESS || text == nullptr) return name;
  return fmt::format("{} ({})", name, text);
}

void CudaDriver::check(CUresult result, std::string_view call, std::string_view doing) const {
  if (result == CUDA_SUCCESS) return;
  throw CudaError{result, fmt::format("{}: {}{}{}", call, describe(result), doing.empty() ? "" : ": ", doing)};
}

const CudaDriver& cuda_driver() {
  static const CudaDriver driver = load();
  return driver;
}

CUdevice cuda_device_at(const CudaDriver& driver, int ordinal) {
  int devices = 0;
  driver.check(driver.cuDeviceGetCount(&devices), "cuDeviceGetCount");
  if (devices == 0) throw CudaUnavailable{"a CUDA driver, but no CUDA device on this machine"};
  if (ordinal < 0 || ordinal >= devices) {
    throw CudaUnavailable{fmt::format("no CUDA device {}: there {} {}", ordinal, devices == 1 ? "is" : "are", devices)};
  }
  CUdevice device = 0;
  driver.check(driver.cuDeviceGet(&device, ordinal), "cuDeviceGet");
  return device;
}

std::string cuda_device_name(const CudaDriver& driver, CUdevice device) {
  std::array<char, 256> name{};
  driver.check(driver.cuDeviceGetName(name.data(), static_cast<int>(name.size()) - 1, device), "cuDeviceGetName");
  return name.data();
}

int cuda_attribute(const CudaDriver& driver, CUdevice device, CUdevice_attribute attribute) {
  int value = 0;
  driver.check(driver.cuDeviceGetAttribute(&value, attribute, device), "cuDeviceGetAttribute");
  return value;
}

std::optional<unsigned> cuda_numa_node(const CudaDriver& driver, int ordinal) {
  const CUdevice device = cuda_device_at(driver, ordinal);
  int node = -1;  // a driver before 12.2 does not know the attribute
  if (driver.cuDeviceGetAttribute(&node, CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, device) != CUDA_SUCCESS || node < 0)
    return std::nullopt;
  return static_cast<unsigned>(node);
}

std::string cuda_driver_name(const CudaDriver& driver) {
  int version = 0;
  driver.check(driver.cuDriverGetVersion(&version), "cuDriverGetVersion");
  std::string release;
  std::ifstream{"/sys/module/nvidia/version"} >> release;
  return release.empty() ? version_text(version) : fmt::format("{}, {}", version_text(version), release);
}

}  // namespace terrace
