#pragma once

#include "base/indexed_heap.hpp"
#include "base/slab.hpp"
#include "terrace/clock.hpp"
#include "terrace/device.hpp"
#include "terrace/result.hpp"
#include "terrace/types.hpp"
#include "transfer/device/transfer.hpp"
#include "transfer/engine/token_bucket.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

namespace terrace {

struct TransferSchedulerConfig {
  /// The sizes and the layers of blocks, by PoolId. A TransferEngine takes those of its device.
  std::vector<DevicePool> pools = {};
  TransferPieces pieces{};
  /// The largest number of blocks that may be queued in one lane; blocks under way do not count. A transfer that would exceed
  /// this bound is refused as a whole. raise() never refuses: the blocks that it moves count in their new lane, which may then
  /// exceed the bound.
  std::uint32_t queued_blocks_max = 1U << 20;
  /// The rate limit of each urgency, in bytes per second for both directions together; 0 is no limit. After a pause one piece of
  /// the largest size may start at once; from then on the rate applies. The limit of `request` must be 0, because requests wait
  /// for their transfers.
  LaneRates rates{};
};

/// A part of a transfer that must be started now. The device waits for `after`, not the scheduler: a piece that waits for compute
/// is under way.
struct Piece : CopyCommand {
  TransferId id;
  /// layers_of_transfer: number of layers into which the transfer is cut; 1 if it is not by layer. layers_started: number of
  /// leading layers of which all pieces have been started, including this piece.
  std::uint32_t layers_of_transfer = 1;
  std::uint32_t layers_started = 0;
};

/// Orders transfers in lanes, one for each direction and urgency, and handles deadlines and cancellation. It is a state machine
/// without I/O, threads or a clock. Its owner (TransferEngine) calls next() for the next piece, and finish() when a piece has
/// ended. The states of a block in a transfer that is not by layer:
///
///     queued --next--> under way --finish--> done | failed
///        |                 |
///        | cancel, expire  | expire: unconfirmed, and `confirmed` follows when the last piece has finished
///        v                 v
///     cancelled         unconfirmed
///
/// A more urgent lane goes first unless its rate limit delays it. Within a lane, transfers start in the order in which they
/// entered it, by submit() or raise(). If a piece fails, its blocks fail; the other pieces of the transfer are still copied.
///
/// A transfer by layer moves layer 0 of all blocks first, then layer 1, and so on, and gets `layers` events. If one layer of all
/// blocks is more than a piece, it is cut into several pieces. If it is less, a piece takes as many whole layers as fit. Example
/// with pieces of 1 MiB and layers of 64 KiB: for 64 blocks, each layer is 4 pieces of 16 blocks; for 3 blocks, a piece has 5
/// layers of all 3. A block is done when all its layers are done. It is removed from the lane's count of queued blocks when its
/// last layer starts. If the transfer is cancelled or late, a block of which only some layers have arrived gets the same outcome
/// as a block that was not started.
///
/// TransferEvent explains the events, BlockOutcome the ends of a block (transfer/device/transfer.hpp).
///
/// Ownership: submit() takes the transfer; its last event returns its runs. Threads: one, the thread of the TransferEngine.
class TransferScheduler {
 public:
  /// Throws std::invalid_argument if the block_bytes of a pool or a number of `pieces` is 0, if requests have a rate
  /// limit, or if a pool's blocks cannot be divided into its layers.
  explicit TransferScheduler(TransferSchedulerConfig config);

  /// Queues a transfer. Its id must differ from the ids of all transfers that have not ended. A transfer that has reported
  /// `finished` with unconfirmed blocks ends with `confirmed`. Two equal ids stop the process. After a failure nothing has
  /// changed and `transfer` still has its content: refused (the lane is at its bound), invalid_argument (no blocks, an empty run,
  /// or no such pool).
  [[nodiscard]] Result<void> submit(Transfer&& transfer);
  /// Raises the transfer to `urgency`, and moves its queued part to the end of that lane. If it already has this urgency or a
  /// higher one, nothing changes. An unknown id is ignored, because the transfer may just have ended.
  void raise(TransferId id, Urgency urgency);
  /// Gives the transfer a later deadline. `never`: it has no deadline any more. If the new deadline is not later, or if its
  /// `finished` event was reported, nothing changes. An unknown id is ignored.
  void postpone(TransferId id, TimePoint deadline);
  /// Drops the part of the transfer that has not started. Its error is `cancelled` then. The `finished` event comes when the
  /// started pieces have ended, or at the transfer's deadline. If the whole transfer has started, or if the id is unknown,
  /// nothing changes.
  void cancel(TransferId id);
  /// Cancels every transfer.
  void cancel_all();
  /// Sets the rate limit of an urgency, for both directions together; 0 is no limit. `urgency` must not be `request`;
  /// that stops the process.
  void limit(Urgency urgency, BytesPerSecond per_second);
  /// Reports every transfer as `finished` whose deadline is `now` or earlier. Its blocks that are under way are `unconfirmed`,
  /// those that have not started are `cancelled`, and its error is deadline_exceeded, unless a piece failed or the transfer was
  /// cancelled before.
  void expire(TimePoint now);

  /// Returns the piece to start next in this direction, or nothing if none may start now. Calls expire(now) first, so that no
  /// transfer starts after its deadline. For each piece that it returns, the owner must call finish() once.
  [[nodiscard]] std::optional<Piece> next(Direction direction, TimePoint now);
  /// Reports that a piece has ended, so its slots are not accessed any more. `took` is CopyDone::took, the time for which the
  /// piece used its stream; 0 is unknown. A token that is not under way stops the process. Returns the transfer of the piece.
  TransferId finish(std::uint64_t token, ErrorCode error, TimePoint now, Duration took = {});

  /// Appends the events since the last call.
  void take_events(std::vector<TransferEvent>& out);
  /// Returns the next time at which expire() or next() has something to do without a further call: the nearest deadline, or the
  /// time at which a rate limit lets a piece start. `never` if there is no such time.
  [[nodiscard]] TimePoint next_deadline() const;
  /// Returns when the oldest piece under way was handed out; `never` if there is none. The end of its transfer does not change
  /// this.
  [[nodiscard]] TimePoint oldest_piece() const;
  /// Returns true if no transfer is queued or under way. Events may still wait for take_events().
  [[nodiscard]] bool idle() const { return handles_.empty(); }
  void check_invariants() const;

 private:
  using Handle = std::uint32_t;  ///< a number in entries_
  static constexpr Handle no_handle = 0xFFFF'FFFF;

  struct Entry {
    Transfer transfer;
    /// One for each block. A block that has not failed is `cancelled` here until the report, which changes it to `done` if the
    /// block has arrived.
    std::vector<BlockOutcome> outcomes;
    std::uint32_t layers = 1;           ///< number of layers into which the transfer is cut; 1 if it is not by layer
    std::uint32_t layer = 0;            ///< the first layer of the next piece
    std::uint32_t block = 0;            ///< the first block of the next piece
    std::size_t run = 0;                ///< the run that contains this block
    std::uint32_t within_run = 0;       ///< the position of this block in its run
    std::uint32_t started = 0;          ///< blocks of which all layers have started
    std::uint32_t reported_layers = 0;  ///< leading layers that the last `layers` event reported
    std::uint32_t pieces_under_way = 0;
    std::optional<TimePoint> first_start;
    Duration copying{};
    ErrorCode error;
    bool queued = false;    ///< the transfer is in its lane, because it has blocks to start
    bool reported = false;  ///< `finished` has been reported; only `confirmed` is still to come
    Handle ahead = no_handle;
    Handle behind = no_handle;

    [[nodiscard]] std::uint32_t blocks() const { return static_cast<std::uint32_t>(outcomes.size()); }
  };
  struct Lane {
    Handle first = no_handle;
    Handle last = no_handle;
    std::uint64_t queued_blocks = 0;
  };
  struct UnderWay {
    std::uint64_t token;
    Handle handle;
    std::uint32_t first_block;
    std::uint32_t blocks;
    std::uint32_t first_layer;
    Bytes bytes;
    bool of_request;  ///< started in the request lane
    TimePoint began;
  };
  /// The part of a transfer that a piece takes.
  struct Cut {
    std::uint32_t blocks;
    std::uint32_t layers;
  };

  [[nodiscard]] Lane& lane_of(const Entry& entry);
  [[nodiscard]] const DevicePool& pool_of(const Entry& entry) const { return config_.pools[entry.transfer.pool.value()]; }
  [[nodiscard]] Cut next_cut(const Entry& entry) const;
  [[nodiscard]] Bytes next_piece_bytes(const Entry& entry) const;
  [[nodiscard]] bool has_room(const Entry& entry) const;
  void enqueue(Handle handle);
  void unlink(Handle handle);
  void drop_queued(Handle handle, Errc why);
  void cancel(Handle handle);
  [[nodiscard]] Piece cut(Handle handle);
  void report_layers(Handle handle);
  void end_if_idle(Handle handle);
  void report(Entry& entry, TransferEvent::Kind kind);

  TransferSchedulerConfig config_;

  /// Transfers wait here, and not in the device, so that a request overtakes them: what the device has cannot be overtaken.
  std::array<std::array<Lane, urgency_count>, direction_count> lanes_;
  Slab<Entry> entries_;
  std::unordered_map<TransferId, Handle> handles_;  ///< every transfer that has not ended
  IndexedHeap<TimePoint> deadlines_;                ///< deadlines of transfers that have not been reported
  std::vector<UnderWay> under_way_;                 ///< pieces of both directions
  std::array<TokenBucket, urgency_count> buckets_;
  std::uint64_t last_token_ = 0;
  TimePoint now_{};  ///< the latest time that a call has passed; used for events of calls without a time, such as cancel()
  std::vector<TransferEvent> events_;
};

}  // namespace terrace
