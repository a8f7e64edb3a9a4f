#pragma once

#include "runtime/cache/control/administration.hpp"
#include "runtime/cache/control/hit_planner.hpp"
#include "runtime/cache/control/manager_state.hpp"
#include "runtime/cache/control/offload_jobs.hpp"
#include "runtime/cache/control/prefetches.hpp"
#include "runtime/cache/control/requests.hpp"
#include "runtime/cache/control/shared_questions.hpp"
#include "runtime/cache/control/write_back_jobs.hpp"
#include "runtime/cache/measure/load_costs.hpp"
#include "runtime/cache/orders/actions.hpp"
#include "terrace/block_store.hpp"
#include "transfer/device/transfer.hpp"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace terrace {

/// The control plane: it decides which request holds which blocks, where each block lives, and what moves.
///
/// It has one part for each concern:
///
///     ManagerState     what the parts share: configuration, counts, time, the groups of the model and their pools
///     HitPlanner       answers what a prompt hits, and which of these hits are worth loading
///     SharedQuestions  asks the shared store which blocks it has
///     Prefetches       brings blocks up for requests that have not come yet
///     Requests         serves the requests of engines
///     WriteBackJobs    runs the orders to write cached blocks to storage
///     OffloadJobs      serves the orders of an engine that owns the slots of its device
///     Administration   serves the calls for the cache as a whole: clear, pin, resize and others
///
/// A part uses only the parts above it in this list. The pools leave lists of events, and Requests and WriteBackJobs handle them
/// (docs/decisions/0022-parts-leave-events.md).
///
/// A call of a part changes only what it names, and marks what may continue because of it. The loop that continues everything
/// else is settle(), and it is in no other place. So a call of the manager's owner (the Cache in runtime/engine/cache.cpp, or a
/// test) has three steps: calls of the parts, or reports of what has ended (on_transfer, on_store, on_time and others); then
/// settle(); then it carries out actions(). If a quarantine has ended, settle() comes before the calls of the parts, too.
///
/// The manager does no I/O, reads no clock, takes no lock and never waits.
///
/// Ownership: it owns its parts. Threads: one, for the manager and its parts.
class CacheManager {
 public:
  /// Throws as validate(), and std::invalid_argument if config.policy makes no policy.
  explicit CacheManager(const ManagerConfig& config);
  CacheManager(const CacheManager&) = delete;
  CacheManager& operator=(const CacheManager&) = delete;

  [[nodiscard]] Requests& requests() { return requests_; }
  [[nodiscard]] const Requests& requests() const { return requests_; }
  [[nodiscard]] Administration& administration() { return administration_; }
  [[nodiscard]] const Administration& administration() const { return administration_; }
  [[nodiscard]] OffloadJobs& offload() { return offload_; }
  [[nodiscard]] const OffloadJobs& offload() const { return offload_; }
  /// Administration starts the jobs.
  [[nodiscard]] WriteBackJobs& write_backs() { return write_backs_; }
  [[nodiscard]] const WriteBackJobs& write_backs() const { return write_backs_; }
  [[nodiscard]] WriteBudget& write_budget() { return state_.write_budget; }
  [[nodiscard]] const WriteBudget& write_budget() const { return state_.write_budget; }

  [[nodiscard]] Prefetches& prefetches() { return prefetches_; }
  [[nodiscard]] const Prefetches& prefetches() const { return prefetches_; }
  [[nodiscard]] const PrefetchTotals& prefetch_totals() const { return state_.prefetches; }
  [[nodiscard]] const MissTotals& miss_totals() const { return state_.misses.totals(); }
  /// An engine that owns its device slots has computed these blocks, and stores them.
  [[nodiscard]] MissReasons& misses() { return state_.misses; }

  // ---- what happened elsewhere

  /// Handles an event of a transfer that the manager ordered.
  void on_transfer(TransferEvent event);
  /// Handles an event of the pool's store.
  void on_store(const StoreEvent& event, PoolId pool = {});
  /// The shared store has answered a probe, or has ended a read or a write. `token` is the token of the order (SharedActions),
  /// which was in the actions of the pool.
  void on_shared_probed(SharedActions::Probe::Asker asker, std::uint32_t token, ErrorCode error, std::uint32_t leading,
                        PoolId pool = {});
  void on_shared_read(std::uint32_t token, ErrorCode error, PoolId pool = {});
  void on_shared_written(std::uint32_t token, ErrorCode error, PoolId pool = {}) {
    state_.groups.at(pool).shared_writer()->on_written(token, error);
  }
  /// Tells whether the shared store can be used now (SharedStore::usable). Call it before acquire() and in each poll.
  void set_shared_usable(bool usable) {
    usable = usable && !state_.shared_off;
    if (usable != state_.shared_usable) state_.set_shared_usable(usable);
  }
  /// From now on, the blocks in the shared store are for the present weights. Ends the state that a clear began.
  void resume_shared() {
    state_.shared_off = false;
    questions_.forget();
  }
  [[nodiscard]] bool shared_is_off() const { return state_.shared_off; }
  /// Drops the wishes for the shared store. Writes under way continue.
  void drop_shared_wishes() {
    for (TieredPool* const pool : state_.groups.pools()) {
      if (SharedWriter* const writer = pool->shared_writer()) writer->stop_all();
    }
  }
  [[nodiscard]] double shared_round_trip_seconds() const { return questions_.round_trip_seconds(); }
  [[nodiscard]] const SharedTotals& shared_totals() const { return state_.shared; }
  /// Number of blocks out of SharedTotals::wished that wait, or are being written.
  [[nodiscard]] std::uint64_t shared_waiting_blocks() const {
    return state_.groups.sum(
        [](const TieredPool& pool) { return pool.shared_writer() == nullptr ? 0 : pool.shared_writer()->waiting_blocks(); });
  }
  /// Notes the time and does all that is due: fails requests whose deadline has passed, ends loads whose reads are late, ends
  /// pins, retentions and write-back jobs, and begins flushes of storage.
  void on_time(TimePoint now);
  /// Notes the time without doing anything else; an earlier time is ignored. Deadlines of reads count from this time, so call it
  /// before a call that may begin a load: acquire(), and calls that free slots.
  void note_time(TimePoint now) {
    state_.now = std::max(state_.now, now);
    state_.misses.set_now(state_.now);
    state_.link.on_time(state_.now);
  }
  [[nodiscard]] LinkGuard& link() { return state_.link; }
  [[nodiscard]] const LinkGuard& link() const { return state_.link; }
  [[nodiscard]] HitPlanner& planner() { return planner_; }
  [[nodiscard]] const HitPlanner& planner() const { return planner_; }
  /// Sets the present cost of loading a block of the pool.
  void set_load_costs(const LoadCosts& costs, PoolId pool = {}) { state_.groups.at(pool).set_load_costs(costs); }

  // ---- the loop

  /// Gives freed slots to the requests that wait, plans requests again whose load failed or whose prefetch has ended, lets
  /// write-back jobs continue, and handles the events of all pools, until nothing changes any more. Then it makes transfers of
  /// the copies that were decided on.
  void settle();
  /// The same, and evicts in the background for the watermarks. Only a poll calls it, so that the calls of requests stay short.
  void settle_and_reclaim();
  /// Cache::acquire. It settles between its two halves (Requests::begin, Requests::settled), because its result is settled.
  [[nodiscard]] Result<Acquired> acquire(const AcquireRequest& request);
  /// Returns true if settle_and_reclaim() would do nothing, and no work is under way, so that this stays true until the next
  /// deadline or call. Lets the eviction policies catch up, as settle_and_reclaim() does.
  [[nodiscard]] bool rests();
  /// Returns true if settle_and_reclaim() would evict for the watermarks.
  [[nodiscard]] bool wants_reclaim() const {
    return std::ranges::any_of(state_.groups.pools(), [](const auto& pool) { return pool->wants_reclaim(); });
  }
  /// Adds the blocks that the pool's store holds from an earlier process.
  [[nodiscard]] CatalogRecovery& recovery(PoolId pool = {}) { return state_.groups.at(pool).catalog_recovery(); }

  /// A MemoryCopy of the pool's actions has ended.
  void on_copied(std::uint64_t token, PoolId pool = {}) { state_.groups.at(pool).named_copies().on_copied(token); }

  // ---- work to be done, and state

  /// The work that the pool wants done. Every call may add to it; the owner takes and clears it, for each pool.
  [[nodiscard]] Actions& actions(PoolId pool = {}) { return state_.groups.at(pool).actions(); }
  /// Returns true if there is work for the shared store.
  [[nodiscard]] bool has_shared_work() const {
    return std::ranges::any_of(state_.groups.pools(), [](const auto& pool) { return !pool->actions().shared.empty(); });
  }
  /// The next time at which on_time() has something to do.
  [[nodiscard]] TimePoint next_deadline() const;
  /// Returns true if transfers, loads or writes to storage are under way, if requests wait for slots, or if a write-back job has
  /// more of the tree to look at.
  [[nodiscard]] bool has_pending_work() const;
  /// A text for people: what is under way and what waits.
  [[nodiscard]] std::string describe_pending() const;

  /// Poison mode, for tests: the owner overwrites each slot that becomes free, so that a read that comes too late does not find
  /// the old bytes. remember_freed() switches it on. take_freed() returns the slots of the device and of the host arena that
  /// became free since the last call. overwritten_by() reports that compute overwrites these device slots before it reaches
  /// `fence`; transfers of these slots wait for that fence.
  void remember_freed() {
    for (TieredPool* const pool : state_.groups.pools()) pool->remember_freed();
  }
  void take_freed(std::vector<SlotId>& device, std::vector<SlotId>& arena, PoolId pool = {}) {
    state_.groups.at(pool).take_freed(device, arena);
  }
  void overwritten_by(std::span<const SlotId> device, Fence fence, PoolId pool = {}) {
    state_.groups.at(pool).overwritten_by(device, fence);
  }

  /// How the slots of a tier (device or host) are used.
  [[nodiscard]] Usage usage(Tier tier, PoolId pool = {}) const { return state_.groups.at(pool).usage(tier); }
  /// Cache::blocks_for.
  [[nodiscard]] std::uint64_t blocks_for(std::uint64_t tokens, GroupId group = {}) const;
  /// Counts what the pool's tree holds. Looks at every node.
  [[nodiscard]] TreeCounts tree_counts(PoolId pool = {}) const { return residency(pool).tree().counts(); }
  /// A text for people: which tiers have which blocks. One line for each node, at most `lines_max` nodes for each pool.
  [[nodiscard]] std::string describe_tree(std::size_t lines_max) const {
    return state_.groups.sum([&](const TieredPool& pool) { return pool.describe_tree(lines_max); });
  }

  [[nodiscard]] const ManagerConfig& config() const { return state_.config; }
  [[nodiscard]] const ManagerStats& stats() const { return state_.stats; }
  [[nodiscard]] Ledger device_ledger(PoolId pool = {}) const { return residency(pool).slots_of(Tier::device).ledger(); }
  /// The ledger of the host arena: slots of the host tier and staging slots together. A staging slot in use counts as held.
  [[nodiscard]] Ledger host_ledger(PoolId pool = {}) const { return residency(pool).slots_of(Tier::host).ledger(); }
  /// Number of transfers that read a device or host copy now, counted once per copy.
  [[nodiscard]] std::uint64_t readers() const { return state_.groups.sum(&TieredPool::readers); }
  [[nodiscard]] const Residency& residency(PoolId pool = {}) const { return state_.groups.at(pool).residency(); }
  [[nodiscard]] std::size_t pool_count() const { return state_.groups.pools().size(); }
  /// The number of the pool. Throws std::invalid_argument if there is no such pool.
  [[nodiscard]] std::size_t index_of(PoolId pool) const { return state_.groups.index_of(pool); }
  [[nodiscard]] std::size_t group_count() const { return state_.groups.size(); }
  /// Tokens of a hash unit. 1 if the configuration names no groups: the manager does not know the number then.
  [[nodiscard]] std::uint32_t unit_tokens() const { return state_.groups.unit_tokens(); }
  /// Bytes of memory of the structures that grow with the number of cached blocks.
  [[nodiscard]] std::size_t bytes_held() const { return state_.groups.sum(&TieredPool::bytes_held); }
  void check_invariants() const;

 private:
  void on_answers();
  [[nodiscard]] bool has_nothing_to_continue() const;
  bool continue_any();
  void continue_all();
  void start_transfers();

  ManagerState state_;
  HitPlanner planner_{state_};
  SharedQuestions questions_{state_, planner_};
  Prefetches prefetches_{state_, planner_, questions_};
  Requests requests_{state_, planner_, questions_, prefetches_};
  WriteBackJobs write_backs_;
  OffloadJobs offload_{state_, questions_};
  Administration administration_{state_, planner_, requests_, write_backs_, prefetches_};
  std::uint64_t last_transfer_ = 0;
  std::vector<SharedQuestions::Answer> answers_;  ///< scratch
};

}  // namespace terrace
