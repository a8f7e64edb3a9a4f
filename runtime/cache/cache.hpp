#pragma once

#include "base/clock.hpp"
#include "base/waker.hpp"
#include "runtime/cache/host_chunks.hpp"
#include "runtime/manager/cache_manager.hpp"
#include "runtime/measure/prefill_speed.hpp"
#include "runtime/measure/throughput.hpp"
#include "runtime/measure/wait_times.hpp"
#include "runtime/types/lease.hpp"
#include "storage/index/block_store.hpp"
#include "transfer/device/device.hpp"
#include "transfer/device/rank_devices.hpp"
#include "transfer/engine/transfer_port.hpp"
#include "transfer/host/host_arena.hpp"

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace terrace {

/// Copies of one kind that were completed.
struct Moved {
  std::uint64_t blocks = 0;
  Bytes bytes{};
  /// During which at least one copy of the kind was under way.
  double seconds = 0;

  friend Moved operator-(const Moved& now, const Moved& before) {
    return {now.blocks - before.blocks, now.bytes - before.bytes, now.seconds - before.seconds};
  }
};

struct MovedTotals {
  Moved swap_out;        ///< device to host
  Moved swap_in;         ///< host to device
  Moved storage_reads;   ///< storage to the arena
  Moved storage_writes;  ///< the arena to storage
};

/// Of one pool.
struct PoolParts {
  /// Has, or will have, host_blocks + staging_blocks slots; of these staging_blocks at least are warm. It comes and goes with
  /// the host tier's size.
  HostArena* arena;
  BlockStore* store;  ///< null: none. A store keeps blocks of one size: each pool has its own
};

/// Told by a cache what its owner may want to log (CacheSystemWatch). Threads: the cache's.
class CacheWatch {
 public:
  virtual ~CacheWatch() = default;
  /// At the end of every poll.
  virtual void on_polled(TimePoint now) = 0;
  /// A flush of storage has ended.
  virtual void on_flushed(ErrorCode error) = 0;
};

/// What a cache works with; all of it outlives the cache.
struct CacheParts {
  TransferPort& transfers;  ///< of a device with all the pools
  HostArena& arena;         ///< the first pool's, as in PoolParts
  BlockStore* store;        ///< the first pool's; null: none
  const Clock& clock;
  /// Woken by `transfers` and `store`; what wake_fd() shows. A simulation that never sleeps passes none.
  EventFdWaker* waker = nullptr;
  /// Poison mode: slots are overwritten as they become free, so that whoever reads one too late, or serves it unfilled, is
  /// seen. Null: off. For tests.
  RankDevices* poison = nullptr;
  std::vector<PoolParts> other_pools = {};
  /// Null: nobody watches.
  CacheWatch* watch = nullptr;
};

/// The cache in confined mode: a CacheManager whose decisions are carried out. The engine owns it, calls it from one thread,
/// and calls poll() once a step; nothing blocks.
///
///     while (serving) {
///       for (const RequestEvent& event : cache.poll()) …   // requests that became ready, or failed; by layer, how far they are
///       …acquire, extend, commit, drop leases, launch the step…
///     }
///
/// An engine that has nothing to do sleeps until wake_fd() is readable or next_deadline() has come. Threads: one.
class Cache : private LeaseHome {
 public:
  Cache(const ManagerConfig& config, const CacheParts& parts);
  /// Every lease has ended before, and the work under way: drain() first.
  ~Cache() override;
  Cache(const Cache&) = delete;
  Cache& operator=(const Cache&) = delete;

  [[nodiscard]] MatchResult match(std::span<const BlockKey> keys, Tier lowest_tier = Tier::storage) const {
    return manager_.match(keys, lowest_tier);
  }
  /// The lease of a request that is ready or pending; which, says `state()`. Fails as CacheManager::acquire does.
  /// If it fails with no_room while slots are quarantined, next_deadline() says when to try again.
  [[nodiscard]] Result<Lease> acquire(const AcquireRequest& request);
  [[nodiscard]] RequestState state(const Lease& lease) const {
    return lease ? manager_.state(lease.id()) : RequestState::unknown;
  }
  /// Polls, sleeping between, until the request is ready or has failed: the synchronous form of what acquire() began. Afterwards
  /// hit_tiers() and request_stats() say of each block where it came from, or that it is to be computed. Events of other requests
  /// that end their wait meanwhile are kept for the next poll(). Fails: as the request does (RequestEvent), not_ready where
  /// poll() has told why; unknown_request; paused (transfers are).
  [[nodiscard]] Result<void> wait(const Lease& lease);
  [[nodiscard]] Result<void> extend(const Lease& lease, std::uint32_t blocks);
  [[nodiscard]] Result<std::span<const Duplicate>> commit(const Lease& lease, std::span<const BlockKey> keys, Fence written);
  /// How far the request's blocks are committed, hits included: after a commit(), less than its keys where that stopped early.
  /// Fails: not_ready.
  [[nodiscard]] Result<std::uint32_t> committed_blocks(const Lease& lease) const { return manager_.committed_blocks(lease.id()); }
  /// Ends the lease. What compute launched up to `last_use` may still touch its blocks.
  void release(Lease lease, Fence last_use);
  /// Nothing that compute has been given so far is still to be done, whether or not a point marks it; the device has been
  /// synchronized, say. Ends the quarantines of leases that ended without used_until(). For an engine that gives compute
  /// nothing more: else the next points do that.
  void compute_is_idle();

  [[nodiscard]] Result<void> advance(const Lease& lease, std::uint64_t tokens, Fence last_use);
  [[nodiscard]] Result<std::span<const SlotId>> block_table(const Lease& lease, GroupId group = {}) const {
    return manager_.block_table(lease.id(), group);
  }
  [[nodiscard]] Result<std::span<const SlotId>> unkeyed_blocks(const Lease& lease, GroupId group = {}) const {
    return manager_.unkeyed_blocks(lease.id(), group);
  }
  [[nodiscard]] GroupState group_state(const Lease& lease, GroupId group) const {
    return lease ? manager_.group_state(lease.id(), group) : GroupState::unknown;
  }
  [[nodiscard]] Result<std::span<const Tier>> hit_tiers(const Lease& lease) const { return manager_.hit_tiers(lease.id()); }
  [[nodiscard]] Result<RequestStats> request_stats(const Lease& lease) const { return manager_.request_stats(lease.id()); }

  /// How long the request waited until it was ready, or has waited so far; in loop mode not what it waited to be accepted.
  [[nodiscard]] double seconds_waited(const Lease& lease) const { return waits_.seconds(lease.id(), parts_.clock.now()); }
  /// The waits of all requests so far.
  [[nodiscard]] WaitTotals wait_totals() const { return waits_.totals(); }

  /// The manager's calls of these names (runtime/manager/cache_manager.hpp), carried out.
  void clear(const ClearOptions& options);
  [[nodiscard]] Result<void> reset(const ClearOptions& options);
  [[nodiscard]] Result<void> resume();
  [[nodiscard]] Result<std::uint32_t> drop(std::span<const BlockKey> keys);
  [[nodiscard]] Result<EvictedBlocks> evict(std::span<const SlotId> slots, PoolId pool = {});
  [[nodiscard]] std::optional<BlockPlace> find_block(const BlockKey& key, GroupId group = {}) const {
    return manager_.find_block(key, group);
  }
  [[nodiscard]] Result<PinId> pin(std::span<const BlockKey> keys, TimePoint until = never) { return manager_.pin(keys, until); }
  [[nodiscard]] Result<void> unpin(PinId pin);
  [[nodiscard]] Result<RetentionId> retain(std::span<const BlockKey> keys, Priority priority, TimePoint until = never) {
    return manager_.retain(keys, priority, until);
  }
  [[nodiscard]] Result<void> end_retention(RetentionId retention) { return manager_.end_retention(retention); }
  [[nodiscard]] Result<void> set_quota(TenantId tenant, TenantQuota quota, PoolId pool = {}) {
    return manager_.set_quota(tenant, quota, pool);
  }
  [[nodiscard]] Result<void> remove_quota(TenantId tenant, PoolId pool = {}) { return manager_.remove_quota(tenant, pool); }
  [[nodiscard]] std::optional<std::uint64_t> tenant_blocks(TenantId tenant, Tier tier, PoolId pool = {}) const {
    return manager_.tenant_blocks(tenant, tier, pool);
  }
  /// Of the host tier it does not wait for memory: a tier that becomes larger serves with what it has, and grows chunk by chunk
  /// in the polls that follow; host_memory() says how far it has come, and why it stopped short. Of storage it is
  /// BlockStore::resize, whose errors it has, and the store's stat() says how far it has come; invalid_argument without storage.
  [[nodiscard]] Result<void> resize(Tier tier, std::uint32_t blocks, PoolId pool = {});
  [[nodiscard]] std::uint64_t retiring(Tier tier, PoolId pool = {}) const { return manager_.retiring(tier, pool); }
  [[nodiscard]] HostMemory host_memory(PoolId pool = {}) const { return host_chunks_.at(pool.value()).memory(); }
  /// Times since construction that the host tier could not grow as it was to; host_memory() says why the last one was.
  [[nodiscard]] std::uint64_t host_growth_failures(PoolId pool = {}) const { return host_chunks_.at(pool.value()).failures(); }
  [[nodiscard]] std::uint32_t common_prefix(GroupId group = {}) const { return manager_.common_prefix(group); }
  /// Counts that only grow, as those of wait_totals(), residency_totals() and moved(): a reader keeps what it read last, and
  /// subtracts it from what it reads now.
  [[nodiscard]] ManagerStats stats() const { return manager_.stats(); }
  /// The manager's calls of these names.
  [[nodiscard]] TreeCounts tree_counts(PoolId pool = {}) const { return manager_.tree_counts(pool); }
  [[nodiscard]] std::string describe_tree(std::size_t lines_max) const { return manager_.describe_tree(lines_max); }
  void sample_residency(std::uint32_t one_in) { manager_.sample_residency(one_in); }
  [[nodiscard]] ResidencyTotals residency_totals(PoolId pool = {}) const { return manager_.residency_totals(pool); }
  void record_events() { manager_.record_events(); }
  void take_events(std::vector<KvEvent>& events) { manager_.take_events(events); }
  /// From any thread, as of the last call.
  [[nodiscard]] CacheStatus status() const noexcept { return status_.load(std::memory_order_acquire); }

  /// Operators' jobs (runtime/types/write_back.hpp). They go on in poll(), and end in it; a job that is cancelled ends at once.
  [[nodiscard]] Result<WriteBackId> start_write_back(const WriteBackOrder& order);
  [[nodiscard]] Result<void> pause_write_back(WriteBackId id) { return manager_.write_backs().pause(id); }
  [[nodiscard]] Result<void> resume_write_back(WriteBackId id);
  [[nodiscard]] Result<void> cancel_write_back(WriteBackId id);
  [[nodiscard]] std::optional<WriteBackProgress> write_back(WriteBackId id) const { return manager_.write_backs().progress(id); }
  [[nodiscard]] std::vector<WriteBackProgress> write_backs() const { return manager_.write_backs().all(); }
  [[nodiscard]] Result<std::vector<WriteBackResult>> take_write_back_results(WriteBackId id) {
    return manager_.write_backs().take_results(id);
  }
  /// What a power failure now would leave, of all pools together.
  [[nodiscard]] Durability durability() const { return manager_.durability(); }
  /// A job that brings all that is cached to storage and has it flushed, within the time there is. Fails as start_write_back().
  [[nodiscard]] Result<WriteBackId> start_checkpoint(Duration budget);
  /// The same, to its end: polls, sleeping between, and says what is durable and what is not. For the end of a process, when
  /// requests have been released; the disk, however slow, is not waited for beyond the budget. Where it stands still, taking the
  /// store down waits for it all the same: a process in a hurry ends without (std::quick_exit), which costs nothing that is
  /// durable. Not while transfers are paused.
  [[nodiscard]] Result<CheckpointReport> checkpoint(Duration budget);
  /// What storage may be written to in a day, by policy and by jobs; 0: no limit. What was written today counts.
  void limit_daily_writes(Bytes per_day) { manager_.write_budget().limit(per_day); }
  [[nodiscard]] const WriteBudget& write_budget() const { return manager_.write_budget(); }

  /// Starts no transfer, read or write until resume_transfers(); what is under way goes on. Requests that need one stay pending.
  void pause_transfers() { transfers_paused_ = true; }
  void resume_transfers();
  /// What transfers that nobody waits for may take of the link, in both directions together (of several ranks each); 0: what is
  /// left of it. Fails: invalid_argument, for requests.
  [[nodiscard]] Result<void> limit_transfers(Urgency urgency, Bytes per_second);
  /// Transfers, reads and writes that have been started and have not ended.
  [[nodiscard]] std::uint64_t transfers_in_flight() const {
    return plans_[0].under_way() + plans_[1].under_way() + reads_.under_way() + writes_.under_way();
  }

  /// Collects what has ended, decides what follows, and starts it. Returns the requests that ended their wait since the last
  /// call, and those by layer of which more is there; valid until the next.
  std::span<const RequestEvent> poll();
  /// Readable when poll() has something. -1 without a waker.
  [[nodiscard]] int wake_fd() const { return parts_.waker == nullptr ? -1 : parts_.waker->fd(); }
  /// Makes wake_fd() readable. From any thread.
  void wake() noexcept {
    if (parts_.waker != nullptr) parts_.waker->wake();
  }
  /// When poll() should be called though nothing woke.
  [[nodiscard]] TimePoint next_deadline() const;
  [[nodiscard]] bool has_pending_work() const;
  /// Polls, sleeping between, until nothing is under way. Waits for no lease. Not while transfers are paused.
  void drain();

  [[nodiscard]] const CacheManager& manager() const { return manager_; }
  [[nodiscard]] const MovedTotals& moved() const { return moved_; }

 private:
  void give_back(std::unique_ptr<ReturnedLease> lease) noexcept override;
  void end_quarantines();
  [[nodiscard]] Result<void> resize_storage(std::uint32_t blocks, PoolId pool);
  void restore_stored();
  template <class Condition>
  void poll_while(Condition condition);
  void after_clear(const ClearOptions& options);
  void carry_out();
  void carry_out(PoolId pool);
  void on_transfer(TransferEvent event);
  void on_store(const StoreEvent& event, PoolId pool);
  void poison_freed(PoolId pool);
  static void count_moved(Moved& moved, const Throughput& link, std::uint64_t blocks, Bytes bytes);
  void tell_load_costs();
  void note_time();
  void note_ready(RequestId id, TimePoint now);
  void learn_prefill(TimePoint now);

  CacheParts parts_;
  std::vector<PoolParts> pools_;  ///< by PoolId
  std::vector<PoolId> pool_ids_;
  CacheManager manager_;
  std::vector<HostChunks> host_chunks_;  ///< by PoolId
  std::atomic<CacheStatus> status_{CacheStatus::normal};
  bool transfers_paused_ = false;
  bool quarantine_in_the_way_ = false;  ///< a request found no room while there was one
  MovedTotals moved_;
  WaitTimes waits_;
  Throughput plans_[direction_count] = {Throughput{Throughput::Times::told}, Throughput{Throughput::Times::told}};
  Throughput reads_;
  Throughput writes_;
  PrefillSpeed prefill_;
  std::vector<TransferEvent> transfer_events_;
  std::vector<StoreEvent> store_events_;
  std::vector<RequestEvent> events_;
  std::vector<StoreRead> store_reads_;
  std::vector<StoreWrite> store_writes_;
  std::vector<SlotId> freed_[2];
  std::vector<std::unique_ptr<ReturnedLease>> spare_leases_;
};

}  // namespace terrace
