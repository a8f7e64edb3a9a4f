#pragma once

#include "terrace/device.hpp"
#include "terrace/types.hpp"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace terrace {

/// The addresses of the blocks of one pool on the device. The parts of a block, in the order of the regions, make up one
/// contiguous host slot. The regions of a layer need not be adjacent there (for example, all K may come before all V). Constant
/// after construction.
class DeviceGeometry {
 public:
  /// Throws std::invalid_argument, with the region in its text, if there is no region or no slot; if a region is empty or leaves
  /// the address space; if blocks overlap; if the regions do not add up to block_bytes; or if the layers are not numbered from 0
  /// without a gap, or differ in size. `owned`: the device has allocated the memory itself.
  DeviceGeometry(std::uint32_t slots, std::vector<DeviceRegion> regions, Bytes block_bytes, bool owned = false);

  [[nodiscard]] std::uint32_t slots() const { return slots_; }
  [[nodiscard]] Bytes block_bytes() const { return block_bytes_; }
  [[nodiscard]] std::span<const DeviceRegion> regions() const { return regions_; }
  [[nodiscard]] std::uint32_t layers() const { return layers_; }
  [[nodiscard]] DevicePool pool() const { return {slots_, block_bytes_, layers_}; }
  [[nodiscard]] bool owned() const { return owned_; }
  /// Returns true if whole blocks are adjacent, as on the host.
  [[nodiscard]] bool packed() const { return packed_; }
  /// Returns the number of bytes of these layers in one block; without `layers`, of the whole block.
  [[nodiscard]] std::uint64_t bytes_of(std::optional<LayerRange> layers) const;
  /// Returns the number of bytes from the beginning of the region's first block to the end of its last block.
  [[nodiscard]] std::uint64_t extent(const DeviceRegion& region) const { return (slots_ - 1) * region.stride + region.bytes; }

 private:
  std::uint32_t slots_;
  std::vector<DeviceRegion> regions_;
  Bytes block_bytes_;
  bool owned_;
  std::uint32_t layers_ = 1;
  bool packed_ = false;
};

/// Calls `part(address, place, bytes)` for each part of the block that is within bytes [begin, begin + size) of these layers, in
/// the order of the host's bytes. `address` is on the device, and `place` is the position of the part in the host's block.
template <class Part>
void for_each_part(const DeviceGeometry& geometry, std::uint64_t slot, std::optional<LayerRange> layers, std::uint64_t begin,
                   std::uint64_t size, const Part& part) {
  if (geometry.packed() && !layers) {
    part(geometry.regions()[0].base + slot * count(geometry.block_bytes()) + begin, begin, size);
    return;
  }
  const LayerRange wanted = layers.value_or(LayerRange{0, geometry.layers()});
  std::uint64_t place = 0;   // position of the region in the host's block
  std::uint64_t within = 0;  // position of the region among the wanted bytes
  for (const DeviceRegion& region : geometry.regions()) {
    // The difference is unsigned: for a layer before the first one it is very large.
    if (region.layer - wanted.first < wanted.count) {
      const std::uint64_t from = std::max(begin, within);
      const std::uint64_t to = std::min(begin + size, within + region.bytes);
      if (from < to) {
        part(region.base + slot * region.stride + (from - within), place + (from - within), to - from);
      }
      within += region.bytes;
    }
    place += region.bytes;
  }
}

/// Makes the geometry of adjacent whole blocks in the device's own memory, each of `layers` equal layers. Throws as
/// DeviceGeometry does, and std::invalid_argument if a block cannot be divided into the layers.
[[nodiscard]] DeviceGeometry packed_geometry(std::uint64_t base, std::uint32_t slots, Bytes block_bytes,
                                             std::uint32_t layers = 1);

/// Throws std::invalid_argument if blocks of two pools overlap.
void check_disjoint(std::span<const DeviceGeometry> pools);

/// Returns the geometries of all pools after some of them have moved to other addresses, as in Device::relocate(). Throws
/// std::invalid_argument as described there, except that it does not check the owner of the memory at the new addresses.
[[nodiscard]] std::vector<DeviceGeometry> relocated(std::vector<DeviceGeometry> pools, std::span<const RelocatedPool> moved);

}  // namespace terrace
