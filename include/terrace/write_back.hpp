#pragma once

#include "terrace/clock.hpp"
#include "terrace/export.hpp"
#include "terrace/result.hpp"
#include "terrace/types.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace terrace {

/// Identifies a write-back job. A number is never used again. A job writes cached blocks to storage or to the shared store now,
/// independently of the write policy.
using WriteBackId = StrongId<struct WriteBackIdTag, std::uint64_t>;

/// The blocks to write. Ancestors that the target does not have are written too, before their descendants.
struct WriteBackOrder {
  enum class Target : std::uint8_t {
    storage,
    shared,  ///< the shared store. It is asked first, and blocks that it has are not sent again.
  };
  enum class Scope : std::uint8_t {
    request,  ///< the blocks that a ready request has committed, including hits
    prefix,   ///< the cached blocks of a prefix
    tenant,   ///< the cached blocks of a tenant
    idle,     ///< the blocks that were not used for some time
    all,
  };

  Target target = Target::storage;
  Scope scope = Scope::all;
  RequestId request{};
  /// For Scope::prefix: its keys, as in AcquireRequest. They must stay valid only during the call.
  std::span<const BlockKey> keys{};
  TenantId tenant{};
  Duration unused_for{};
  /// Blocks that have not been written by then are dropped from the job. A durable job reserves the last eighth of the time, at
  /// most one second, for the flush.
  TimePoint deadline = never;
  /// If true, the job also flushes storage before it ends, so that the blocks that it stored survive a power failure. Ignored for
  /// the shared store.
  bool durable = true;
  /// The most bytes to write. 0: no limit.
  Bytes budget{};
};

/// The outcome of a job for one block. Every block in the scope has exactly one outcome.
enum class WriteBackOutcome : std::uint8_t {
  stored,  ///< by this job, or by another writer while it ran
  already_there,
  dropped_full,  ///< the target had no room
  dropped_gone,  ///< it was evicted from device and host, or cleared
  over_budget,   ///< the budget of the job or of the day was spent
  failed,        ///< WriteBackResult::error says why
  cancelled,     ///< the job ended before the block; a write that was under way may still succeed
};
inline constexpr std::size_t write_back_outcome_count = 7;

enum class WriteBackState : std::uint8_t {
  running,
  paused,
  done,
  cancelled,  ///< by a call
  deadline_exceeded,
};

[[nodiscard]] TERRACE_API std::string_view to_string(WriteBackOrder::Target target);
[[nodiscard]] TERRACE_API std::string_view to_string(WriteBackOrder::Scope scope);
[[nodiscard]] TERRACE_API std::string_view to_string(WriteBackOutcome outcome);
[[nodiscard]] TERRACE_API std::string_view to_string(WriteBackState state);

struct WriteBackResult {
  BlockKey key{};
  WriteBackOutcome outcome = WriteBackOutcome::stored;
  ErrorCode error{};
};

/// Progress of a job.
struct WriteBackProgress {
  WriteBackId id{};
  WriteBackOrder::Target target = WriteBackOrder::Target::storage;
  WriteBackOrder::Scope scope = WriteBackOrder::Scope::all;
  WriteBackState state = WriteBackState::running;
  std::array<std::uint64_t, write_back_outcome_count> blocks{};  ///< number of blocks by outcome
  std::uint64_t under_way = 0;                                   ///< number of blocks
  /// The share of its scope that the job has visited, from 0 to 1. Some of these blocks may be under way.
  double looked_at = 0;
  Bytes written{};  ///< bytes of the stored blocks
  /// Bytes of blocks that are stored or were already there, and that a flush has covered since, unless storage has evicted them.
  Bytes durable{};
  ErrorCode flush_error{};  ///< error of the last flush, which explains why not everything is `durable`

  [[nodiscard]] std::uint64_t of(WriteBackOutcome outcome) const { return blocks[static_cast<std::size_t>(outcome)]; }
  [[nodiscard]] bool ended() const { return state != WriteBackState::running && state != WriteBackState::paused; }
};

/// The blocks that would survive a power failure now, and the blocks that would be lost: blocks that only device or host have,
/// and blocks in storage that no flush has covered.
struct Durability {
  std::uint64_t durable_blocks = 0;  ///< at least
  std::uint64_t lost_blocks = 0;
  Bytes durable{};
  Bytes lost{};
};

/// Result of a checkpoint: a job over everything that is cached.
struct CheckpointReport {
  WriteBackProgress job{};
  Durability left{};  ///< state when the job ended
};

}  // namespace terrace
