#pragma once

#include "runtime/cache/cache.hpp"
#include "storage/resilience/resilient_store.hpp"
#include "tools/replay/engine/session.hpp"
#include "tools/replay/report/final_checks.hpp"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace terrace::tools {

/// What a replay found out, complete or not.
struct ReplayResult {
  Counts counts;
  struct {
    Percentiles match;
    Percentiles acquire;
    Percentiles extend;
    Percentiles commit;
    Percentiles release;
  } latency_us;
  Percentiles first_token_us;  ///< from when a request came until its prompt was computed
  EngineCounts engine;
  MovedTotals moved;
  std::uint64_t checked = 0;   ///< hits that `counts` tells of, compared
  std::uint64_t compared = 0;  ///< the same, and those of requests that were aborted or came back after a preemption
  std::uint64_t mismatches = 0;
  std::optional<Mismatch> first_mismatch;
  std::uint64_t faults_planted = 0;
  double seconds = 0;          ///< from the first request to the end of the last
  double drain_seconds = 0;    ///< until nothing was under way any more
  double key_seconds = 0;      ///< of `seconds`: making keys
  double content_seconds = 0;  ///< compute's: writing content (beside `seconds`, on the device's thread)
  double verify_seconds = 0;   ///< compute's: comparing
  std::optional<CheckpointReport> checkpoint;
  double checkpoint_seconds = 0;
  /// Storage had not come to an end when the time for the checkpoint had: nothing was waited for any more.
  bool left_behind = false;
  FinalChecks checks;  ///< where nothing was left behind
  ManagerStats manager;
  std::optional<StoreStat> store;
  std::optional<StoreHealth> storage_health;  ///< none: no guard, as without file storage
  std::string storage_io;                     ///< CacheSystem::io(); empty where no files are
  bool interrupted = false;
  std::optional<std::string> failure;  ///< why it ended early, where it did
};

/// The report as one JSON object, with the fields that docs and tests name.
[[nodiscard]] std::string to_json(const ReplayOptions& options, const ReplayResult& result);

/// The same for people.
[[nodiscard]] std::string to_table(const ReplayOptions& options, const ReplayResult& result);

}  // namespace terrace::tools
