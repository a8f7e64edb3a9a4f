#pragma once

#include "runtime/manager/requests.hpp"
#include "runtime/manager/use_clock.hpp"
#include "runtime/types/write_back.hpp"

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

namespace terrace {

/// What operators and engines do to the cache as a whole: clear it, pin and retain prefixes, evict named blocks, change sizes and
/// quotas, write blocks back.
///
/// A call that fails says why, and changes nothing.
///
/// Ownership: CacheManager owns this object; `state`, `planner`, `requests` and `write_backs` outlive it. Threads: the manager's.
class Administration {
 public:
  Administration(ManagerState& state, HitPlanner& planner, Requests& requests, WriteBackJobs& write_backs);
  Administration(const Administration&) = delete;
  Administration& operator=(const Administration&) = delete;

  /// `clearing` until everything that was hidden by a clear() that waits is gone; `cleared` then, until resume().
  [[nodiscard]] CacheStatus status() const;
  /// Raised by every clear(). Completions of an older epoch publish nothing.
  [[nodiscard]] Epoch epoch() const { return state_.epoch; }
  /// Forgets everything that is cached. Pending requests fail with `cleared`; those that are ready keep their slots until they
  /// are released, but share nothing any more. Pins end.
  void clear(const ClearOptions& options);
  /// Clears as clear() does, but refuses while any request is alive or quarantined. Fails: in_use.
  [[nodiscard]] Result<void> reset(const ClearOptions& options);
  /// After a clear() that waits. Fails: paused (something of what was cached is still there).
  [[nodiscard]] Result<void> resume();
  /// Gives up the prefix's device and host copies from its end, up to the first block that others follow, hold or are just
  /// reading. Returns how many device blocks that freed. Fails: not_found (the prefix is not all in the tree), in_use (its last
  /// block is held).
  [[nodiscard]] Result<std::uint32_t> drop(std::span<const BlockKey> keys);
  /// Gives up the blocks that are cached in these device slots, and all that follow them, in every tier, storage included: for
  /// blocks whose bytes have turned out to be wrong. Slots without a cached block are passed over. Where a request, a pin or a
  /// transfer holds a block or one that follows it, all of these stay, and its slot is in EvictedBlocks::in_use. Looks at the
  /// whole tree. Fails, and changes nothing: invalid_argument (no such slot).
  [[nodiscard]] Result<EvictedBlocks> evict(std::span<const SlotId> slots, PoolId pool = {});
  /// Finds a block by its key alone; nothing if no tier has it. For tools and tests: the tree finds
  /// blocks by their prefixes (match), and looks at all that it has for this.
  [[nodiscard]] std::optional<BlockPlace> find_block(const BlockKey& key, GroupId group = {}) const;
  /// Keeps what is cached of the prefix from eviction above storage, until unpin() or `until`. Fails: not_found (nothing is, or
  /// caching is off), no_room (ManagerConfig::pinned_blocks_max).
  [[nodiscard]] Result<PinId> pin(std::span<const BlockKey> keys, TimePoint until = never);
  /// Fails: not_found (or its time has passed).
  [[nodiscard]] Result<void> unpin(PinId pin);
  /// In the pool, by pin().
  [[nodiscard]] std::uint64_t pinned_blocks(PoolId pool = {}) const { return pinned_.at(pool.value()); }
  /// What is cached of the prefix, in device and host, is given up after all of lower priority (0 to highest_priority; what
  /// nobody retains has usual_priority) and before all of higher, until end_retention() or `until`; where several retain a block,
  /// the highest counts. It holds nothing: a block that is given up all the same, and comes back, comes back without. Costs no
  /// room, but its keys are kept. Fails: not_found (nothing is cached), no_room (ManagerConfig::retained_blocks_max),
  /// invalid_argument (no such priority, or a policy that has none: lru and adaptive do).
  [[nodiscard]] Result<RetentionId> retain(std::span<const BlockKey> keys, Priority priority, TimePoint until = never);
  /// Fails: not_found (or its time has passed).
  [[nodiscard]] Result<void> end_retention(RetentionId retention);
  [[nodiscard]] std::uint64_t retained_blocks() const { return retained_blocks_; }
  /// What a tenant may keep cached in a pool (runtime/residency/quotas.hpp says what that means), from now on. An operator's
  /// step: it looks at the whole tree. Fails: invalid_argument (a policy that knows no tenants: lru and adaptive do).
  [[nodiscard]] Result<void> set_quota(TenantId tenant, TenantQuota quota, PoolId pool = {});
  /// Fails: not_found.
  [[nodiscard]] Result<void> remove_quota(TenantId tenant, PoolId pool = {});
  /// Copies that a tenant with a quota has in the tier; nothing for one without.
  [[nodiscard]] std::optional<std::uint64_t> tenant_blocks(TenantId tenant, Tier tier, PoolId pool = {}) const;
  /// Makes a serving tier of a pool larger or smaller (runtime/tiering/pool_resizer.hpp says how, and what is lost). Larger: the
  /// device's memory has the slots, by the caller's word; the host tier has those for which open_host() says that there is
  /// memory, and others as that comes. Smaller: `closing` slots of the host arena are to go. Requests that wait for room keep
  /// their promise; never_fits goes by the new size. Fails as PoolResizer::resize does.
  [[nodiscard]] Result<void> resize(Tier tier, std::uint32_t blocks, PoolId pool = {}, std::span<const SlotSpan> closing = {});
  /// There is memory for these slots of the host arena, from now on, or again. At first there is for host_blocks +
  /// staging_blocks.
  void open_host(SlotSpan slots, PoolId pool = {});
  /// As PoolResizer::first_in_use.
  [[nodiscard]] std::uint32_t first_in_use(SlotSpan slots, PoolId pool = {}) const {
    return state_.groups.at(pool).resizer().first_in_use(slots);
  }
  /// Slots that a resize has still to retire, of device or host.
  [[nodiscard]] std::uint64_t retiring(Tier tier, PoolId pool = {}) const {
    return state_.groups.at(pool).resizer().retiring(tier);
  }
  /// Follows one in `one_in` of each pool's blocks from now on (runtime/measure/residency_sample.hpp); 0: none, as at first.
  /// Allocates.
  void sample_residency(std::uint32_t one_in) {
    for (const auto& pool : state_.groups.pools()) pool->follow_sample(one_in);
  }
  /// Totals of the sampled blocks so far.
  [[nodiscard]] const ResidencyTotals& residency_totals(PoolId pool = {}) const {
    return state_.groups.at(pool).residency().sample().totals();
  }
  /// Stored, removed, cleared: from the first call on. Swaps, so that the caller's vector is re-used.
  void record_events() { state_.kv_events.record_from_now_on(); }
  void take_events(std::vector<KvEvent>& events) { state_.kv_events.take(events); }

  /// Brings cached blocks to storage now (runtime/types/write_back.hpp). Looks at the tree bit by bit, in the calls of settle()
  /// that follow. Fails: invalid_argument (there is no storage), unknown_request, not_ready, not_found (nothing of the prefix is
  /// cached), refused (WriteBackJobs::running_max jobs run), paused.
  [[nodiscard]] Result<WriteBackId> start_write_back(const WriteBackOrder& order);
  /// Of all pools together.
  [[nodiscard]] Durability durability() const;

  /// Notes the time for write-back jobs by age, and ends the pins and retentions whose time has passed.
  void on_time();
  [[nodiscard]] TimePoint next_deadline() const;
  [[nodiscard]] bool has_pins() const { return !pins_.empty(); }

 private:
  struct Pin {
    std::vector<PoolPrefix> prefixes;
    TimePoint until = never;
  };
  struct Retention {
    std::vector<BlockKey> keys;
    TimePoint until = never;
  };
  void end_pin(std::map<PinId, Pin>::iterator pin);
  void end_retention(std::map<RetentionId, Retention>::iterator retention);
  [[nodiscard]] Result<WriteBackId> write_back_prefix(const WriteBackOrder& order);

  ManagerState& state_;
  ModelGroups& groups_;
  HitPlanner& planner_;
  Requests& requests_;
  WriteBackJobs& write_backs_;
  UseClock use_clock_;
  std::map<PinId, Pin> pins_;
  PinId last_pin_;
  std::vector<std::uint64_t> pinned_;  ///< blocks, by PoolId
  std::map<RetentionId, Retention> retentions_;
  RetentionId last_retention_;
  std::uint64_t retained_blocks_ = 0;
};

}  // namespace terrace
