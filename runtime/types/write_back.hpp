#pragma once

#include "base/block_key.hpp"
#include "base/bytes.hpp"
#include "base/clock.hpp"
#include "base/result.hpp"
#include "base/strong_id.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace terrace {

/// An operator's order to bring cached blocks to storage now, whatever the write policy. Never used again.
using WriteBackId = StrongId<struct WriteBackIdTag, std::uint64_t>;

/// What to bring to storage. Ancestors that are missing there come too, and first.
struct WriteBackOrder {
  enum class Scope : std::uint8_t {
    request,  ///< what a ready request has committed, hits included
    prefix,   ///< what is cached of a prefix
    tenant,   ///< what a tenant has cached
    age,      ///< what was not used for some time
    all,
  };

  Scope scope = Scope::all;
  RequestId request;
  /// Of the prefix, as in AcquireRequest. Needed for the call only.
  std::span<const BlockKey> keys;
  TenantId tenant;
  Duration unused_for{};
  /// What has not reached storage by then is not waited for. Of a durable order the last eighth of the time, a second at most, is
  /// kept for the flush.
  TimePoint deadline = never;
  /// The job ends when storage has been flushed, too: what it stored survives a power failure then.
  bool durable = true;
  /// To be written, at most; 0: as much as there is.
  Bytes budget{};
};

/// What became of a block of a job. Every block of its scope comes to exactly one.
enum class WriteBackOutcome : std::uint8_t {
  stored,  ///< by this job, or by whoever had begun to while it ran
  already_there,
  dropped_full,  ///< storage had no room
  dropped_gone,  ///< it had left the tiers above, or was cleared
  over_budget,   ///< the job's, or the day's
  failed,        ///< WriteBackResult::error says why
  cancelled,     ///< the job ended first; what was just being written may be stored all the same
};
inline constexpr std::size_t write_back_outcome_count = 7;

enum class WriteBackState : std::uint8_t {
  running,
  paused,
  done,
  cancelled,  ///< by call
  deadline_exceeded,
};

[[nodiscard]] std::string_view to_string(WriteBackOrder::Scope scope);
[[nodiscard]] std::string_view to_string(WriteBackOutcome outcome);
[[nodiscard]] std::string_view to_string(WriteBackState state);

struct WriteBackResult {
  BlockKey key;
  WriteBackOutcome outcome = WriteBackOutcome::stored;
  ErrorCode error;
};

/// How far a job is.
struct WriteBackProgress {
  WriteBackId id;
  WriteBackOrder::Scope scope = WriteBackOrder::Scope::all;
  WriteBackState state = WriteBackState::running;
  std::array<std::uint64_t, write_back_outcome_count> blocks{};  ///< by outcome
  std::uint64_t under_way = 0;                                   ///< blocks
  Bytes written{};                                               ///< of those that are stored
  /// Of those that are stored or were there already: what a flush has covered since, unless storage gave it up again.
  Bytes durable{};
  ErrorCode flush_error;  ///< why that is not all: of the last flush

  [[nodiscard]] std::uint64_t of(WriteBackOutcome outcome) const { return blocks[static_cast<std::size_t>(outcome)]; }
  [[nodiscard]] bool ended() const { return state != WriteBackState::running && state != WriteBackState::paused; }
};

/// What a power failure would leave of what is cached, and what not; lost blocks are those that device or host alone have, and
/// those that storage has and no flush has covered.
struct Durability {
  std::uint64_t durable_blocks = 0;  ///< at least
  std::uint64_t lost_blocks = 0;
  Bytes durable{};
  Bytes lost{};
};

/// What became of a checkpoint: a job over all that is cached.
struct CheckpointReport {
  WriteBackProgress job;
  Durability left;  ///< when it ended
};

}  // namespace terrace
