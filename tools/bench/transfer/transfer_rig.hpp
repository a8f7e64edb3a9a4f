#pragma once

#include "base/bytes.hpp"
#include "base/clock.hpp"
#include "base/vector_pool.hpp"
#include "base/waker.hpp"
#include "tools/bench/transfer/transfer_device.hpp"
#include "transfer/engine/transfer_engine.hpp"
#include "transfer/engine/transfer_scheduler.hpp"
#include "transfer/host/host_arena.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace terrace::tools {

/// A device, the host's memory and ThreadedTransfers between them, with this thread in the place of the control plane's.
///
/// The directions do not share a slot: on both sides [0, blocks) is swapped out, [blocks, 2 * blocks) swapped in, and the last
/// slot is the urgent transfer's. Threads: one.
class TransferRig {
 public:
  enum class ByLayer : bool { no, yes };

  /// Throws as the device, the arena and the lanes.
  TransferRig(const TransferDeviceOptions& device, Bytes block_bytes, std::uint32_t blocks, const TransferSchedulerConfig& lanes);

  [[nodiscard]] std::uint32_t blocks() const { return blocks_; }
  [[nodiscard]] Bytes block_bytes() const { return host_.block_bytes(); }
  [[nodiscard]] std::uint32_t layers() const { return device_.device->info().pool().layers; }
  [[nodiscard]] SlotId first_slot(Direction direction) const;
  [[nodiscard]] SlotId urgent_slot() const { return SlotId{2 * blocks_}; }
  [[nodiscard]] PlainCopies& plain() { return *device_.plain; }

  /// Makes a transfer of the pairs, as the control plane would, in the memory of transfers that have ended, and submits it.
  TransferId submit(Direction direction, Urgency urgency, std::span<const SlotPair> pairs, ByLayer by_layer = ByLayer::no);
  void cancel(TransferId id) { transfers_.cancel(id); }
  /// Sleeps until there are events, and collects them; they stay until the next call. Throws std::runtime_error where
  /// none comes for a minute. Any that tells of a failure is a broken promise: the device was not told to fail.
  [[nodiscard]] std::span<const TransferEvent> await_events();
  /// The same without waiting.
  [[nodiscard]] std::span<const TransferEvent> events();
  [[nodiscard]] Device& device() { return *device_.device; }
  /// Of this thread's processor time, what await_events() has taken so far, sleeping and waking not included.
  [[nodiscard]] double collecting_seconds() const { return collecting_seconds_; }

  /// Gives every source of the direction bytes that say which slot it is, and checks that the pairs' destinations have them.
  void stamp(Direction direction);
  void check_stamps(Direction direction, std::span<const SlotPair> pairs);

 private:
  void await_compute(Fence point);

  std::uint32_t blocks_;
  HostArena host_;
  TransferDevice device_;
  SteadyClock clock_;
  EventFdWaker waker_;
  ThreadedTransfers transfers_;
  std::uint64_t last_job_ = 0;
  VectorPool<SlotRun> spare_runs_;  ///< of transfers that have ended
  std::vector<TransferEvent> events_;
  double collecting_seconds_ = 0;
};

}  // namespace terrace::tools
