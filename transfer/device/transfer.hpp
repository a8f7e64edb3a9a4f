#pragma once

#include "base/bytes.hpp"
#include "base/clock.hpp"
#include "base/result.hpp"
#include "base/strong_id.hpp"

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace terrace {

/// Which way bytes cross the link between device and host.
enum class Direction : unsigned char { swap_out, swap_in };
inline constexpr std::size_t direction_count = 2;

/// Who waits for a transfer, most urgent first. Direction × urgency is a lane.
enum class Urgency : unsigned char {
  request,    ///< a request waits: a swap-in, or the swap-out that makes its room
  make_room,  ///< room ahead of need
  store,      ///< on its way to storage; nobody waits
};
inline constexpr std::size_t urgency_count = 3;
/// Bytes a second by urgency; 0: no limit.
using LaneRates = std::array<Bytes, urgency_count>;

/// `count` blocks at adjacent slots on both sides. swap_out: the source is on the device, the destination in the host arena;
/// swap_in: the other way round.
struct SlotRun {
  SlotId source;
  SlotId destination;
  std::uint32_t count = 1;

  friend bool operator==(const SlotRun&, const SlotRun&) = default;
};

/// One block's source and destination.
struct SlotPair {
  SlotId source;
  SlotId destination;
};

/// Joins pairs that are adjacent on both sides, in the order given: block i of the transfer is the i-th pair. The runs take the
/// place of what was in `runs`, whose memory they use.
void coalesce(std::span<const SlotPair> pairs, std::vector<SlotRun>& runs);
[[nodiscard]] std::uint32_t block_count(std::span<const SlotRun> runs);

/// Neighbouring layers of a block. Every block of a pool has as many (DevicePool::layers), all of one size; where their bytes are
/// in the gathered block is the device's to know.
struct LayerRange {
  std::uint32_t first = 0;
  std::uint32_t count = 1;

  friend bool operator==(const LayerRange&, const LayerRange&) = default;
};

/// What to move: data, and no more, so that it can be sent to another process. Blocks are numbered in the order of `runs`.
struct Transfer {
  TransferId id;
  /// Whose slots the runs name, on both sides.
  PoolId pool;
  Direction direction = Direction::swap_out;
  Urgency urgency = Urgency::request;
  TimePoint deadline = never;
  /// No device slot of the transfer is read or written before the device's compute has reached this point.
  Fence after;
  /// First layer 0 of all blocks, then layer 1, and so on, and a `layers` event each time that more of them are there. Of a pool
  /// whose blocks have one layer it asks for nothing.
  bool by_layer = false;
  std::vector<SlotRun> runs;
};

/// What became of one block of a transfer.
enum class BlockOutcome : unsigned char {
  done,         ///< every byte is at its destination
  failed,       ///< the device reported an error; nothing will touch the slots any more
  cancelled,    ///< never started; of a transfer by layer, maybe only some of its layers did
  unconfirmed,  ///< the deadline passed while it was under way: both slots stay untouchable until `confirmed` is reported
};

/// The completion record of a transfer: exactly one `finished` per transfer, and after one with unconfirmed blocks exactly one
/// `confirmed`, when no byte of the transfer can move any more. Of a transfer by layer `layers` events come before `finished`,
/// with ever more layers and never all of them; none once anything of it has failed, was cancelled or is past its deadline.
struct TransferEvent {
  enum class Kind : unsigned char { finished, confirmed, layers };

  TransferId id;
  Kind kind = Kind::finished;
  Direction direction = Direction::swap_out;  ///< the transfer's
  /// Of `layers`: so many leading layers of every block are at their destination.
  std::uint32_t layers = 0;
  /// By the transfer's block numbers; of `finished` only.
  std::vector<BlockOutcome> outcomes;
  /// Of the blocks that are done.
  Bytes moved{};
  /// From the first piece's start to the event.
  Duration took{};
  /// Of all pieces together: for how long they kept their stream (CopyDone::took).
  Duration copying{};
  /// The first failure, where any block is not done.
  ErrorCode error;
  /// With the transfer's last event its runs, for whoever makes the next transfer in the same memory.
  std::vector<SlotRun> runs = {};
};

}  // namespace terrace
