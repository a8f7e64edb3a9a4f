#pragma once

#include "terrace/block_store.hpp"
#include "terrace/cache.hpp"
#include "terrace/clock.hpp"
#include "terrace/device.hpp"
#include "terrace/offload_cache.hpp"
#include "terrace/policies.hpp"
#include "terrace/settings.hpp"
#include "terrace/shared_store.hpp"
#include "terrace/statistics.hpp"
#include "terrace/tier_store.hpp"
#include "terrace/types.hpp"
#include "terrace/write_back.hpp"

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace terrace {

/// The state of the shared store in this process.
struct SharedStoreSnapshot {
  SharedHealth health{};
  SharedStoreStat stat{};
  bool off = false;  ///< Cache::shared_is_off()
  // Only of a cache:
  SharedTotals totals{};
  std::uint64_t waiting_blocks = 0;  ///< number of blocks of totals.wished that still wait
  double round_trip_seconds = 0;     ///< recent average time of a probe; 0: none was measured yet
};

/// The state of a cache or a TierStore at one time, for threads that must not use the object itself. Plain data. Threads: a
/// published snapshot never changes, so any number of threads may read it.
struct AdminSnapshot {
  /// The slots of a tier of one pool.
  struct Slots : Usage {
    std::uint64_t quarantined = 0;  ///< in quarantine: something may still touch them
    std::uint64_t retiring = 0;     ///< slots that a resize still has to retire
    EvictionView eviction = {};     ///< of the tier's eviction policy
  };
  /// One pool and its store.
  struct Pool {
    Bytes block_bytes{};
    std::uint32_t device_blocks_max = 0;  ///< the largest size of the device tier
    Slots device{};
    Slots host{};
    HostMemory host_memory{};
    std::uint64_t host_growth_failures = 0;
    ResidencyTotals residency{};
    std::optional<StoreStat> store{};     ///< without `orphans`; none: there is no storage
    std::optional<StoreHealth> health{};  ///< none: there is no ResilientStore
  };

  /// The blocks whose hit rate is measured for other sizes (ReuseCurve).
  struct Measured {
    PoolId pool{};
    /// Hash units of a prompt for which the pool holds one block. 0: nothing is measured.
    double units_per_block = 1;
  };

  TimePoint made{};
  std::uint64_t number = 0;  ///< 1 for the first snapshot
  CacheStatus status = CacheStatus::normal;
  bool transfers_paused = false;
  bool erasing = false;  ///< Cache::erasing()
  WorkLeft work{};
  CacheSettings settings{};
  std::vector<Pool> pools{};
  std::vector<RankHealth> ranks{};  ///< empty if there is one rank
  LinkHealth link{};
  ManagerStats stats{};
  MovedTotals moved{};
  WaitTotals waits{};  ///< of requests, loads or gets (waiting_things())
  WaitsNow waits_now{};
  CallTimes calls{};
  TransferTimes transfer_times{};
  std::vector<TransferQueue> queues{};
  std::vector<SlowRequest> slowest{};  ///< Cache::slowest_requests()
  DailyWrites daily_writes{};
  std::vector<WriteBackProgress> jobs{};
  std::array<std::uint64_t, write_back_outcome_count> job_blocks{};  ///< blocks of all jobs so far, by WriteBackOutcome
  std::optional<OffloadTotals> offload{};                            ///< only if the engine owns the device slots
  PrefetchTotals prefetches{};                                       ///< only if the cache owns them
  MissTotals misses{};
  std::optional<SharedStoreSnapshot> shared{};  ///< none: there is no shared store
  std::string io{};                             ///< text about the I/O method of storage
  /// Tokens in a hash unit, the unit in which requests are counted. 0: not known, and requests are counted in blocks. 1: they are
  /// counted in tokens already.
  std::uint32_t unit_tokens = 0;
  /// Seconds for computing one unit of `stats.requests`, or one block of an OffloadCache. 0: not known.
  double prefill_seconds = 0;
  std::uint32_t key_tokens = 0;  ///< tokens of a block that a key of a request names; 0: not known
  InclusionPolicy inclusion = InclusionPolicy::lazy_exclusive;
  Measured measured{};
  /// Only of a TierStore. `pools` then has one pool, with block_bytes, store and health. Of the other members, only made, number,
  /// work.under_way, waits, waits_now, slowest, misses, measured, shared, io and idle are set.
  std::optional<TierStatistics> tier_store{};
  IdleTotals idle{};  ///< for a cache and for a TierStore; all 0 without an idle service
};

using SharedSnapshot = std::shared_ptr<const AdminSnapshot>;

}  // namespace terrace
