#pragma once

#include "terrace/types.hpp"
#include "transfer/cuda/driver/driver.hpp"
#include "transfer/cuda/driver/handles.hpp"
#include "transfer/device/device_geometry.hpp"

#include <cstdint>
#include <vector>

namespace terrace::test {

/// The place in which an engine keeps its blocks.
enum class Layout {
  packed,   ///< in memory of the device
  regions,  ///< three parts: two are adjacent in one array, the third is in another one; with gaps between blocks
};

/// An engine's arrays for blocks of three parts.
class EngineMemory {
 public:
  /// There are gaps of 16 bytes after the first two parts, and of 32 bytes after the third.
  EngineMemory(const CudaDriver& driver, std::uint32_t slots, std::uint64_t first, std::uint64_t second, std::uint64_t third)
      : stride_low_{first + second + 16},
        stride_high_{third + 32},
        low_{allocate_device(driver, Bytes{slots * stride_low_}, "a test's regions")},
        high_{allocate_device(driver, Bytes{slots * stride_high_}, "a test's regions")},
        regions_{
            {low_.get(), stride_low_, first}, {low_.get() + first, stride_low_, second}, {high_.get(), stride_high_, third}} {}

  [[nodiscard]] const std::vector<DeviceRegion>& regions() const { return regions_; }

 private:
  std::uint64_t stride_low_;
  std::uint64_t stride_high_;
  DeviceMemory low_;
  DeviceMemory high_;
  std::vector<DeviceRegion> regions_;
};

}  // namespace terrace::test
