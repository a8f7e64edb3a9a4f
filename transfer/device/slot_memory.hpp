#pragma once

#include "terrace/device.hpp"
#include "terrace/host_memory.hpp"
#include "terrace/types.hpp"
#include "transfer/device/device_geometry.hpp"
#include "transfer/device/transfer.hpp"
#include "transfer/host/mapping.hpp"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace terrace {

/// The device slots of one pool in ordinary memory, and the copies between them and a host arena. All devices without hardware
/// use it. The blocks are adjacent in memory that it allocates, or lie in regions of the caller. With regions, a copy gathers or
/// scatters the parts of each block, as a CUDA device does.
///
/// Threads: any. There is no lock: the caller orders the commands so that no two threads access the same slot.
class SlotMemory {
 public:
  /// The host slots must outlive this object. Throws std::invalid_argument if there are no slots, if the share is not within a
  /// host slot, if it cannot be divided into the layers, or if the regions are refused (DeviceGeometry); std::system_error if
  /// there is not enough memory.
  explicit SlotMemory(const PoolMemory& pool);

  [[nodiscard]] const DeviceGeometry& geometry() const { return geometry_; }
  /// Returns the block in place. The blocks must be packed.
  [[nodiscard]] std::span<std::byte> device_block(SlotId slot) const;
  /// Returns the device's share of the host slot.
  [[nodiscard]] std::span<std::byte> host_block(SlotId slot) const;

  /// The same as check_slots().
  void check(const CopyCommand& command) const { check_slots(command, geometry_.pool(), *host_); }
  /// Returns the number of bytes that the command moves of each block.
  [[nodiscard]] std::size_t bytes_of_each(const CopyCommand& command) const { return geometry_.bytes_of(command.layers); }
  void copy(const CopyCommand& command) const { copy(command.direction, command.runs, command.layers); }
  /// Copies these layers of all blocks; without `layers`, all layers. Whole blocks that are adjacent on both sides are one
  /// memcpy. (If the device has only a share of each host slot, no two blocks are adjacent there.)
  void copy(Direction direction, std::span<const SlotRun> runs, std::optional<LayerRange> layers = {}) const;
  /// Copies a part of one block: `size` bytes from byte `begin` on, counted over the bytes of these layers (without `layers`, of
  /// all layers) in the host's order.
  void copy_part(Direction direction, SlotPair block, std::optional<LayerRange> layers, std::size_t begin,
                 std::size_t size) const;
  /// Returns the position of one of these bytes in the host's block.
  [[nodiscard]] std::size_t host_place(std::optional<LayerRange> layers, std::size_t at) const;
  /// Copies a whole block to or from contiguous memory, which takes the place of a host slot.
  void copy_block(Direction direction, SlotId slot, std::span<std::byte> host) const;

  /// Changes the addresses of the blocks. Nothing may use the blocks meanwhile.
  void move_to(DeviceGeometry geometry) { geometry_ = std::move(geometry); }

 private:
  void copy_between(Direction direction, SlotId slot, std::span<std::byte> host, std::optional<LayerRange> layers,
                    std::size_t begin, std::size_t size) const;

  const HostSlots* host_;
  std::size_t host_begin_;
  Mapping device_;  ///< empty: the memory belongs to the caller
  DeviceGeometry geometry_;
};

/// One SlotMemory for each pool. Threads: as for SlotMemory.
class SlotMemories {
 public:
  /// Throws as SlotMemory does, and std::invalid_argument if there is no pool, or if blocks of two pools overlap.
  explicit SlotMemories(std::span<const PoolMemory> pools);

  [[nodiscard]] const SlotMemory& of(PoolId pool) const { return memories_.at(pool.value()); }
  [[nodiscard]] const SlotMemory& of(const CopyCommand& command) const { return of(command.pool); }
  /// Returns true if no pool is in memory of the caller.
  [[nodiscard]] bool owned() const {
    return std::ranges::all_of(memories_, [](const SlotMemory& memory) { return memory.geometry().owned(); });
  }
  [[nodiscard]] std::vector<DevicePool> pools() const;
  /// Moves blocks to other addresses, as Device::relocate() does. Throws std::invalid_argument; then nothing has changed. Nothing
  /// may use the memories meanwhile.
  void relocate(std::span<const RelocatedPool> pools);
  /// Returns the geometries after relocate(), and changes nothing. Throws as relocate() does.
  [[nodiscard]] std::vector<DeviceGeometry> check_relocation(std::span<const RelocatedPool> pools) const;

 private:
  [[nodiscard]] std::vector<DeviceGeometry> geometries() const;

  std::vector<SlotMemory> memories_;
};

/// Gives compute access to the blocks: in place if they are packed, otherwise through the caller's scratch memory.
class InPlaceAccess final : public BlockAccess {
 public:
  explicit InPlaceAccess(const SlotMemories& memories) : memories_{&memories} {}

  using BlockAccess::read;
  using BlockAccess::write_target;
  using BlockAccess::written;
  [[nodiscard]] std::span<const std::byte> read(PoolId pool, SlotId slot, std::span<std::byte> scratch) override;
  [[nodiscard]] std::span<std::byte> write_target(PoolId pool, SlotId slot, std::span<std::byte> scratch) override;
  void written(PoolId pool, SlotId slot, std::span<std::byte> scratch) override;

 private:
  const SlotMemories* memories_;
};

}  // namespace terrace
