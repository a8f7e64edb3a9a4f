#pragma once

#include "base/bytes.hpp"
#include "base/clock.hpp"
#include "base/indexed_heap.hpp"
#include "base/result.hpp"
#include "base/strong_id.hpp"
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
  /// Of the first pool's blocks, and of the other pools', by PoolId.
  Bytes block_bytes{};
  std::vector<Bytes> other_block_bytes = {};
  /// Of a block, as DevicePool::layers: the first pool's, and the other pools', by PoolId; pools that are not named have one.
  std::uint32_t layers = 1;
  std::vector<std::uint32_t> other_layers = {};
  /// A transfer is cut into pieces of at most this (but at least one block; of a transfer by layer, one layer of one block), so
  /// that an urgent transfer waits at most for the pieces under way.
  Bytes piece_bytes = MiB;
  /// Pieces of the request lane under way at once per direction: enough to keep the stream busy. Of the lanes for which nobody
  /// waits one starts only where nothing else is under way: a request has at most one piece of theirs before it.
  std::uint32_t pieces_in_flight = 2;
  /// Blocks queued per lane, not counting those under way. A transfer that would pass the bound is refused whole, so that one
  /// larger than the bound never fits. Transfers that raise() moves are admitted already: they count, and are not refused.
  std::uint32_t queued_blocks_max = 1U << 20;
  /// Of the lanes of both directions together, each a token bucket one piece deep. None for requests, which wait.
  LaneRates rates{};
};

/// A part of a transfer that is to be started now.
struct Piece {
  std::uint64_t token = 0;
  TransferId id;
  PoolId pool;
  Direction direction = Direction::swap_out;
  Fence after;
  std::vector<SlotRun> runs;
  std::optional<LayerRange> layers = {};  ///< as CopyCommand's
};

/// The order of transfers: lanes of direction × urgency, deadlines, cancellation and quarantine, as a state machine without
/// I/O, threads or a clock of its own. Its owner asks next() and tells finish().
///
///     queued --next--> under way --finish--> done | failed
///        |                 |
///        | cancel, expire  | expire: unconfirmed, and `confirmed` follows when the last piece has finished
///        v                 v
///     cancelled         unconfirmed
///
/// A more urgent lane goes first; within a lane, first come first served. Blocks fail one by one: after a failed piece the
/// transfer's others still go.
///
/// A transfer by layer is cut across: layer 0 of all blocks, then layer 1. Where a layer's bytes of the whole transfer are more
/// than a piece they make several; where they are less, as many layers as fit make one. Example, pieces of 1 MiB, layers of 64
/// KiB: of 64 blocks a layer is 4 pieces of 16 blocks; of 3 blocks a piece is 5 layers. A block is done when all its layers are,
/// and has started, for the bounds, when its last has. Threads: one.
class TransferScheduler {
 public:
  /// Throws std::invalid_argument where a pool's block_bytes or pieces_in_flight is 0, requests have a rate, or a pool's layers
  /// do not divide its blocks.
  explicit TransferScheduler(TransferSchedulerConfig config);

  /// Takes a transfer, whose transfer id is that of no transfer alive (one that awaits `confirmed` is). Fails, and then nothing
  /// changed and the transfer is its caller's still: refused (the lane is at its bound), invalid_argument (no blocks, a run of
  /// none, or no such pool).
  [[nodiscard]] Result<void> submit(Transfer&& transfer);
  /// The transfer inherits a more urgent waiter's urgency, and goes behind what waits in that lane already; a less urgent one
  /// changes nothing. Unknown transfers are ignored: they may have ended a moment ago.
  void raise(TransferId id, Urgency urgency);
  /// What has not started never will. The transfer's event comes when what has started has ended. Unknown transfers are ignored.
  void cancel(TransferId id);
  /// The same for every transfer.
  void cancel_all();
  /// Changes the rate of an urgency's lanes. Not of requests'.
  void limit(Urgency urgency, Bytes per_second);
  /// Resolves every transfer whose deadline has come.
  void expire(TimePoint now);

  /// The piece to start next in this direction, if one may start now. Expires first: nothing starts past its deadline.
  [[nodiscard]] std::optional<Piece> next(Direction direction, TimePoint now);
  /// A piece has ended: nothing touches its slots any more. `took`: as in CopyDone.
  void finish(std::uint64_t token, ErrorCode error, TimePoint now, Duration took = {});

  /// Appends the events since the last call.
  void take_events(std::vector<TransferEvent>& out);
  /// When something changes without a call: the nearest deadline, or the moment the rate limit lets a piece go.
  [[nodiscard]] TimePoint next_deadline() const;
  /// Neither queued nor under way.
  [[nodiscard]] bool idle() const { return handles_.empty(); }
  void check_invariants() const;

 private:
  using Handle = std::uint32_t;  ///< into entries_
  static constexpr Handle nobody = 0xFFFF'FFFF;

  struct Entry {
    Transfer transfer;
    /// By block, as far as it is known before the transfer is reported: `failed`, else `cancelled`.
    std::vector<BlockOutcome> outcomes;
    std::uint32_t layers = 1;      ///< that it is cut into; 1: it is not by layer
    std::uint32_t layer = 0;       ///< the next piece begins in this one,
    std::uint32_t block = 0;       ///< at this block,
    std::size_t run = 0;           ///< which is in this run,
    std::uint32_t within_run = 0;  ///< here
    std::uint32_t started = 0;     ///< blocks, with all their layers
    std::uint32_t told_layers = 0;
    std::uint32_t pieces_under_way = 0;
    std::optional<TimePoint> first_start;
    Duration copying{};
    ErrorCode error;
    bool queued = false;    ///< stands in its lane, because it has blocks to start
    bool reported = false;  ///< `finished` is out; only `confirmed` is owed
    Handle ahead = nobody;
    Handle behind = nobody;

    [[nodiscard]] std::uint32_t blocks() const { return static_cast<std::uint32_t>(outcomes.size()); }
  };
  struct Lane {
    Handle first = nobody;
    Handle last = nobody;
    std::uint64_t queued_blocks = 0;
  };
  struct UnderWay {
    std::uint64_t token;
    Handle handle;
    std::uint32_t first_block;
    std::uint32_t blocks;
    std::uint32_t first_layer;
  };
  /// How much of a transfer a piece takes.
  struct Cut {
    std::uint32_t blocks;
    std::uint32_t layers;
  };

  [[nodiscard]] Lane& lane_of(const Entry& entry);
  [[nodiscard]] Bytes block_bytes(const Entry& entry) const;
  [[nodiscard]] std::uint32_t layers_of(PoolId pool) const;
  [[nodiscard]] Cut next_cut(const Entry& entry) const;
  [[nodiscard]] Bytes next_piece_bytes(const Entry& entry) const;
  void enqueue(Handle handle);
  void unlink(Handle handle);
  void drop_queued(Handle handle, Errc why);
  void cancel(Handle handle);
  [[nodiscard]] Piece cut(Handle handle);
  void tell_layers(Handle handle);
  void settle(Handle handle);
  void report(Entry& entry, TransferEvent::Kind kind);
  void release(Handle handle);

  TransferSchedulerConfig config_;

  std::array<std::array<Lane, urgency_count>, direction_count> lanes_;
  std::vector<Entry> entries_;
  std::vector<Handle> free_;
  std::unordered_map<TransferId, Handle> handles_;  ///< every transfer alive
  IndexedHeap<TimePoint> deadlines_;                ///< of transfers alive, unreported, and with a deadline
  std::vector<UnderWay> under_way_;                 ///< a handful: pieces_in_flight of each direction at most
  std::array<std::uint32_t, direction_count> in_flight_{};
  std::array<TokenBucket, urgency_count> buckets_;
  std::uint64_t last_token_ = 0;
  TimePoint now_{};  ///< the latest we were told; dates the events of calls that bring no time
  std::vector<TransferEvent> events_;
};

}  // namespace terrace
