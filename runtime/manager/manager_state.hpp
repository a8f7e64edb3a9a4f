#pragma once

#include "base/clock.hpp"
#include "runtime/manager/model_groups.hpp"
#include "runtime/tiering/write_budget.hpp"
#include "runtime/types/config.hpp"
#include "runtime/types/kv_events.hpp"
#include "runtime/types/request.hpp"

#include <cstdint>

namespace terrace {

/// What the parts of a manager share. CacheManager owns it; each part has a reference to it. Threads: the manager's.
struct ManagerState {
  /// Throws as validate() and ModelGroups.
  explicit ManagerState(const ManagerConfig& wanted)
      : config{(validate(wanted), wanted)}, groups{config, stats, kv_events, write_budget} {
    write_budget.limit(config.daily_write_bytes);
  }
  ManagerState(const ManagerState&) = delete;
  ManagerState& operator=(const ManagerState&) = delete;

  ManagerConfig config;  ///< with the sizes of today
  ManagerStats stats;
  KvEvents kv_events;
  WriteBudget write_budget;
  CacheStatus status = CacheStatus::normal;
  /// Raised by each clear.
  Epoch epoch;
  /// The latest time that the manager was told.
  TimePoint now{};
  /// The number of the latest use of a prefix: requests are counted in the order in which they were planned.
  std::uint64_t last_stamp = 0;
  ModelGroups groups;
};

}  // namespace terrace
