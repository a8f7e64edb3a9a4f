#pragma once

#include "transfer/cuda/cuda_device.hpp"
#include "transfer/cuda/device_geometry.hpp"
#include "transfer/cuda/driver.hpp"
#include "transfer/cuda/handles.hpp"

#include <span>
#include <vector>

namespace terrace {

/// The memory of a device's pools: where their blocks lie on the device, owned or the engine's, and the host arenas, each chunk
/// of them pinned by a registration of its own. Constant after construction.
class PinnedPools {
 public:
  struct Pool {
    DeviceGeometry geometry;
    const HostArena* host;
  };

  /// The device's context is current. Owned memory is zeroed on `stream`, and waited for: it may hold what another process has
  /// left there. Throws as CudaDevice::open.
  PinnedPools(const CudaDriver& driver, CUdevice device, std::span<const CudaPool> pools, CUstream stream);

  [[nodiscard]] const Pool& of(PoolId pool) const { return pools_.at(pool.value()); }
  [[nodiscard]] std::span<const Pool> all() const { return pools_; }
  [[nodiscard]] const HostMap& host() const { return host_; }
  [[nodiscard]] std::vector<DevicePool> info() const;

 private:
  void pin(const CudaDriver& driver, const HostArena& arena);

  std::vector<DeviceMemory> owned_;
  std::vector<Owned<void*>> registrations_;
  HostMap host_;
  std::vector<Pool> pools_;
};

}  // namespace terrace
