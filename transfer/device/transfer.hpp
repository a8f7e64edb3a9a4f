#pragma once

#include "base/check.hpp"
#include "base/failure.hpp"
#include "terrace/clock.hpp"
#include "terrace/device.hpp"
#include "terrace/result.hpp"
#include "terrace/types.hpp"

#include <chrono>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace terrace {

inline constexpr auto& no_such_fence =
    failure<Errc::invalid_argument,
            "the fence was never given out: take it from signal() for a stream, or from launch(); Fence{} waits for nothing">;

/// The time for so many bytes at this speed, which is not 0, rounded up.
[[nodiscard]] inline Duration time_for(Bytes bytes, BytesPerSecond per_second) {
  const double nanoseconds = std::ceil(1e9 * static_cast<double>(count(bytes)) / static_cast<double>(count(per_second)));
  return std::chrono::nanoseconds{static_cast<std::chrono::nanoseconds::rep>(nanoseconds)};
}

/// One block's source and destination.
struct SlotPair {
  SlotId source;
  SlotId destination;
};

/// Appends a run. It is joined to the last run if it is adjacent to that run on both sides. Block i of a transfer is the i-th
/// block that was appended.
inline void append(std::vector<SlotRun>& runs, const SlotRun& next) {
  if (!runs.empty()) {
    SlotRun& last = runs.back();
    // The sums have 64 bits, so that the number after the last slot is not taken for slot 0.
    const bool is_next = next.source.value() == std::uint64_t{last.source.value()} + last.count &&
                         next.destination.value() == std::uint64_t{last.destination.value()} + last.count;
    if (is_next) {
      last.count += next.count;
      return;
    }
  }
  runs.push_back(next);
}
[[nodiscard]] inline std::uint32_t block_count(std::span<const SlotRun> runs) {
  std::uint64_t total = 0;
  for (const SlotRun& run : runs) total += run.count;
  TERRACE_CHECK(total <= std::numeric_limits<std::uint32_t>::max());
  return static_cast<std::uint32_t>(total);
}

/// One unit of transfer work: the blocks to move, and their urgency. It is plain data, so it could be sent to another process.
/// The blocks are numbered in the order of `runs`.
struct Transfer {
  TransferId id{};
  /// The pool of the slots in `runs`, on both sides.
  PoolId pool{};
  Direction direction = Direction::swap_out;
  Urgency urgency = Urgency::request;
  TimePoint deadline = never;
  /// No device slot of the transfer is read or written before the device's compute has reached this point.
  Fence after{};
  /// If true, layer 0 of all blocks is moved first, then layer 1, and so on, and a `layers` event comes each time that more
  /// layers have arrived. If the blocks of the pool have only one layer, this has no effect.
  bool by_layer = false;
  std::vector<SlotRun> runs{};
};

/// The outcome of one block of a transfer.
enum class BlockOutcome : unsigned char {
  done,       ///< every byte is at its destination
  failed,     ///< the device reported an error, and does not access the slots any more
  cancelled,  ///< not copied as a whole, and its slots are not accessed any more; in a transfer by layer, some of its layers may
              ///< have arrived
  unconfirmed,  ///< its deadline passed while it was under way: neither slot may be used until `confirmed` is reported
};

/// A completion record of a transfer. Each transfer gets exactly one `finished` event. If that has unconfirmed blocks, exactly
/// one `confirmed` event follows, when all copies of the transfer have ended. A transfer by layer also gets `layers` events
/// before `finished`. Each reports more layers than the previous one, and never all of them. No `layers` events come after a part
/// of the transfer has failed, was cancelled or has missed its deadline.
struct TransferEvent {
  enum class Kind : unsigned char { finished, confirmed, layers };

  TransferId id;
  Kind kind = Kind::finished;
  Direction direction = Direction::swap_out;  ///< the direction of the transfer
  /// Only for `layers`: the number of leading layers of every block that are at their destination.
  std::uint32_t layers = 0;
  /// Only for `finished`: one outcome for each block, by block number.
  std::vector<BlockOutcome> outcomes;
  /// The bytes of the blocks that are done.
  Bytes moved{};
  /// The time from the start of the first piece to the event.
  Duration took{};
  /// The sum of CopyDone::took over all pieces.
  Duration copying{};
  /// The first failure, if any block is not done.
  ErrorCode error;
  /// The last event of a transfer returns its runs, so that the next transfer can use their memory.
  std::vector<SlotRun> runs = {};
};

[[nodiscard]] inline TransferEvent event_of(const Transfer& transfer, TransferEvent::Kind kind) {
  TransferEvent event;
  event.id = transfer.id;
  event.kind = kind;
  event.direction = transfer.direction;
  return event;
}

}  // namespace terrace
