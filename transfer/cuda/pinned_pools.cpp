#include "transfer/cuda/pinned_pools.hpp"

#include <fmt/format.h>

#include <limits>
#include <set>
#include <stdexcept>

namespace terrace {
namespace {

Bytes pool_bytes(const PoolMemory& pool) {
  const Bytes block_bytes = checked_size(pool.share, *pool.host);
  if (pool.slots == 0) throw std::invalid_argument{"CUDA device: a pool must have at least one slot"};
  if (count(block_bytes) > std::numeric_limits<std::uint64_t>::max() / pool.slots) {
    throw std::invalid_argument{
        fmt::format("CUDA device: {} slots of {} are more than can be counted", pool.slots, to_string(block_bytes))};
  }
  return block_bytes * pool.slots;
}

/// Returns true if the driver knows the address as memory of this device.
bool is_on_device(const CudaDriver& driver, CUdevice device, CUdeviceptr address) {
  unsigned type = 0;
  int ordinal = -1;
  CUdevice owner = -1;
  if (driver.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address) != CUDA_SUCCESS) return false;
  if (driver.cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address) != CUDA_SUCCESS) return false;
  if (driver.cuDeviceGet(&owner, ordinal) != CUDA_SUCCESS) return false;
  return type == CU_MEMORYTYPE_DEVICE && owner == device;
}

/// Checks both ends of each region, because an engine may have composed it from several allocations.
void check_on_device(const CudaDriver& driver, CUdevice device, const DeviceGeometry& geometry) {
  for (std::size_t i = 0; i < geometry.regions().size(); ++i) {
    const DeviceRegion& region = geometry.regions()[i];
    const CUdeviceptr last = region.base + geometry.extent(region) - 1;
    if (is_on_device(driver, device, region.base) && is_on_device(driver, device, last)) continue;
    throw std::invalid_argument{fmt::format("CUDA device: region {}, {} at {:#x}, is not memory of this device", i,
                                            to_string(Bytes{geometry.extent(region)}), region.base)};
  }
}

}  // namespace

PinnedPools::PinnedPools(const HostPins::User& device, HostPins& pins, std::span<const PoolMemory> pools, CUstream stream,
                         FailureLog& failures) {
  const CudaDriver& driver = device.driver;
  if (pools.empty()) throw std::invalid_argument{"CUDA device: it must have at least one pool of slots"};
  std::set<HostSlots*> hosts;
  std::vector<DeviceGeometry> geometries;
  for (const PoolMemory& pool : pools) {
    const Bytes size = pool_bytes(pool);
    const Bytes block_bytes = checked_size(pool.share, *pool.host);
    if (pool.regions.empty()) {
      const std::string what = fmt::format("{} slots of {}", pool.slots, to_string(block_bytes));
      owned_.push_back(allocate_device(driver, size, what));
      driver.check(driver.cuMemsetD8Async(owned_.back().get(), 0, count(size), stream), "cuMemsetD8Async");
      driver.check(await_stream(driver, stream), "cuStreamSynchronize", "zeroing " + what);
      geometries.push_back(packed_geometry(owned_.back().get(), pool.slots, block_bytes, pool.layers));
    } else {
      geometries.emplace_back(pool.slots, pool.regions, block_bytes);
      check_on_device(driver, device.device, geometries.back());
    }
    hosts.insert(pool.host);
  }
  check_disjoint(geometries);
  for (std::size_t i = 0; i < pools.size(); ++i) {
    const HostShares host{pools[i].host, count(pools[i].share.offset)};
    pools_.push_back({std::move(geometries[i]), host});
  }
  for (HostSlots* const host : hosts) {
    pinned_.push_back(std::make_unique<PinnedChunks>(device, pins, *host, host_, failures));
  }
}

std::vector<DeviceGeometry> PinnedPools::check_relocation(const CudaDriver& driver, CUdevice device,
                                                          std::span<const RelocatedPool> pools) const {
  std::vector<DeviceGeometry> geometries;
  geometries.reserve(pools_.size());
  for (const Pool& pool : pools_) geometries.push_back(pool.geometry);
  geometries = relocated(std::move(geometries), pools);
  for (const RelocatedPool& moved : pools) check_on_device(driver, device, geometries[moved.pool.value()]);
  return geometries;
}

void PinnedPools::relocate(const CudaDriver& driver, CUdevice device, std::span<const RelocatedPool> pools) {
  std::vector<DeviceGeometry> geometries = check_relocation(driver, device, pools);
  for (std::size_t i = 0; i < pools_.size(); ++i) pools_[i].geometry = std::move(geometries[i]);
}

std::vector<DevicePool> PinnedPools::info() const {
  std::vector<DevicePool> pools;
  pools.reserve(pools_.size());
  for (const Pool& pool : pools_) pools.push_back(pool.geometry.pool());
  return pools;
}

}  // namespace terrace
