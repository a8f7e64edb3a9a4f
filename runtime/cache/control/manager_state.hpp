#pragma once

#include "runtime/cache/control/model_groups.hpp"
#include "runtime/cache/control/use_pace.hpp"
#include "runtime/cache/measure/miss_reasons.hpp"
#include "runtime/cache/orders/link_guard.hpp"
#include "runtime/cache/types/config.hpp"
#include "runtime/cache/types/kv_events.hpp"
#include "runtime/cache/types/write_budget.hpp"
#include "terrace/clock.hpp"
#include "terrace/request.hpp"
#include "terrace/statistics.hpp"

#include <cstdint>

namespace terrace {

/// The state that the parts of a manager share.
///
/// Ownership: CacheManager owns it; each part has a reference to it. Threads: the manager's.
struct ManagerState {
  /// Throws what validate() and ModelGroups throw.
  explicit ManagerState(const ManagerConfig& wanted);
  ManagerState(const ManagerState&) = delete;
  ManagerState& operator=(const ManagerState&) = delete;

  /// Takes the next `count` stamps, and returns the first.
  std::uint64_t new_stamps(std::size_t count = 1) {
    const std::uint64_t first = last_stamp + 1;
    last_stamp += count;
    pace.note(now, last_stamp);
    return first;
  }
  /// A caller expects the next use of the pool's prefix after this time (Cache::expect_use).
  void expect(TieredPool& pool, Prefix prefix, Duration in);
  /// Tells the pools, too.
  void set_shared_usable(bool usable);

  ManagerConfig config;  ///< the pools have a reference to it
  ManagerStats stats;
  SharedTotals shared;
  OffloadTotals offload_totals;
  PrefetchTotals prefetches;
  KvEvents kv_events;
  MissReasons misses;
  WriteBudget write_budget;
  LinkGuard link;
  /// normal or clearing; Administration::status() says whether it is cleared by now.
  CacheStatus status = CacheStatus::normal;
  /// Each Administration::clear() increments it.
  Epoch epoch;
  /// The shared store can be used now. The owner of the manager updates it before each call that may use the store; false without
  /// such a store.
  bool shared_usable = false;
  /// The cache was cleared, and it is not known yet which weights the blocks in the shared store are for. So the store is not
  /// used.
  bool shared_off = false;
  /// The latest time that the owner has given to the manager.
  TimePoint now{};
  /// The stamp of the latest use. Each request gets the next number when it is planned for the first time.
  std::uint64_t last_stamp = 0;
  UsePace pace;
  ModelGroups groups;
};

}  // namespace terrace
