#pragma once

#include "runtime/cache/index/slot_allocator.hpp"
#include "storage/resilience/resilient_store.hpp"
#include "terrace/cache.hpp"
#include "terrace/system.hpp"
#include "tools/exit_status.hpp"
#include "tools/replay/engine/session.hpp"
#include "tools/replay/options/options.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace terrace::tools {

/// The state after a replay, when nothing is under way: conditions that must hold whatever was replayed.
struct FinalChecks {
  bool ledgers_balanced = false;
  std::uint64_t leases = 0;
  std::uint64_t readers = 0;
  std::uint64_t quarantined = 0;
  Ledger device;
  Ledger host;
  // Only with storage:
  std::uint64_t stored = 0;
  std::uint64_t orphans = 0;
  std::uint64_t stored_with_ancestors = 0;  ///< blocks whose ancestors are all stored

  /// Describes the first condition that does not hold.
  [[nodiscard]] std::optional<std::string> broken() const;
};

/// The results of a replay, which may have ended early, and the totals of the verifiers of all ranks.
struct ReplayResult : VerifierTotals {
  Counts counts;
  Calls<Percentiles> latency_us;
  Percentiles first_token_us;  ///< from a request's arrival until its prompt was computed
  EngineCounts engine;
  MovedTotals moved;
  std::uint64_t checked = 0;  ///< how many of the hits in `counts` were compared
  std::uint64_t faults_planted = 0;
  double seconds = 0;        ///< from the start of the first request to the end of the last one
  double drain_seconds = 0;  ///< until nothing was under way any more
  double key_seconds = 0;    ///< part of `seconds`: making keys
  std::optional<CheckpointReport> checkpoint;
  double checkpoint_seconds = 0;
  /// True if storage was still busy when the time for the checkpoint was over. Then the replay did not wait for it.
  bool left_behind = false;
  FinalChecks checks;  ///< set only if nothing was left behind
  ManagerStats manager;
  PrefetchTotals prefetches;
  WaitTotals waits;
  std::optional<StoreStat> store;  ///< of the first pool
  /// By PoolId, at the end.
  struct Pool {
    Bytes block_bytes{};
    Usage device{};
    Usage host{};
    std::uint64_t stored = 0;  ///< blocks in its store
  };
  std::vector<Pool> pools;
  std::optional<StoreHealth> storage_health;  ///< empty if there is no ResilientStore, that is, without file storage
  std::string storage_io;                     ///< CacheSystem::io(); empty without file storage
  /// The hits of LRU and of a cache that knows the future, for the same tiers (--bound).
  struct Bound {
    std::uint64_t lru = 0;
    std::uint64_t opt = 0;
  };
  std::optional<Bound> bound;  ///< set only if the replay came to its end
  bool interrupted = false;
  std::optional<std::string> failure;        ///< why the replay ended early; empty if it did not
  std::optional<std::string> trace_failure;  ///< why the trace of --trace-out is not whole; empty if it is
};

/// Checks the invariants of manager and store (a broken one ends the process), and counts the rest. Nothing may be in flight.
[[nodiscard]] FinalChecks check_idle(CacheSystem& system);

struct Verdict {
  ExitStatus status = ExitStatus::done;
  std::string line;  ///< for standard error; empty if the status is `done`
};

/// Judges the run. The worst result counts: first a failed check, then a failed run, then an interruption. With --inject, a run
/// without mismatches means that the verification did not detect the fault.
[[nodiscard]] Verdict judge(const ReplayOptions& options, const ReplayResult& result);

/// Returns the report as one JSON object, with the fields that docs and tests name.
[[nodiscard]] std::string to_json(const ReplayOptions& options, const ReplayResult& result);

/// Returns the same as text for people.
[[nodiscard]] std::string to_table(const ReplayOptions& options, const ReplayResult& result);

/// Runs a replay until its end, or until something stops it; a SIGINT or SIGTERM ends it in an orderly way. Throws UsageError
/// before anything is made or served, std::exception if the run itself fails.
[[nodiscard]] ReplayResult run_replay(const ReplayOptions& options);

/// Runs the command: replays, prints the table to standard output, and writes the report. If the outcome is not `done`, prints
/// one line to standard error. Throws what run_replay() throws.
[[nodiscard]] ExitStatus replay(const ReplayOptions& options);

}  // namespace terrace::tools
