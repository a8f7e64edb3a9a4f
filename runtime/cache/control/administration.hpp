#pragma once

#include "runtime/cache/control/requests.hpp"
#include "runtime/cache/control/use_clock.hpp"
#include "runtime/cache/control/write_back_jobs.hpp"
#include "terrace/settings.hpp"
#include "terrace/write_back.hpp"

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

namespace terrace {

/// The calls of operators and engines that concern the cache as a whole: clear it, pin and retain prefixes, evict named blocks,
/// change sizes and quotas, and start and control write-back jobs.
///
/// Ownership: CacheManager owns this object; `state`, `planner`, `requests`, `write_backs` and `prefetches` outlive it.
/// Threads: the manager's.
/// Units: keys are one for each hash unit, as in AcquireRequest; sizes and counts of a pool are in its blocks.
/// Errors: a call that fails returns the reason and changes nothing. Its comment lists the errors. For a pool that does not
/// exist, a call that returns a Result fails with invalid_argument, and a query throws std::invalid_argument.
class Administration {
 public:
  Administration(ManagerState& state, HitPlanner& planner, Requests& requests, WriteBackJobs& write_backs,
                 Prefetches& prefetches);
  Administration(const Administration&) = delete;
  Administration& operator=(const Administration&) = delete;

  /// After a clear() that waits, the status is `clearing` until all copies of the blocks that were cached then have been removed.
  /// After that it is `cleared` until resume().
  [[nodiscard]] CacheStatus status() const;
  /// Every clear() begins a new epoch. Blocks of work that began in an older epoch do not become hits.
  [[nodiscard]] Epoch epoch() const { return state_.epoch; }
  /// Changes the policies, the watermarks and the daily budget. The lane rates do not belong to the manager. Fails as
  /// Cache::change().
  [[nodiscard]] Result<void> change(const CacheSettings& settings);
  // Cache has the same calls (terrace/cache.hpp). The comments here tell only what is different.

  /// `stored`, by PoolId: the keys of the first blocks of all prefixes in storage. It is not needed if storage is kept.
  void clear(const ClearOptions& options, std::span<const std::vector<BlockKey>> stored = {});
  [[nodiscard]] bool erasing() const {
    return std::ranges::any_of(groups_.pools(), [](const auto& pool) { return pool->erasing(); });
  }
  [[nodiscard]] Result<void> resume();
  [[nodiscard]] Result<std::uint32_t> drop(std::span<const BlockKey> keys);
  [[nodiscard]] Result<EvictedBlocks> evict(std::span<const SlotId> slots, PoolId pool = {});
  [[nodiscard]] std::optional<BlockPlace> find_block(const BlockKey& key, GroupId group = {}) const;
  [[nodiscard]] std::vector<BlockPlace> find_blocks(std::span<const BlockKey> keys, GroupId group = {}) const;
  [[nodiscard]] Result<PinId> pin(std::span<const BlockKey> keys, TimePoint until = never);
  [[nodiscard]] Result<void> unpin(PinId pin);
  /// Number of blocks of the pool in all pins.
  [[nodiscard]] std::uint64_t pinned_blocks(PoolId pool = {}) const { return pinned_[groups_.index_of(pool)]; }
  [[nodiscard]] Result<void> expect_use(std::span<const BlockKey> keys, Duration in);
  [[nodiscard]] Result<RetentionId> retain(std::span<const BlockKey> keys, Priority priority, TimePoint until = never);
  /// Fails: not_found (there is no such retention, or it has ended).
  [[nodiscard]] Result<void> end_retention(RetentionId retention);
  /// Number of hash units in all retentions.
  [[nodiscard]] std::uint64_t retained_blocks() const { return retained_blocks_; }
  [[nodiscard]] Result<void> set_quota(TenantId tenant, TenantQuota quota, PoolId pool = {});
  [[nodiscard]] Result<void> remove_quota(TenantId tenant, PoolId pool = {});
  [[nodiscard]] std::optional<std::uint64_t> tenant_blocks(TenantId tenant, Tier tier, PoolId pool = {}) const;
  [[nodiscard]] Result<void> make_room(Tier tier, std::uint32_t blocks, PoolId pool = {});
  /// Makes a tier of a pool larger or smaller while it serves (PoolResizer::resize). A larger device tier: the caller guarantees
  /// that the device has memory for the new slots. A larger host tier: a new slot can be used when open_host() has reported that
  /// it has memory. A smaller host tier: `closing` names the slots of the host arena whose memory is to be returned.
  ///
  /// Accepted requests stay accepted: requests that wait for slots keep their promises, and no wait ends with never_fits. A
  /// request that grows beyond the smaller device tier runs until extend() fails with never_fits. For new requests, never_fits
  /// depends on the new size. Fails as PoolResizer::resize does.
  [[nodiscard]] Result<void> resize(Tier tier, std::uint32_t blocks, PoolId pool = {}, std::span<const SlotSpan> closing = {});
  /// These slots of the host arena have memory from now on. At the start, the first host_blocks + staging_blocks slots have
  /// memory.
  void open_host(SlotSpan slots, PoolId pool = {}) { groups_.at(pool).open_host(slots); }
  /// The same as PoolResizer::first_in_use.
  [[nodiscard]] std::uint32_t first_in_use(SlotSpan slots, PoolId pool = {}) const {
    return state_.groups.at(pool).resizer().first_in_use(slots);
  }
  [[nodiscard]] std::uint64_t retiring(Tier tier, PoolId pool = {}) const {
    return state_.groups.at(pool).resizer().retiring(tier);
  }
  void measure_misses() {
    if (state_.misses.on()) return;
    state_.misses.begin();
    for (const auto& pool : state_.groups.pools()) pool->tell(state_.misses);
  }
  void sample_residency(std::uint32_t one_in) {
    for (const auto& pool : state_.groups.pools()) pool->follow_sample(one_in);
  }
  [[nodiscard]] const ResidencyTotals& residency_totals(PoolId pool = {}) const {
    return state_.groups.at(pool).residency().sample().totals();
  }
  void record_events() { state_.kv_events.record_from_now_on(); }
  void take_events(std::vector<KvEvent>& events) { state_.kv_events.take(events); }

  /// Starts a job that writes cached blocks to storage or to the shared store (terrace/write_back.hpp). If the job is over the
  /// whole tree, it looks at some nodes in each later CacheManager::settle(). Fails: invalid_argument (there is no such
  /// target), unknown_request, not_ready, cleared (the request was acquired before the last clear), not_found (nothing of the
  /// prefix is cached), refused (WriteBackJobs::running_max jobs run), paused.
  [[nodiscard]] Result<WriteBackId> start_write_back(const WriteBackOrder& order);
  /// The sum of all pools.
  [[nodiscard]] Durability durability() const;

  /// Gives the present time to the use clock, and ends the pins and retentions whose time has passed.
  void on_time();
  [[nodiscard]] TimePoint next_deadline() const;
  [[nodiscard]] bool has_pins() const { return !pins_.empty(); }

 private:
  struct Pin {
    std::vector<PoolPrefix> prefixes;
    TimePoint until = never;
    TenantId tenant;
  };
  struct Retention {
    std::vector<BlockKey> keys;
    TimePoint until = never;
  };
  /// Throws std::invalid_argument if this cache cannot use this policy.
  [[nodiscard]] PolicyFactory policy_named(EvictionPolicyName name) const;
  /// Returns true if the device and the host have no copies of blocks that were cached before the clear.
  [[nodiscard]] bool all_gone() const {
    return std::ranges::none_of(groups_.pools(), [](const auto& pool) { return pool->any_hidden(); });
  }
  [[nodiscard]] TenantId tenant_of(const Hit& hit) const;
  [[nodiscard]] std::uint64_t pinned_of(TenantId tenant, std::size_t pool) const;
  void end_pin(std::map<PinId, Pin>::iterator pin);
  void end_retention(std::map<RetentionId, Retention>::iterator retention);
  [[nodiscard]] Result<WriteBackId> write_back_prefix(const WriteBackOrder& order);

  ManagerState& state_;
  ModelGroups& groups_;
  HitPlanner& planner_;
  Requests& requests_;
  WriteBackJobs& write_backs_;
  Prefetches& prefetches_;
  PolicyFactory own_policy_;  ///< the eviction policy that the engine has provided; empty if none
  UseClock use_clock_;
  std::map<PinId, Pin> pins_;
  PinId last_pin_;
  std::vector<std::uint64_t> pinned_;  ///< by PoolId: number of blocks in pins
  std::map<RetentionId, Retention> retentions_;
  RetentionId last_retention_;
  std::uint64_t retained_blocks_ = 0;
  Hit hit_;  ///< scratch: of the last look-up
};

}  // namespace terrace
