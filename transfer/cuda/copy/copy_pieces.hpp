#pragma once

#include "transfer/cuda/copy/device_geometry.hpp"
#include "transfer/device/device.hpp"
#include "transfer/host/host_arena.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace terrace {

/// Bytes that are contiguous on both sides, and on the host within one chunk of the arena: what one copy descriptor may name,
/// since each chunk is pinned by itself.
struct CopyPiece {
  std::uint64_t device = 0;
  std::byte* host = nullptr;
  std::uint64_t bytes = 0;

  friend bool operator==(const CopyPiece&, const CopyPiece&) = default;
};

/// A device's share of every slot of an arena, as large as its blocks.
struct HostShares {
  const HostArena* arena = nullptr;
  std::uint64_t offset = 0;  ///< bytes, of a slot
};

/// Appends the pieces of a command, in the order of the host's bytes, as few as the two layouts allow: of packed blocks one a
/// run and chunk, or where the device has only a share of each host slot, one a block; of blocks in regions one a block and
/// region, but for regions that lie side by side. Of a command of layers those regions only. The command's slots and layers
/// exist.
void plan_pieces(const CopyCommand& command, const DeviceGeometry& geometry, const HostShares& host, std::vector<CopyPiece>& out);

/// Appends the pieces of one block of the pool whose other side is `host`, contiguous.
void plan_block(SlotId device_slot, std::byte* host, const DeviceGeometry& geometry, std::vector<CopyPiece>& out);

/// What the choice of a method depends on.
struct PieceShape {
  std::size_t count = 0;
  std::uint64_t bytes = 0;  ///< of all pieces
  /// Each piece's two addresses and its size are multiples of 16: what a vectorised access needs.
  bool aligned = false;
};
[[nodiscard]] PieceShape shape_of(std::span<const CopyPiece> pieces);

}  // namespace terrace
