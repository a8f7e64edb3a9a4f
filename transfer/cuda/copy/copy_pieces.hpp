#pragma once

#include "terrace/device.hpp"
#include "terrace/host_memory.hpp"
#include "transfer/device/device_geometry.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace terrace {

/// Bytes that are contiguous on both sides, and on the host within one chunk of the arena. A copy descriptor must not cross
/// chunks, because each chunk is pinned separately.
struct CopyPiece {
  std::uint64_t device = 0;
  std::byte* host = nullptr;
  std::uint64_t bytes = 0;

  friend bool operator==(const CopyPiece&, const CopyPiece&) = default;
};

/// A device's share of every slot of an arena. The share has the size of a block of the device.
struct HostShares {
  const HostSlots* slots = nullptr;
  std::uint64_t offset = 0;  ///< where the share begins in a slot, in bytes
};

/// Appends the pieces of a command, in the order of the host's bytes. It makes the smallest number of pieces that the layouts
/// allow:
///
/// - packed blocks: one piece for each run and chunk, or one for each block if the device has only a share of each host slot;
/// - blocks in regions: one piece for each block and region, but adjacent regions are joined.
///
/// If the command names layers, only the regions of these layers are copied. The slots and layers of the command must exist.
void plan_pieces(const CopyCommand& command, const DeviceGeometry& geometry, const HostShares& host, std::vector<CopyPiece>& out);

/// Appends the pieces of one block of the pool. Its other side is the contiguous memory at `host`.
void plan_block(SlotId device_slot, std::byte* host, const DeviceGeometry& geometry, std::vector<CopyPiece>& out);

/// The properties of pieces on which the choice of a method depends.
struct PieceShape {
  std::size_t count = 0;
  std::uint64_t bytes = 0;  ///< of all pieces together
  /// Whether the two addresses and the size of each piece are multiples of 16. Vectorised accesses need this.
  bool aligned = false;
};
[[nodiscard]] PieceShape shape_of(std::span<const CopyPiece> pieces);

}  // namespace terrace
