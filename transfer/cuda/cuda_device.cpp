#include "transfer/cuda/cuda_device.hpp"

#include "terrace/clock.hpp"
#include "transfer/cuda/copy/calibration.hpp"
#include "transfer/cuda/driver/driver.hpp"
#include "transfer/cuda/driver_device.hpp"
#include "transfer/cuda/host_pins.hpp"

#include <memory>
#include <utility>

namespace terrace {

std::unique_ptr<CudaDevice> CudaDevice::open(std::span<const PoolMemory> pools, CudaOptions options) {
  return std::make_unique<DriverDevice>(cuda_driver(), pools, std::move(options));
}

std::shared_ptr<HostPins> CudaDevice::shared_pins() { return std::make_shared<HostPins>(); }

std::optional<std::string> CudaDevice::unavailable(int ordinal) {
  try {
    static_cast<void>(cuda_device_at(cuda_driver(), ordinal));
    return std::nullopt;
  } catch (const std::runtime_error& error) {
    return error.what();
  }
}

std::optional<unsigned> CudaDevice::numa_node(int ordinal) { return cuda_numa_node(cuda_driver(), ordinal); }

CopyMethodTable CudaDevice::calibrated(int ordinal, const std::filesystem::path& file) {
  return kept_or_measured(cuda_driver(), ordinal, file, SteadyClock{});
}

}  // namespace terrace
