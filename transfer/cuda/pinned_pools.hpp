#pragma once

#include "transfer/cuda/copy/copy_pieces.hpp"
#include "transfer/cuda/cuda_device.hpp"
#include "transfer/cuda/driver/driver.hpp"
#include "transfer/cuda/driver/handles.hpp"
#include "transfer/cuda/host_pins.hpp"
#include "transfer/device/device_geometry.hpp"

#include <memory>
#include <span>
#include <vector>

namespace terrace {

/// The memory of a device's pools: the addresses of their blocks on the device, in memory of the device or of the engine, and the
/// host arenas, whose chunks are pinned when they are added and unpinned when they are removed. Constant after construction,
/// except for these chunks and relocate().
class PinnedPools {
 public:
  struct Pool {
    DeviceGeometry geometry;
    HostShares host;
  };

  /// The device's context must be current. `pins` must outlive this object. Memory that is allocated here is zeroed on `stream`,
  /// and the constructor waits for this, because the memory may hold data of another process. Throws as CudaDevice::open() does.
  PinnedPools(const HostPins::User& device, HostPins& pins, std::span<const PoolMemory> pools, CUstream stream,
              FailureLog& failures);

  /// The same as CudaDevice::relocate(). The device's context must be current, and no thread may read the pools meanwhile.
  void relocate(const CudaDriver& driver, CUdevice device, std::span<const RelocatedPool> pools);
  /// Returns the geometries after relocate(), and changes nothing. Throws as relocate() does.
  [[nodiscard]] std::vector<DeviceGeometry> check_relocation(const CudaDriver& driver, CUdevice device,
                                                             std::span<const RelocatedPool> pools) const;

  [[nodiscard]] const Pool& of(PoolId pool) const { return pools_.at(pool.value()); }
  [[nodiscard]] std::span<const Pool> all() const { return pools_; }
  [[nodiscard]] const HostMap& host() const { return host_; }
  [[nodiscard]] std::vector<DevicePool> info() const;

 private:
  std::vector<DeviceMemory> owned_;
  HostMap host_;
  std::vector<Pool> pools_;
  std::vector<std::unique_ptr<PinnedChunks>> pinned_;  ///< one for each arena; destroyed first
};

}  // namespace terrace
