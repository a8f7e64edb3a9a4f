#pragma once

#include "base/vector_pool.hpp"
#include "base/waker.hpp"
#include "lab/transfer/transfer_device.hpp"
#include "terrace/clock.hpp"
#include "terrace/types.hpp"
#include "transfer/device/transfer.hpp"
#include "transfer/engine/transfer_engine.hpp"
#include "transfer/engine/transfer_scheduler.hpp"
#include "transfer/host/host_arena.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace terrace::tools {

/// A device, host memory, and ThreadedTransfers between them. The calling thread has the role of the control plane.
///
/// The directions do not share slots. On both sides, slots [0, blocks) are swapped out, slots [blocks, 2 * blocks) are swapped
/// in, and the last slot is for the urgent transfer. Threads: one.
class TransferRig {
 public:
  enum class ByLayer : bool { no, yes };

  /// Throws what the device, the arena and the scheduler throw.
  TransferRig(const TransferBenchOptions& options, Bytes block_bytes, std::uint32_t blocks);

  [[nodiscard]] std::uint32_t blocks() const { return blocks_; }
  [[nodiscard]] Bytes block_bytes() const { return host_.block_bytes(); }
  [[nodiscard]] std::uint32_t layers() const { return device_.device->info().pool().layers; }
  [[nodiscard]] SlotId first_slot(Direction direction) const { return SlotId{direction == Direction::swap_out ? 0 : blocks_}; }
  [[nodiscard]] const TransferPieces& pieces() const { return pieces_; }
  [[nodiscard]] SlotId urgent_slot() const { return SlotId{2 * blocks_}; }
  [[nodiscard]] PlainCopies& plain() { return *device_.plain; }

  /// Makes a transfer of the pairs as the control plane does, with memory of ended transfers, and submits it. Returns its id.
  TransferId submit(Direction direction, Urgency urgency, std::span<const SlotPair> pairs, ByLayer by_layer = ByLayer::no);
  void cancel(TransferId id) { transfers_.cancel(id); }
  /// Sleeps until there are events, and collects them; the span is valid until the next call. Throws std::runtime_error if none
  /// comes for a minute. A failed transfer stops the process, because nothing should make the device fail.
  [[nodiscard]] std::span<const TransferEvent> await_events();
  /// The same without waiting.
  [[nodiscard]] std::span<const TransferEvent> events();
  [[nodiscard]] ComputeWork& compute() { return *device_.compute; }
  /// The processor time of this thread that await_events() has used so far, without sleeping and waking.
  [[nodiscard]] double collecting_seconds() const { return collecting_seconds_; }

  /// stamp() writes the number of its slot into every source block of the direction. check_stamps() checks that the destinations
  /// of the pairs have the stamps of their sources.
  void stamp(Direction direction);
  void check_stamps(Direction direction, std::span<const SlotPair> pairs);

 private:
  void await_compute(Fence point);

  std::uint32_t blocks_;
  TransferPieces pieces_;
  HostArena host_;
  TransferDevice device_;
  SteadyClock clock_;
  EventFdWaker waker_;
  ThreadedTransfers transfers_;
  std::uint64_t last_id_ = 0;
  VectorPool<SlotRun> spare_runs_;  ///< of transfers that have ended
  std::vector<TransferEvent> events_;
  double collecting_seconds_ = 0;
};

}  // namespace terrace::tools
