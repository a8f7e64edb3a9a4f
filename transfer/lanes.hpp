#pragma once

#include "base/bytes.hpp"
#include "base/clock.hpp"
#include "base/result.hpp"
#include "base/strong_id.hpp"
#include "transfer/plan.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <vector>

namespace terrace {

struct LanesConfig {
  Bytes block_bytes{};
  /// A job is cut into pieces of at most this (but at least one block), so that an urgent job waits at most for the pieces
  /// under way.
  Bytes piece_bytes = MiB;
  /// Pieces under way at once per direction: enough to keep the stream busy, and no more than an urgent job should wait for.
  std::uint32_t pieces_in_flight = 2;
  /// Blocks queued per lane, not counting those under way. At the bound a plan is refused whole.
  std::uint32_t queued_blocks_max = 1U << 20;
  /// Of the persist lanes, per second; 0: no limit. A token bucket one piece deep.
  Bytes persist_rate{};
};

/// A part of a plan that is to be started now.
struct Piece {
  std::uint64_t token = 0;
  JobId job;
  Direction direction = Direction::swap_out;
  Fence after;
  std::vector<SlotRun> runs;
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
/// A more urgent lane goes first; within a lane, first come first served. Threads: one.
class Lanes {
 public:
  explicit Lanes(LanesConfig config);

  /// Takes a plan. Fails: refused (the lane is at its bound; nothing changed), invalid_argument (no blocks).
  [[nodiscard]] Result<void> submit(TransferPlan plan);
  /// The job inherits a more urgent waiter's urgency; a less urgent one changes nothing. Unknown jobs are ignored: they may
  /// have ended a moment ago.
  void raise(JobId job, Urgency urgency);
  /// What has not started never will. The job's event comes when what has started has ended. Unknown jobs are ignored.
  void cancel(JobId job);
  /// Resolves every job whose deadline has passed.
  void expire(TimePoint now);

  /// The piece to start next in this direction, if one may start now.
  [[nodiscard]] std::optional<Piece> next(Direction direction, TimePoint now);
  /// A piece has ended: nothing touches its slots any more.
  void finish(std::uint64_t token, ErrorCode error, TimePoint now);

  /// Appends the events since the last call.
  void take_events(std::vector<TransferEvent>& out);
  /// When something changes without a call: the nearest deadline, or the moment the rate limit lets a piece go.
  [[nodiscard]] TimePoint next_deadline() const;
  /// Neither queued nor under way.
  [[nodiscard]] bool idle() const;
  void check_invariants() const;
};

}  // namespace terrace
