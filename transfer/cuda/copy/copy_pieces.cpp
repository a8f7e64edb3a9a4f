#include "transfer/cuda/copy/copy_pieces.hpp"

#include <algorithm>

namespace terrace {
namespace {

/// Appends a piece, or joins it to the last one if they are contiguous. Only the pieces from `first` on may be joined, because
/// they belong to one range of slots in one chunk.
void append(std::vector<CopyPiece>& out, std::size_t first, const CopyPiece& next) {
  if (out.size() > first) {
    CopyPiece& last = out.back();
    if (last.device + last.bytes == next.device && last.host + last.bytes == next.host) {
      last.bytes += next.bytes;
      return;
    }
  }
  out.push_back(next);
}

/// Appends the pieces of blocks whose host sides lie in one chunk, each `host_stride` bytes after the one before.
void plan_span(std::uint64_t device_slot, std::byte* host, std::uint64_t host_stride, std::uint32_t slots,
               const DeviceGeometry& geometry, std::optional<LayerRange> layers, std::vector<CopyPiece>& out) {
  const std::size_t first = out.size();
  const std::uint64_t block_bytes = count(geometry.block_bytes());
  if (geometry.packed() && host_stride == block_bytes && !layers) {
    out.push_back({geometry.regions()[0].base + device_slot * block_bytes, host, slots * block_bytes});
    return;
  }
  for (std::uint32_t i = 0; i < slots; ++i) {
    const auto add = [&](std::uint64_t device, std::uint64_t place, std::uint64_t bytes) {
      append(out, first, {device, host + i * host_stride + place, bytes});
    };
    for_each_part(geometry, device_slot + i, layers, 0, geometry.bytes_of(layers), add);
  }
}

}  // namespace

void plan_pieces(const CopyCommand& command, const DeviceGeometry& geometry, const HostShares& host,
                 std::vector<CopyPiece>& out) {
  const HostSlots& arena = *host.slots;
  const std::uint64_t stride = count(arena.block_bytes());
  const bool swap_out = command.direction == Direction::swap_out;
  for (const SlotRun& run : command.runs) {
    std::uint32_t device_slot = (swap_out ? run.source : run.destination).value();
    std::uint32_t host_slot = (swap_out ? run.destination : run.source).value();
    for (std::uint32_t left = run.count; left > 0;) {
      const std::uint32_t range = std::min(left, arena.contiguous_from(SlotId{host_slot}));
      std::byte* const first = arena.block(SlotId{host_slot}).data() + host.offset;
      plan_span(device_slot, first, stride, range, geometry, command.layers, out);
      device_slot += range;
      host_slot += range;
      left -= range;
    }
  }
}

void plan_block(SlotId device_slot, std::byte* host, const DeviceGeometry& geometry, std::vector<CopyPiece>& out) {
  plan_span(device_slot.value(), host, count(geometry.block_bytes()), 1, geometry, {}, out);
}

PieceShape shape_of(std::span<const CopyPiece> pieces) {
  PieceShape shape;
  shape.count = pieces.size();
  std::uint64_t bits = 0;
  for (const CopyPiece& piece : pieces) {
    shape.bytes += piece.bytes;
    bits |= piece.device | reinterpret_cast<std::uintptr_t>(piece.host) | piece.bytes;
  }
  shape.aligned = bits % 16 == 0;
  return shape;
}

}  // namespace terrace
