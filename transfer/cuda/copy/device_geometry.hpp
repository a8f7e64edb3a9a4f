#pragma once

#include "base/bytes.hpp"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace terrace {

/// One part of every block of a pool: that of block b lies at base + b * stride and is `bytes` long. Engines have one per layer
/// and per K and V; a pool of packed blocks has one, with the stride of its size.
struct DeviceRegion {
  std::uint64_t base = 0;  ///< an address in device memory
  std::uint64_t stride = 0;
  std::uint64_t bytes = 0;
  std::uint32_t layer = 0;  ///< whose bytes they are: what a command of layers goes by
};

/// Where the blocks of one pool lie on the device. Gathered in the order of the regions they make one contiguous host slot; a
/// layer's regions need not follow each other there (all K, then all V). Constant after construction.
class DeviceGeometry {
 public:
  /// Throws std::invalid_argument, and names the region, where there is no region or slot, a region is empty or leaves the
  /// address space, its blocks overlap each other or those of another region, the regions do not add up to block_bytes, or their
  /// layers, counted from 0, are not all there and of one size.
  DeviceGeometry(std::uint32_t slots, std::vector<DeviceRegion> regions, Bytes block_bytes);

  [[nodiscard]] std::uint32_t slots() const { return slots_; }
  [[nodiscard]] Bytes block_bytes() const { return block_bytes_; }
  [[nodiscard]] std::span<const DeviceRegion> regions() const { return regions_; }
  [[nodiscard]] std::uint32_t layers() const { return layers_; }
  /// Whole blocks lie side by side, as they do on the host.
  [[nodiscard]] bool packed() const { return packed_; }
  /// From the first byte of the region's first block to one past the last of its last.
  [[nodiscard]] std::uint64_t extent(const DeviceRegion& region) const { return (slots_ - 1) * region.stride + region.bytes; }

 private:
  std::uint32_t slots_;
  std::vector<DeviceRegion> regions_;
  Bytes block_bytes_;
  std::uint32_t layers_ = 1;
  bool packed_ = false;
};

/// Whole blocks side by side, each of so many equal layers. Throws as DeviceGeometry, and std::invalid_argument where a block
/// does not fall into them.
[[nodiscard]] DeviceGeometry packed_geometry(std::uint64_t base, std::uint32_t slots, Bytes block_bytes,
                                             std::uint32_t layers = 1);

/// Throws std::invalid_argument where blocks of two pools overlap.
void check_disjoint(std::span<const DeviceGeometry> pools);

}  // namespace terrace
