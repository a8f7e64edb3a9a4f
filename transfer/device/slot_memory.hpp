#pragma once

#include "terrace/device.hpp"
#include "terrace/types.hpp"
#include "transfer/device/transfer.hpp"
#include "transfer/host/host_arena.hpp"
#include "transfer/host/mapping.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace terrace {

/// The parameters of one pool of a device in ordinary memory.
struct PoolMemory {
  std::uint32_t slots = 0;
  const HostArena* host = nullptr;  ///< must outlive the device
  HostShare share = {};
  std::uint32_t layers = 1;  ///< the layers of a block, which lie side by side
};

/// Bytes [begin, begin + size) of a block.
struct ByteRange {
  std::size_t begin = 0;
  std::size_t size = 0;
};

/// The device slots of one pool, in ordinary memory, and the copies between them and a host arena. All devices without hardware
/// use it.
///
/// Threads: any. There is no lock: the caller orders the commands so that no two threads touch one slot.
class SlotMemory {
 public:
  /// The arena must outlive this object. Throws std::invalid_argument if there are no slots, if the share is not within a host
  /// slot, or if it cannot be divided into the layers; std::system_error if there is not enough memory.
  explicit SlotMemory(const PoolMemory& pool);

  [[nodiscard]] DevicePool pool() const { return {slots_, block_bytes_, layers_}; }
  [[nodiscard]] std::span<std::byte> device_block(SlotId slot) const;
  /// Returns the device's share of the host slot.
  [[nodiscard]] std::span<std::byte> host_block(SlotId slot) const;

  /// The same as check_slots().
  void check(const CopyCommand& command) const;
  /// Returns the place of the layers in a block. Nothing: the whole block.
  [[nodiscard]] ByteRange range_of(std::optional<LayerRange> layers) const;
  void copy(const CopyCommand& command) const;
  /// Copies whole runs, each range of blocks that is adjacent on both sides with one memcpy. If the device has only a share of
  /// each host slot, no two blocks are adjacent there.
  void copy(Direction direction, std::span<const SlotRun> runs) const;
  /// Copies bytes [begin, begin + size) of one block.
  void copy_part(Direction direction, SlotPair block, std::size_t begin, std::size_t size) const;

 private:
  [[nodiscard]] std::span<std::byte> source(Direction direction, SlotId slot) const;
  [[nodiscard]] std::span<std::byte> destination(Direction direction, SlotId slot) const;

  std::uint32_t slots_;
  const HostArena* host_;
  std::size_t host_begin_;
  Bytes block_bytes_;
  std::uint32_t layers_;
  Mapping device_;
};

/// One SlotMemory for each pool. Threads: as for SlotMemory.
class SlotMemories {
 public:
  /// Throws as SlotMemory does, and std::invalid_argument if there is no pool.
  explicit SlotMemories(std::span<const PoolMemory> pools);

  [[nodiscard]] const SlotMemory& of(PoolId pool) const { return memories_.at(pool.value()); }
  [[nodiscard]] const SlotMemory& of(const CopyCommand& command) const { return of(command.pool); }
  [[nodiscard]] std::vector<DevicePool> pools() const;

 private:
  std::vector<SlotMemory> memories_;
};

/// Gives compute access to the blocks in place.
class InPlaceAccess final : public BlockAccess {
 public:
  explicit InPlaceAccess(const SlotMemories& memories) : memories_{&memories} {}

  using BlockAccess::read;
  using BlockAccess::write_target;
  using BlockAccess::written;
  [[nodiscard]] std::span<const std::byte> read(PoolId pool, SlotId slot, std::span<std::byte>) override {
    return memories_->of(pool).device_block(slot);
  }
  [[nodiscard]] std::span<std::byte> write_target(PoolId pool, SlotId slot, std::span<std::byte>) override {
    return memories_->of(pool).device_block(slot);
  }
  void written(PoolId, SlotId, std::span<std::byte>) override {}

 private:
  const SlotMemories* memories_;
};

}  // namespace terrace
