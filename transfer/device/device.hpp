#pragma once

#include "base/bytes.hpp"
#include "base/clock.hpp"
#include "base/strong_id.hpp"
#include "base/waker.hpp"
#include "transfer/device/transfer.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace terrace {

class HostArena;

/// Which bytes of every host slot are a device's: of ranks that share an arena each has its own, or all have the same.
struct HostShare {
  Bytes offset{};
  Bytes bytes{};  ///< 0: from the offset on all
};

/// The share's size. Throws std::invalid_argument where it is not within a slot of the arena, or empty.
[[nodiscard]] Bytes checked_size(const HostShare& share, const HostArena& host);

struct DevicePool {
  std::uint32_t slots = 0;
  /// Of one block, all its regions gathered: what the device's share of one host slot holds.
  Bytes block_bytes{};
  /// Of one block, all of one size: what a transfer by layer moves one after the other. 1: blocks move whole.
  std::uint32_t layers = 1;
};

struct DeviceInfo {
  std::string name;
  std::vector<DevicePool> pools;  ///< by PoolId; at least one

  [[nodiscard]] const DevicePool& pool(PoolId id = {}) const { return pools.at(id.value()); }
};

/// A part of a transfer, small enough that an urgent one need not wait long for it. One direction's commands run in order of
/// submission; the two directions run at the same time.
struct CopyCommand {
  std::uint64_t token = 0;  ///< comes back in CopyDone
  Direction direction = Direction::swap_out;
  Fence after;
  std::vector<SlotRun> runs;
  PoolId pool = {};  ///< whose slots the runs name
  /// Of each block these layers only; nothing: whole blocks.
  std::optional<LayerRange> layers = {};
};

/// Checks that every slot of the command exists, and its layers: nobody but our own runtime names them.
void check_slots(const CopyCommand& command, const DevicePool& pool, const HostArena& host);

struct CopyDone {
  std::uint64_t token = 0;
  ErrorCode error;  ///< set: any part of the destinations may have been written; nothing touches the slots any more
  /// For how long the command kept its stream, not counting what it waited for compute; 0: the device cannot tell.
  Duration took{};
};

/// A device's blocks as compute sees them, while work launched on the compute timeline runs.
class BlockAccess {
 public:
  virtual ~BlockAccess() = default;
  /// The block's bytes: in place where the host can address them, else copied to `scratch` (one block large).
  [[nodiscard]] virtual std::span<const std::byte> read(PoolId pool, SlotId slot, std::span<std::byte> scratch) = 0;
  /// Where to put the block's bytes: in place, or `scratch`. They are the block's once `written` is called with the same
  /// arguments.
  [[nodiscard]] virtual std::span<std::byte> write_target(PoolId pool, SlotId slot, std::span<std::byte> scratch) = 0;
  virtual void written(PoolId pool, SlotId slot, std::span<std::byte> scratch) = 0;

  /// In the first pool.
  [[nodiscard]] std::span<const std::byte> read(SlotId slot, std::span<std::byte> scratch) { return read({}, slot, scratch); }
  [[nodiscard]] std::span<std::byte> write_target(SlotId slot, std::span<std::byte> scratch) {
    return write_target({}, slot, scratch);
  }
  void written(SlotId slot, std::span<std::byte> scratch) { written({}, slot, scratch); }
};

using ComputeWork = std::function<void(BlockAccess&)>;

/// A device that holds blocks, and its link to the host arenas it was made with, one a pool. It moves what it is told and
/// decides nothing.
///
/// Threads: submit and poll from one (the transfer engine's); launch from one (the caller's compute side), which may be another;
/// reached and after_all_work from any.
class Device {
 public:
  virtual ~Device() = default;
  [[nodiscard]] virtual const DeviceInfo& info() const = 0;

  /// Told when poll() has something. Set before the first submit; the device may outlive its waker, who is replaced before:
  /// once this returns, the former is not touched any more. Threads: submit's.
  virtual void set_waker(Waker& waker) = 0;
  /// Starts the command; exactly one CopyDone follows. Never blocks. Throws std::bad_alloc where there is no memory to remember
  /// it in: then it has not been taken.
  virtual void submit(CopyCommand command) = 0;
  /// Appends what has ended to `done`; returns how many.
  virtual std::size_t poll(std::vector<CopyDone>& done) = 0;

  /// Puts work on the compute timeline, after all launched before it, and returns the point at which it is done. This is
  /// how a caller without a GPU of its own (replay, tests, the poison mode) computes. Never blocks.
  virtual Fence launch(ComputeWork work) = 0;
  /// The point that compute has reached: everything launched up to it is done.
  [[nodiscard]] virtual Fence reached() const = 0;
  /// The first point that is certain to come after everything that compute has been given up to now. A device that compute gives
  /// work to on streams of its own does not see what is there: then it is the next point that will be given out.
  [[nodiscard]] virtual Fence after_all_work() const = 0;
};

}  // namespace terrace
