#pragma once

#include "base/strong_id.hpp"
#include "transfer/device.hpp"
#include "transfer/host_arena.hpp"
#include "transfer/mapping.hpp"
#include "transfer/plan.hpp"

#include <cstddef>
#include <cstdint>
#include <span>

namespace terrace {

/// Device slots in ordinary memory beside a host arena, and the copies between them: what the devices without hardware have
/// in common.
///
/// Threads: any; who may touch which slot is said by the commands' order.
class SlotMemory {
 public:
  /// Blocks are the arena's; the arena outlives this. Throws std::invalid_argument where `slots` is 0, std::system_error
  /// where the memory is not to be had.
  SlotMemory(std::uint32_t slots, const HostArena& host);

  [[nodiscard]] std::uint32_t slots() const { return slots_; }
  [[nodiscard]] const HostArena& host() const { return *host_; }
  [[nodiscard]] std::span<std::byte> device_block(SlotId slot) const;

  /// Checks that every slot of the command exists: nobody but our own runtime names slots.
  void check(const CopyCommand& command) const;
  /// Copies whole runs, each stretch of blocks that is adjacent on both sides with one memcpy.
  void copy(Direction direction, std::span<const SlotRun> runs) const;
  /// Copies bytes [begin, begin + size) of one block.
  void copy_part(Direction direction, SlotPair block, std::size_t begin, std::size_t size) const;

 private:
  [[nodiscard]] std::span<std::byte> source(Direction direction, SlotId slot) const;
  [[nodiscard]] std::span<std::byte> destination(Direction direction, SlotId slot) const;

  std::uint32_t slots_;
  const HostArena* host_;
  Mapping device_;
};

/// Compute sees the blocks in place.
class InPlaceAccess final : public BlockAccess {
 public:
  explicit InPlaceAccess(const SlotMemory& memory) : memory_{&memory} {}

  [[nodiscard]] std::span<const std::byte> read(SlotId slot, std::span<std::byte>) override {
    return memory_->device_block(slot);
  }
  [[nodiscard]] std::span<std::byte> write_target(SlotId slot, std::span<std::byte>) override {
    return memory_->device_block(slot);
  }
  void written(SlotId, std::span<std::byte>) override {}

 private:
  const SlotMemory* memory_;
};

}  // namespace terrace
