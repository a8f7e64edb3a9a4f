#pragma once

#include "transfer/cuda/copy/copy_pieces.hpp"
#include "transfer/cuda/copy/device_geometry.hpp"
#include "transfer/cuda/cuda_device.hpp"
#include "transfer/cuda/driver/driver.hpp"
#include "transfer/cuda/driver/failure_log.hpp"
#include "transfer/cuda/driver/handles.hpp"
#include "transfer/cuda/host_pins.hpp"
#include "transfer/cuda/pinned_chunks.hpp"

#include <memory>
#include <span>
#include <vector>

namespace terrace {

/// The memory of a device's pools: where their blocks lie on the device, owned or the engine's, and the host arenas, whose chunks
/// are pinned as they come and unpinned as they go. Constant after construction, but for these chunks and relocate().
class PinnedPools {
 public:
  struct Pool {
    DeviceGeometry geometry;
    HostShares host;
    bool owned;  ///< the device's own memory
  };

  /// The context is the device's, and current. `pins` outlives this. Owned memory is zeroed on `stream`, and waited for: it may
  /// hold what another process has left there. Throws as CudaDevice::open.
  PinnedPools(const HostPins::User& device, HostPins& pins, std::span<const CudaPool> pools, CUstream stream,
              FailureLog& failures);

  /// As CudaDevice::relocate. The device's context is current, and nobody reads meanwhile.
  void relocate(const CudaDriver& driver, CUdevice device, std::span<const RelocatedPool> pools);

  [[nodiscard]] const Pool& of(PoolId pool) const { return pools_.at(pool.value()); }
  [[nodiscard]] std::span<const Pool> all() const { return pools_; }
  [[nodiscard]] const HostMap& host() const { return host_; }
  [[nodiscard]] std::vector<DevicePool> info() const;

 private:
  std::vector<DeviceMemory> owned_;
  HostMap host_;
  std::vector<Pool> pools_;
  std::vector<std::unique_ptr<PinnedChunks>> pinned_;  ///< one an arena; ends first
};

}  // namespace terrace
