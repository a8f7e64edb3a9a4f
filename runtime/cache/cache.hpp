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

/// Completed copies of one kind.
struct Moved {
  std::uint64_t blocks = 0;
  Bytes bytes{};
  /// Time during which at least one copy of this kind was under way.
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

/// The parts of one pool.
struct PoolParts {
  /// Has, or will have, host_blocks + staging_blocks slots. At least staging_blocks of them are warm. It grows and shrinks with
  /// the host tier.
  HostArena* arena;
  BlockStore* store;  ///< null: none. Each pool has its own store, because all blocks of a store have one size
};

/// Receives what the owner of a cache may want to log (see CacheSystemWatch). Threads: the thread of the cache.
class CacheWatch {
 public:
  virtual ~CacheWatch() = default;
  /// Called at the end of every poll.
  virtual void on_polled(TimePoint now) = 0;
  /// Called when a flush of storage has ended.
  virtual void on_flushed(ErrorCode error) = 0;
};

/// The parts that a cache works with. All of them outlive the cache.
struct CacheParts {
  TransferPort& transfers;  ///< for a device that has all pools
  HostArena& arena;         ///< of the first pool, as in PoolParts
  BlockStore* store;        ///< of the first pool; null: none
  const Clock& clock;
  /// `transfers` and `store` wake it; wake_fd() is its descriptor. Null: for simulations that never sleep.
  EventFdWaker* waker = nullptr;
  /// Poison mode, for tests: slots are overwritten as they become free, so that a read that comes too late, or of a slot that was
  /// never filled, is noticed. Null: off.
  RankDevices* poison = nullptr;
  std::vector<PoolParts> other_pools = {};
  /// Null: none.
  CacheWatch* watch = nullptr;
};

/// The cache in confined mode: a CacheManager, together with everything that carries out its decisions.
///
/// The engine owns it, calls it from one thread, and calls poll() once per step. No call blocks, except wait(), drain() and
/// checkpoint().
///
///     while (serving) {
///       for (const RequestEvent& event : cache.poll()) …   // requests that became ready, failed, or have more layers
///       …acquire, extend, commit, end leases, launch the step…
///     }
///
/// An engine that has nothing to do sleeps until wake_fd() is readable or next_deadline() has come. Threads: one.
/// Errors: for a pool that does not exist, a call that returns a Result fails with invalid_argument, and a query throws
/// std::invalid_argument.
class Cache : private LeaseHome {
 public:
  Cache(const ManagerConfig& config, const CacheParts& parts);
  /// All leases and all work under way must have ended: call drain() before.
  ~Cache() override;
  Cache(const Cache&) = delete;
  Cache& operator=(const Cache&) = delete;

  [[nodiscard]] MatchResult match(std::span<const BlockKey> keys, Tier lowest_tier = Tier::storage) const {
    return manager_.requests().match(keys, lowest_tier);
  }
  /// Returns the lease of a request that is ready or waiting; `state()` says which. Fails as Requests::acquire does. If it
  /// fails with no_room while slots are quarantined, next_deadline() says when to try again.
  [[nodiscard]] Result<Lease> acquire(const AcquireRequest& request);
  [[nodiscard]] RequestState state(const Lease& lease) const {
    return lease ? manager_.requests().state(lease.id()) : RequestState::unknown;
  }
  /// Blocks until the request is ready or has failed: it polls, and sleeps between polls. Afterwards hit_tiers() and
  /// request_stats() say where each block came from and which blocks must be computed. Events of other requests are kept for the
  /// next poll(). Fails with the error of the request (RequestEvent), not_ready (poll() has reported that error already),
  /// unknown_request, paused (transfers are paused).
  [[nodiscard]] Result<void> wait(const Lease& lease);
  [[nodiscard]] Result<void> extend(const Lease& lease, std::uint32_t blocks);
  [[nodiscard]] Result<std::span<const Duplicate>> commit(const Lease& lease, std::span<const BlockKey> keys, Fence written);
  /// Number of blocks of the request that are committed, hits included. After a commit() that stopped early it is less than the
  /// number of keys. Fails: not_ready.
  [[nodiscard]] Result<std::uint32_t> committed_blocks(const Lease& lease) const {
    return manager_.requests().committed_blocks(lease.id());
  }
  /// Ends the lease. Work that was launched up to `last_use` may still touch its blocks.
  void release(Lease lease, Fence last_use);
  /// Tells the cache that compute has finished everything that it was given, whether or not a fence marks it, for example after
  /// the device was synchronized. This ends the quarantines of leases that ended without used_until(). It is meant for an engine
  /// that launches no more compute; otherwise later fences end the quarantines.
  void compute_is_idle();

  [[nodiscard]] Result<void> advance(const Lease& lease, std::uint64_t tokens, Fence last_use);
  [[nodiscard]] Result<std::span<const SlotId>> block_table(const Lease& lease, GroupId group = {}) const {
    return manager_.requests().block_table(lease.id(), group);
  }
  [[nodiscard]] Result<std::span<const SlotId>> unkeyed_blocks(const Lease& lease, GroupId group = {}) const {
    return manager_.requests().unkeyed_blocks(lease.id(), group);
  }
  [[nodiscard]] GroupState group_state(const Lease& lease, GroupId group) const {
    return lease ? manager_.requests().group_state(lease.id(), group) : GroupState::unknown;
  }
  [[nodiscard]] Result<std::span<const Tier>> hit_tiers(const Lease& lease) const {
    return manager_.requests().hit_tiers(lease.id());
  }
  [[nodiscard]] Result<RequestStats> request_stats(const Lease& lease) const {
    return manager_.requests().request_stats(lease.id());
  }

  /// Seconds that the request waited until it was ready, or has waited so far. In loop mode, the time before it was accepted is
  /// not included.
  [[nodiscard]] double seconds_waited(const Lease& lease) const { return waits_.seconds(lease.id(), parts_.clock.now()); }
  /// The waits of all requests so far.
  [[nodiscard]] WaitTotals wait_totals() const { return waits_.totals(); }

  /// The same as in Administration (runtime/manager/administration.hpp). Their decisions are carried out.
  void clear(const ClearOptions& options);
  [[nodiscard]] Result<void> reset(const ClearOptions& options);
  [[nodiscard]] Result<void> resume();
  [[nodiscard]] Result<std::uint32_t> drop(std::span<const BlockKey> keys);
  [[nodiscard]] Result<EvictedBlocks> evict(std::span<const SlotId> slots, PoolId pool = {});
  [[nodiscard]] std::optional<BlockPlace> find_block(const BlockKey& key, GroupId group = {}) const {
    return manager_.administration().find_block(key, group);
  }
  [[nodiscard]] Result<PinId> pin(std::span<const BlockKey> keys, TimePoint until = never) {
    return manager_.administration().pin(keys, until);
  }
  [[nodiscard]] Result<void> unpin(PinId pin);
  [[nodiscard]] Result<RetentionId> retain(std::span<const BlockKey> keys, Priority priority, TimePoint until = never) {
    return manager_.administration().retain(keys, priority, until);
  }
  [[nodiscard]] Result<void> end_retention(RetentionId retention) { return manager_.administration().end_retention(retention); }
  [[nodiscard]] Result<void> set_quota(TenantId tenant, TenantQuota quota, PoolId pool = {}) {
    return manager_.administration().set_quota(tenant, quota, pool);
  }
  [[nodiscard]] Result<void> remove_quota(TenantId tenant, PoolId pool = {}) {
    return manager_.administration().remove_quota(tenant, pool);
  }
  [[nodiscard]] std::optional<std::uint64_t> tenant_blocks(TenantId tenant, Tier tier, PoolId pool = {}) const {
    return manager_.administration().tenant_blocks(tenant, tier, pool);
  }
  /// Does not wait. A host tier that becomes larger grows chunk by chunk in later polls; host_memory() says how far it has come
  /// and why it stopped early. For storage this is BlockStore::resize, with its errors; the stat() of the store says how far it
  /// has come. Fails with invalid_argument if there is no storage.
  [[nodiscard]] Result<void> resize(Tier tier, std::uint32_t blocks, PoolId pool = {});
  [[nodiscard]] std::uint64_t retiring(Tier tier, PoolId pool = {}) const {
    return manager_.administration().retiring(tier, pool);
  }
  [[nodiscard]] HostMemory host_memory(PoolId pool = {}) const { return host_chunks_[manager_.index_of(pool)].memory(); }
  /// How often the host tier could not grow as ordered; host_memory() says why the last growth failed.
  [[nodiscard]] std::uint64_t host_growth_failures(PoolId pool = {}) const {
    return host_chunks_[manager_.index_of(pool)].failures();
  }
  [[nodiscard]] std::uint32_t common_prefix(GroupId group = {}) const { return manager_.requests().common_prefix(group); }
  /// These counts only grow, like those of wait_totals(), residency_totals() and moved(). A reader keeps the last values and
  /// subtracts them from the new ones.
  [[nodiscard]] ManagerStats stats() const { return manager_.stats(); }
  /// The calls of CacheManager with these names.
  [[nodiscard]] TreeCounts tree_counts(PoolId pool = {}) const { return manager_.tree_counts(pool); }
  [[nodiscard]] std::string describe_tree(std::size_t lines_max) const { return manager_.describe_tree(lines_max); }
  void sample_residency(std::uint32_t one_in) { manager_.administration().sample_residency(one_in); }
  [[nodiscard]] ResidencyTotals residency_totals(PoolId pool = {}) const {
    return manager_.administration().residency_totals(pool);
  }
  void record_events() { manager_.administration().record_events(); }
  void take_events(std::vector<KvEvent>& events) { manager_.administration().take_events(events); }
  /// The state after the last call. Can be called from any thread.
  [[nodiscard]] CacheStatus status() const noexcept { return status_.load(std::memory_order_acquire); }

  /// Write-back jobs (runtime/types/write_back.hpp). They progress in poll(), and end there. A cancelled job ends at once.
  [[nodiscard]] Result<WriteBackId> start_write_back(const WriteBackOrder& order);
  [[nodiscard]] Result<void> pause_write_back(WriteBackId id) { return manager_.administration().pause_write_back(id); }
  [[nodiscard]] Result<void> resume_write_back(WriteBackId id);
  [[nodiscard]] Result<void> cancel_write_back(WriteBackId id);
  [[nodiscard]] std::optional<WriteBackProgress> write_back(WriteBackId id) const { return manager_.write_backs().progress(id); }
  [[nodiscard]] std::vector<WriteBackProgress> write_backs() const { return manager_.write_backs().all(); }
  [[nodiscard]] Result<std::vector<WriteBackResult>> take_write_back_results(WriteBackId id) {
    return manager_.administration().take_write_back_results(id);
  }
  /// The blocks that would survive a power failure now, and those that would be lost, in all pools together.
  [[nodiscard]] Durability durability() const { return manager_.administration().durability(); }
  /// Starts a job that writes everything that is cached to storage and flushes it, within `budget`. Fails as start_write_back().
  [[nodiscard]] Result<WriteBackId> start_checkpoint(Duration budget);
  /// Does the same and blocks until the job has ended: it polls, and sleeps between polls. Returns what is durable and what is
  /// not. Use it at the end of a process, when all requests have been released, and not while transfers are paused.
  ///
  /// It never waits longer than `budget`, however slow the disk is. But if the disk hangs, the destructor of the store still
  /// waits for it. A process that cannot wait can end without destructors (std::quick_exit); it loses nothing that is durable.
  [[nodiscard]] Result<CheckpointReport> checkpoint(Duration budget);
  /// The most bytes per day that may be written to storage, by the write policy and by jobs together; 0: no limit. Bytes that
  /// were written earlier today count.
  void limit_daily_writes(Bytes per_day) { manager_.write_budget().limit(per_day); }
  [[nodiscard]] const WriteBudget& write_budget() const { return manager_.write_budget(); }

  /// Starts no transfer, read or write until resume_transfers(). Work under way continues. Requests that need a transfer stay
  /// pending.
  void pause_transfers() { transfers_paused_ = true; }
  void resume_transfers();
  /// Limits the link bandwidth of transfers that no request waits for, in both directions together (and on each rank). 0: they
  /// use what is left of the link. Fails: invalid_argument (for Urgency::request).
  [[nodiscard]] Result<void> limit_transfers(Urgency urgency, Bytes per_second);
  /// Transfers, reads and writes that have started and have not ended.
  [[nodiscard]] std::uint64_t transfers_in_flight() const {
    return links_[0].under_way() + links_[1].under_way() + reads_.under_way() + writes_.under_way();
  }

  /// Collects ended work, makes decisions and starts new work. Returns an event for each request that ended its wait since the
  /// last call, and for each request by layer that has more layers. The result is valid until the next call.
  std::span<const RequestEvent> poll();
  /// Becomes readable when poll() has something to collect or to report, also if a call other than poll() has left an event.
  /// -1 without a waker.
  [[nodiscard]] int wake_fd() const { return parts_.waker == nullptr ? -1 : parts_.waker->fd(); }
  /// Makes wake_fd() readable. Can be called from any thread.
  void wake() noexcept {
    if (parts_.waker != nullptr) parts_.waker->wake();
  }
  /// When to call poll() even if wake_fd() is not readable.
  [[nodiscard]] TimePoint next_deadline() const;
  [[nodiscard]] bool has_pending_work() const;
  /// Blocks until nothing is under way: it polls, and sleeps between polls. It does not wait for leases. Stops the process if
  /// transfers are paused.
  void drain();

  [[nodiscard]] const CacheManager& manager() const { return manager_; }
  [[nodiscard]] const MovedTotals& moved() const { return moved_; }

 private:
  void give_back(std::unique_ptr<ReturnedLease> lease) noexcept override;
  void end_quarantines();
  [[nodiscard]] Result<void> resize_storage(std::uint32_t blocks, PoolId pool);
  void restore_stored();
  void collect();
  template <class Condition>
  void collect_while(Condition condition);
  void note_end(const RequestEvent& event);
  void after_clear(const ClearOptions& options);
  void end_call();
  void carry_out();
  void carry_out(PoolId pool);
  void on_transfer(TransferEvent event);
  void on_store(const StoreEvent& event, PoolId pool);
  void copy_memory();
  void poison_freed(PoolId pool);
  static void count_moved(Moved& moved, const Throughput& link, std::uint64_t blocks, Bytes bytes);
  void tell_load_costs();
  void note_time();
  void note_ready(RequestId id, TimePoint now);
  void learn_prefill(TimePoint now);

  friend class OffloadCache;  ///< the same machinery, for an engine that owns the slots of its device

  struct PoolCopy {
    PoolId pool;
    MemoryCopy copy;
  };

  CacheParts parts_;
  std::vector<PoolParts> pools_;  ///< by PoolId
  std::vector<PoolId> pool_ids_;
  CacheManager manager_;
  std::vector<HostChunks> host_chunks_;  ///< by PoolId
  std::atomic<CacheStatus> status_{CacheStatus::normal};
  bool transfers_paused_ = false;
  bool quarantine_in_the_way_ = false;  ///< during a quarantine, a request found too few slots
  MovedTotals moved_;
  WaitTimes waits_;
  Throughput links_[direction_count] = {Throughput{Throughput::Times::told}, Throughput{Throughput::Times::told}};
  Throughput reads_;
  Throughput writes_;
  PrefillSpeed prefill_;
  std::vector<TransferEvent> transfer_events_;
  std::vector<StoreEvent> store_events_;
  std::vector<RequestEvent> events_;
  std::vector<PoolCopy> memory_copies_;  ///< ordered, oldest first; those before memory_copies_made_ have been made
  std::size_t memory_copies_made_ = 0;
  std::vector<StoreRead> store_reads_;
  std::vector<StoreWrite> store_writes_;
  std::vector<SlotId> freed_[2];
  std::vector<std::unique_ptr<ReturnedLease>> spare_leases_;
};

}  // namespace terrace
