#pragma once

#include "terrace/clock.hpp"
#include "terrace/device.hpp"
#include "terrace/export.hpp"
#include "terrace/request.hpp"
#include "terrace/result.hpp"
#include "terrace/settings.hpp"
#include "terrace/statistics.hpp"
#include "terrace/types.hpp"
#include "terrace/write_back.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace terrace {

class CacheManager;
struct CacheParts;
struct CacheState;
struct ManagerConfig;

/// The cache in confined mode, for engines whose device slots the cache owns. It decides which request holds which blocks and
/// where each block lives, and it moves the blocks. CacheSystem makes one from options.
///
/// The engine calls it from one thread, and calls poll() once per step. No call blocks, except wait(), drain(), drain_until() and
/// checkpoint().
///
///     while (serving) {
///       for (const RequestEvent& event : cache.poll()) …   // requests that became ready, failed, or have more layers
///       …acquire, extend, commit, end leases…
///       cache.end_step();
///       …launch the step…
///     }
///
/// An engine that has nothing to do sleeps until wake_fd() is readable or next_deadline() has come. For servers with an event
/// loop there is AsyncCache.
///
/// Threads: one, except for status(), wake() and the end of leases. The thread of the cache is the one that called acquire() or
/// poll() last: to hand the cache over, let the other thread call one of them before leases end there.
/// Units: blocks and keys of a request are counted in hash units, one key for each (AcquireRequest); sizes and counts of a pool,
/// in its blocks.
/// Errors: a call that fails returns the reason and changes nothing. Its comment lists the errors. For a pool that does not
/// exist, a call that returns a Result fails with invalid_argument, and a query throws std::invalid_argument.
class TERRACE_API Cache {
 public:
  /// Used by CacheSystem and by Terrace's own tests: the types of the arguments are internal.
  Cache(const ManagerConfig& config, const CacheParts& parts);
  /// All work under way must have ended: call drain() before. If a lease is alive, the process stops, and says so.
  ~Cache();
  Cache(const Cache&) = delete;
  Cache& operator=(const Cache&) = delete;

  // ---- requests

  /// Finds the longest cached prefix whose blocks are in `farthest` or a nearer source. It changes nothing: it does not pin the
  /// blocks or update their last use. The shared store is not asked.
  [[nodiscard]] MatchResult match(std::span<const BlockKey> keys, Source farthest = all_sources.back()) const;
  /// Gives the request everything that it needs now, or fails. Returns the lease of a request that is ready or waiting; state()
  /// says which. An event reports the end of the wait. Fails: never_fits, no_room, duplicate_request, invalid_argument, paused.
  /// If it fails with no_room while slots are quarantined (Lease), next_deadline() says when to try again.
  ///
  /// If a shared store may have blocks that the tiers do not have, the request waits until the store has answered
  /// (AcquireRequest::farthest_source; SharedStorage::probe_deadline limits the wait). Until then the request holds no slots. If
  /// other requests have taken the slots meanwhile, the request fails with no_room, and the caller tries again when there is
  /// room, as if acquire() had failed.
  [[nodiscard]] Result<Lease> acquire(const AcquireRequest& request);
  /// Copies blocks of a future request from storage and the shared store to the host tier. It takes no device slots. Call it when
  /// the request enters a queue, and call acquire() when its turn comes. If acquire() is called earlier, and the prefetch is
  /// bringing the request's next block, the request waits until the prefetch has ended.
  ///
  /// A prefetch takes no slots that were promised to requests. It brings only blocks that load faster than they can be computed,
  /// and all prefetches together bring at most a quarter of the host tier at a time. So it may bring only the first blocks, or
  /// none. Fails: invalid_argument (no keys, no source beyond the host tier, no host tier, no caching, or the engine owns the
  /// slots; see OffloadOrder then), refused (1,024 prefetches run), paused.
  [[nodiscard]] Result<PrefetchId> prefetch(const PrefetchOrder& order);
  /// Ends a prefetch whose request will not come. Blocks that have arrived stay in the host tier. Fails: not_found (the prefetch
  /// has ended).
  [[nodiscard]] Result<void> cancel_prefetch(PrefetchId id);
  /// Returns true while the prefetch brings blocks or waits for an answer of the shared store.
  [[nodiscard]] bool prefetching(PrefetchId id) const;
  [[nodiscard]] RequestState state(const Lease& lease) const;
  /// Blocks until the request is ready or has failed: it polls, and sleeps between polls. Afterwards hit_sources() and
  /// request_stats() say where each block came from and which blocks must be computed. Events of other requests are kept for the
  /// next poll(). Fails: the error of the request (RequestEvent), even if poll() has reported it already; unknown_request; paused
  /// (transfers are paused).
  [[nodiscard]] Result<void> wait(const Lease& lease);
  /// Adds blocks for `units` hash units at the end of the request's block tables. If this would exceed the limit for one request
  /// (CacheSystemOptions::request_units_max), it adds fewer blocks or none, and still succeeds. It takes free slots; if there are
  /// too few, it drops cached copies. It never waits. Fails: unknown_request, not_ready, invalid_argument (0 units), never_fits
  /// (more than 2^32 - 1 units, or the request has outgrown a pool: it would not fit even if it were the only request and
  /// advance() had dropped all possible blocks), no_room.
  [[nodiscard]] Result<void> extend(const Lease& lease, HashUnits units);
  /// Shares the request's first keys.size() blocks. They must be full, and must hold the data of their keys when compute reaches
  /// `written`. `keys` begins with the keys of acquire(). Blocks that are committed already stay as they are. Returns the blocks
  /// whose content was cached already; the span is valid until the next call. If a load is bringing one of the blocks to the
  /// device at this time, or if a block is cached already and the slot of that copy is promised to a waiting request, the call
  /// shares only the blocks before it and still succeeds; committed_units() returns how many, and a later call can share the
  /// others. For a request from before a clear(), it shares nothing. Fails: unknown_request, not_ready, invalid_argument (more
  /// keys than blocks, a fence that was never given out).
  [[nodiscard]] Result<std::span<const Duplicate>> commit(const Lease& lease, std::span<const BlockKey> keys, Fence written);
  /// Number of leading blocks that are committed in all required groups, hits included. If no required group is cached, this is
  /// the number of all blocks of the request. Fails: unknown_request, not_ready.
  [[nodiscard]] Result<HashUnits> committed_units(const Lease& lease) const;
  /// Number of blocks for which the request has slots. Fails: unknown_request, not_ready.
  [[nodiscard]] Result<HashUnits> units(const Lease& lease) const;
  /// Tells the cache that the first `tokens` tokens of the sequence are computed. The request drops the blocks to which no later
  /// token attends, and null blocks take their place. Compute that was launched up to `last_use` may still read the dropped
  /// blocks. Call it after commit(), so that these blocks stay cached, and before extend(), so that their slots can be used
  /// again. Groups with full attention keep all blocks. Fails: unknown_request, not_ready, invalid_argument (the request has
  /// blocks for fewer tokens, a fence that was never given out).
  [[nodiscard]] Result<void> advance(const Lease& lease, std::uint64_t tokens, Fence last_use);
  /// Ends the lease, in any state of its request. Work that was launched up to `last_use` may still touch its blocks.
  void release(Lease lease, Fence last_use);
  /// Tells the cache that compute has finished all work that it was given, even work that no fence marks. Call it, for example,
  /// after the device was synchronized. This ends the quarantines of leases that ended without used_until(). It is meant for an
  /// engine that launches no more compute; otherwise later fences end the quarantines.
  void compute_is_idle();

  /// The request's block table in the group: one slot for each block of the sequence. A request has one when it is ready, after
  /// a successful await(), or when an event has reported layers. Valid until the next call for this request.
  /// Fails: unknown_request, not_ready, invalid_argument (no such group).
  [[nodiscard]] Result<std::span<const SlotId>> block_table(const Lease& lease, GroupId group = {}) const;
  // ---- streams of the engine

  /// Marks all work that is on the stream of this rank's engine now, and returns the point at which it is done, for commit(),
  /// advance() and release(). With several ranks, mark a stream of each rank in turn; the point is the same on all.
  /// Fails: as Device::signal(), and invalid_argument if there is no such rank.
  [[nodiscard]] Result<Fence> signal(StreamRef stream, std::uint32_t rank = 0);
  /// Makes the stream wait, on the device, until the leading `layers` layers of all hits of the request have arrived there
  /// (all_layers: the whole blocks). Work that is put on the stream afterwards starts after that, so a step can be launched while
  /// its blocks are still being copied. For a request that is ready, the call succeeds at once. After a successful call the
  /// request has its block_table(), although it may still wait.
  ///
  /// The stream continues even if a copy fails later. The request then fails, and an event reports it. So use the results of the
  /// step only after the request is ready, and end the lease with the fence of the step, as usual.
  ///
  ///     Result<void> ordered = cache.await(lease, layer + 1, stream);
  ///     while (!ordered && ordered.error() == Errc::not_ready) …sleep until wake_fd() is readable, poll(), and try again…
  ///
  /// Fails: not_ready (the request waits for slots or for storage, or some of its copies are not on the device yet), the error of
  /// a request that has failed (RequestEvent), the error of a copy that has failed (the next poll() reports whether the request
  /// fails), unknown_request, and as Device::await(): io_failed, invalid_argument (also if there is no such rank).
  [[nodiscard]] Result<void> await(const Lease& lease, std::uint32_t layers, StreamRef stream, std::uint32_t rank = 0);
  static constexpr std::uint32_t all_layers = 0xFFFF'FFFF;

  /// The part of the block table after the committed blocks: these blocks have no key yet. In a group that shares nothing, it is
  /// the whole table. It may contain null blocks. Fails as block_table().
  [[nodiscard]] Result<std::span<const SlotId>> unkeyed_blocks(const Lease& lease, GroupId group = {}) const;
  [[nodiscard]] GroupState group_state(const Lease& lease, GroupId group) const;
  /// The source in which each hit of the request was found, starting with the first block. Fails: unknown_request.
  [[nodiscard]] Result<std::span<const Source>> hit_sources(const Lease& lease) const;
  /// Fails: unknown_request.
  [[nodiscard]] Result<RequestStats> request_stats(const Lease& lease) const;
  /// Seconds that the request waited until it was ready, or has waited so far. In loop mode, the time before it was accepted is
  /// not included.
  [[nodiscard]] double seconds_waited(const Lease& lease) const;
  /// Number of blocks of the group for so many tokens, of which the last block may be partly filled; for cross attention, tokens
  /// of the encoder. Without groups in the configuration, the cache does not know the tokens of a block, and counts hash units in
  /// place of tokens. usage() tells whether so many have room. Throws std::invalid_argument if there is no such group.
  [[nodiscard]] std::uint64_t blocks_for(std::uint64_t tokens, GroupId group = {}) const;
  /// Number of leading blocks of the group that all ready requests share. 0 if no request is ready, and for groups that do not
  /// keep the beginning of a sequence.
  [[nodiscard]] std::uint32_t common_prefix(GroupId group = {}) const;

  // ---- the event loop of the engine

  /// Collects ended work, makes decisions and starts new work. Returns an event for each request that ended its wait since the
  /// last call, and for each request by layer that has more layers. The result is valid until the next call. However much has
  /// ended, one call handles only about 2,000 blocks of it, what requests wait for first; next_deadline() is then now.
  std::span<const RequestEvent> poll();
  /// Starts the copies that acquire(), extend(), commit(), advance() and ended leases have requested since the last poll(). Call
  /// it after these calls of a step, and before the step is launched. It costs at most one system call, and one more with a
  /// shared store; the calls themselves then make none. poll() and wait() do the same. If none of them is called, the copies
  /// start a millisecond later.
  void end_step();
  /// Becomes readable when poll() has something to collect or to report, even an event that a call other than poll() has left. -1
  /// if the cache has no waker.
  [[nodiscard]] int wake_fd() const;
  /// Makes wake_fd() readable. Can be called from any thread.
  void wake() noexcept;
  /// The time at which poll() must be called even if wake_fd() is not readable.
  [[nodiscard]] TimePoint next_deadline() const;
  [[nodiscard]] bool has_pending_work() const;
  /// Blocks until no work is under way: it polls, and sleeps between polls. It does not wait for leases. It resumes paused
  /// transfers, also if an operator pauses them meanwhile.
  void drain();
  /// The same, but ends at `until` at the latest. Returns the work that is left.
  WorkLeft drain_until(TimePoint until);
  [[nodiscard]] WorkLeft work_left() const;
  /// Returns true if blocks are cached on the device, or if something may still read or write them there: requests (including
  /// leases that have ended without used_until()), write-back jobs, jobs of an OffloadCache, or work under way. While it returns
  /// true, the engine must not free the memory of the device (CacheSystem::relocate). Compute of the engine is not considered.
  [[nodiscard]] bool uses_device_memory() const;
  /// Resumes transfers and cancels all write-back jobs and prefetches, so that drain() waits only for work that has started.
  void prepare_drain();

  // ---- the cache as a whole

  /// Drops everything that is cached, removes everything from storage, and stops using the shared store (ClearOptions). Pending
  /// requests fail with `cleared`. Ready requests keep their slots until they are released, but the blocks that they commit are
  /// not shared any more. Pins and retentions end. It does not wait for the disk: see erasing().
  void clear(const ClearOptions& options);
  /// The same as clear(), but only if no request is alive or in quarantine. Fails: in_use.
  [[nodiscard]] Result<void> reset(const ClearOptions& options);
  /// Returns true while blocks that a clear() has removed may still be on disk: after a kill or a power failure they could be
  /// found again. A flush that fails is tried again each second. While transfers are paused, nothing is removed.
  [[nodiscard]] bool erasing() const;
  /// Uses the shared store again after a clear(). A clear() stops its use (unless ClearOptions::keep_shared is set), because it
  /// is unknown for which weights its blocks are. `fingerprint` identifies the model, the geometry and the weights that are used
  /// from now on. If it is not given, the keys from before the clear still mean the same. Fails: invalid_argument (there is no
  /// shared store), paused (transfers are paused).
  [[nodiscard]] Result<void> resume_shared(const std::optional<std::array<std::byte, 32>>& fingerprint = std::nullopt);
  /// Returns true if there is a shared store and it has not been used since a clear().
  [[nodiscard]] bool shared_is_off() const;
  /// Returns to normal service after a clear() with ClearOptions::wait. Fails: paused (some of the cleared blocks are still on
  /// the device or the host: a transfer or a write reads them, which ends in a poll; not while transfers are paused). It can be
  /// called while erasing() is true. Host memory that was given back (ClearOptions::release_host) comes again in later polls.
  [[nodiscard]] Result<void> resume();
  /// Returns the state after the last call. Can be called from any thread.
  [[nodiscard]] CacheStatus status() const noexcept;
  /// Drops the prefix's device and host copies from the end of the prefix. It stops at the first block that is held, that a
  /// transfer reads, or that another block follows. Returns how many device blocks were freed. Fails: not_found (part of the
  /// prefix is not in the tree), in_use (its last block is held).
  [[nodiscard]] Result<std::uint32_t> drop(std::span<const BlockKey> keys);
  /// Evicts the blocks that are cached in these device slots, and all blocks that follow them, from every tier, storage included.
  /// Use it for blocks whose bytes have turned out to be wrong. Slots without a cached block are ignored. If a request, a pin or
  /// a transfer holds a named block or a block that follows it, all these blocks stay, and EvictedBlocks::in_use lists the slot.
  /// The call visits the whole tree. Fails: invalid_argument (no such slot).
  [[nodiscard]] Result<EvictedBlocks> evict(std::span<const SlotId> slots, PoolId pool = {});
  /// Finds a block by its key alone. Returns nothing if no tier has it. The call visits the whole tree, so it is for tools and
  /// tests; match() finds a block by its prefix.
  [[nodiscard]] std::optional<BlockPlace> find_block(const BlockKey& key, GroupId group = {}) const;
  /// Returns where the blocks of a prefix are: an entry for each block of the group that `keys` fill, without a copy if no tier
  /// has it. Nothing for a group that is not cached. It holds nothing, so the slots are only true until the next call; a request
  /// holds its blocks, and has them in its block_table().
  [[nodiscard]] std::vector<BlockPlace> find_blocks(std::span<const BlockKey> keys, GroupId group = {}) const;
  /// Pins the cached part of the prefix: device and host do not evict it until unpin() or the time `until`. Fails: not_found (no
  /// block of it is cached, or caching is off), no_room (pins would keep too many blocks, or those of this tenant more than its
  /// quota, or the slots are promised to requests), paused.
  [[nodiscard]] Result<PinId> pin(std::span<const BlockKey> keys, TimePoint until = never);
  /// Fails: not_found (there is no such pin, or its time is over).
  [[nodiscard]] Result<void> unpin(PinId pin);
  /// Gives the cached part of the prefix a priority until end_retention() or the time `until`. Device and host evict blocks of a
  /// lower priority first. Priorities are 0 to highest_priority; a block without a retention has usual_priority, and of several
  /// retentions of one block the highest counts. A retention does not keep a block from eviction: a block that is evicted and
  /// comes back has no retention then. It takes no slots, but the cache stores its keys. Fails: not_found (no block of the prefix
  /// is cached), no_room (retentions would name too many blocks), invalid_argument (no such priority, or a policy without
  /// priorities; lru and adaptive have them), paused.
  [[nodiscard]] Result<RetentionId> retain(std::span<const BlockKey> keys, Priority priority, TimePoint until = never);
  /// Fails: not_found (there is no such retention, or it has ended).
  [[nodiscard]] Result<void> end_retention(RetentionId retention);
  /// Tells after what time a request is expected to continue the prefix; `no_use`: never, because the session has ended. It
  /// counts for the blocks from the last place on where another prefix branches off, until they are used, or until two and a half
  /// times the told time has passed. Of blocks that will be used, the adaptive policy evicts those first that are used last.
  /// Blocks of a session that has ended go before all others. Other policies ignore it. Fails: not_found (no block of the prefix
  /// is cached), paused.
  [[nodiscard]] Result<void> expect_use(std::span<const BlockKey> keys, Duration in);
  /// Sets how many blocks a tenant may keep cached in a pool. The call visits the whole tree, so use it only for commands of
  /// operators. Fails: invalid_argument (a policy that does not support tenants; lru and adaptive do).
  [[nodiscard]] Result<void> set_quota(TenantId tenant, TenantQuota quota, PoolId pool = {});
  /// Fails: not_found (the tenant has no quota).
  [[nodiscard]] Result<void> remove_quota(TenantId tenant, PoolId pool = {});
  /// Number of copies that a tenant has in the tier. Returns nothing if the tenant has no quota, or if there is no such pool.
  [[nodiscard]] std::optional<std::uint64_t> tenant_blocks(TenantId tenant, Tier tier, PoolId pool = {}) const;

  /// Evicts blocks that nobody holds until so many slots of a tier (device or host) are free and not promised to a request, or
  /// nothing more can be evicted. Does not wait: it begins at once, polls continue, and a slot is free when its block is below. A
  /// request needs no such call; it is for an engine that knows of a burst. Fails: invalid_argument (no such pool,
  /// Tier::storage), never_fits (the tier has fewer slots).
  [[nodiscard]] Result<void> make_room(Tier tier, Blocks blocks, PoolId pool = {});
  /// Makes a tier of a pool larger or smaller while it serves. Does not wait. The device tier can grow up to its
  /// device_blocks_max. A host tier that becomes larger grows chunk by chunk in later polls; host_memory() shows the progress,
  /// and why growth stopped early. For storage this is BlockStore::resize, with its errors; the stat() of the store shows the
  /// progress.
  ///
  /// Accepted requests stay accepted: requests that wait for slots keep the slots promised to them, and no wait ends with
  /// never_fits. A request that becomes too large for the smaller device tier runs until extend() fails with never_fits. New
  /// requests fail with never_fits by the new size. Fails: invalid_argument (no such pool or tier, no blocks, or too many),
  /// never_fits (more host slots than slot numbers), no_room (more blocks are used or promised, or the machine or its control
  /// group has no memory for them), and as BlockStore::resize.
  [[nodiscard]] Result<void> resize(Tier tier, Blocks blocks, PoolId pool = {});
  /// Number of slots of a tier (device or host) that a resize still has to retire.
  [[nodiscard]] std::uint64_t retiring(Tier tier, PoolId pool = {}) const;
  [[nodiscard]] HostMemory host_memory(PoolId pool = {}) const;
  /// Returns how often the host tier could not grow to the wanted size; host_memory() says why the last growth failed.
  [[nodiscard]] std::uint64_t host_growth_failures(PoolId pool = {}) const;

  /// The settings in effect.
  [[nodiscard]] CacheSettings settings() const;
  /// Changes the settings from now on. Work under way continues with the old settings. A new write policy acts on blocks that are
  /// committed, hit or evicted from now on. A new eviction policy visits the whole tree once. A new daily limit includes the
  /// bytes that were written earlier today. The limit of a lane is for both directions together, on each rank; 0: its transfers
  /// use the remaining bandwidth of the link. Fails, and then nothing has changed: invalid_argument (watermarks that are not 0 <=
  /// low <= high < 1, selective_hits not between 1 and 255, a write policy without storage, a limit for Urgency::request, a
  /// policy other than lru for blocks without order, `own` without an own policy), in_use (the new eviction policy does not
  /// support tenants and priorities, but there are quotas or retentions), no_room.
  [[nodiscard]] Result<void> change(const CacheSettings& settings);

  // ---- storage

  /// Starts a job that writes cached blocks to storage or to the shared store. Jobs progress in poll(), and end there. While the
  /// shared store cannot be used, the blocks of a job to it fail with Errc::refused. Fails: invalid_argument (there is no such
  /// target), unknown_request, not_ready, cleared (the request was acquired before the last clear), not_found (nothing of the
  /// prefix is cached), refused (too many jobs run), paused.
  [[nodiscard]] Result<WriteBackId> start_write_back(const WriteBackOrder& order);
  /// Pauses the job: it starts no more writes until resume_write_back(). Writes that are under way continue, and the deadline of
  /// the job does not change. Fails: not_found (there is no such job, or it has ended).
  [[nodiscard]] Result<void> pause_write_back(WriteBackId id);
  /// Fails as pause_write_back().
  [[nodiscard]] Result<void> resume_write_back(WriteBackId id);
  /// Ends the job at once. Blocks that the store is writing may still be stored. Fails as pause_write_back().
  [[nodiscard]] Result<void> cancel_write_back(WriteBackId id);
  /// Returns nothing if there is no such job, or if it ended long ago and is no longer kept.
  [[nodiscard]] std::optional<WriteBackProgress> write_back(WriteBackId id) const;
  /// The progress of all running jobs, and of the ended jobs that are still kept.
  [[nodiscard]] std::vector<WriteBackProgress> write_backs() const;
  /// Returns the results of the job since the last call. They are kept until they are taken, or the ended job is forgotten.
  /// Fails: not_found.
  [[nodiscard]] Result<std::vector<WriteBackResult>> take_write_back_results(WriteBackId id);
  /// The blocks that would survive a power failure now, and those that would be lost, in all pools together.
  [[nodiscard]] Durability durability() const;
  /// Starts a job that writes everything that is cached to storage and flushes it, within `budget`. Fails as start_write_back().
  [[nodiscard]] Result<WriteBackId> start_checkpoint(Duration budget);
  /// Does the same and blocks until the job has ended: it polls, and sleeps between polls. The result says how much is durable.
  /// Use it at the end of a process, after all requests have been released. Resumes transfers as drain() does.
  ///
  /// It never waits longer than `budget`, even if the disk hangs. The destructor of the store waits for a hanging disk;
  /// CacheSystem::close() does not.
  [[nodiscard]] Result<CheckpointReport> checkpoint(Duration budget);
  [[nodiscard]] DailyWrites daily_writes() const;

  // ---- transfers

  /// Pauses transfers: no transfer, read or write starts until resume_transfers(). Work under way continues. Requests that need a
  /// transfer stay pending.
  void pause_transfers();
  void resume_transfers();
  [[nodiscard]] bool transfers_paused() const;
  /// Transfers, reads and writes that have started and have not ended.
  [[nodiscard]] std::uint64_t transfers_in_flight() const;

  // ---- statistics and events. Counts only grow: callers keep the last values and subtract them from the new ones.

  [[nodiscard]] ManagerStats stats() const;
  [[nodiscard]] MovedTotals moved() const;
  /// While copies between device and host fail, blocks are evicted without being copied, and hits that would have to be copied to
  /// the device are computed.
  [[nodiscard]] LinkHealth link_health() const;
  [[nodiscard]] SharedTotals shared_totals() const;
  [[nodiscard]] PrefetchTotals prefetch_totals() const;
  /// Returns the totals of the waits of all requests.
  [[nodiscard]] WaitTotals wait_totals() const;
  [[nodiscard]] WaitsNow waits_now() const;
  [[nodiscard]] CallTimes call_times() const;
  [[nodiscard]] TransferTimes transfer_times() const;
  /// One entry for each direction and urgency.
  [[nodiscard]] std::vector<TransferQueue> transfer_queues() const;
  /// The requests that waited longest among those that became ready in the last minute: at most five, the slowest first.
  [[nodiscard]] std::vector<SlowRequest> slowest_requests() const;
  /// Slots of a tier (device or host).
  [[nodiscard]] Usage usage(Tier tier, PoolId pool = {}) const;
  /// Visits every node of the tree.
  [[nodiscard]] TreeCounts tree_counts(PoolId pool = {}) const;
  /// The tree as text, for a person: at most `lines_max` lines. Visits every node of the tree.
  [[nodiscard]] std::string describe_tree(std::size_t lines_max) const;
  /// Starts to record why blocks are missed, for a sample of the keys: MissTotals. A cache with an admin endpoint does so from
  /// the start. Takes up to 3 MiB of memory.
  void measure_misses();
  /// All 0 before measure_misses().
  [[nodiscard]] MissTotals miss_totals() const;
  /// Starts to follow one of every `one_in` blocks in each pool, to measure the cache residence time. 0: none, which is the
  /// default. A cache with an admin endpoint follows one in 64 from the start. The call allocates memory.
  void sample_residency(std::uint32_t one_in);
  /// Returns the totals of the followed blocks.
  [[nodiscard]] ResidencyTotals residency_totals(PoolId pool = {}) const;
  /// Starts to record changes of what is cached. Take the events in every step of the engine, because all of them are kept until
  /// then.
  void record_events();
  /// Moves the events since the last call into `events`. The vectors are swapped, so that their memory is reused.
  void take_events(std::vector<KvEvent>& events);

  /// While an object of this class exists, acquire(), wait(), poll(), drain(), drain_until() and checkpoint() stop the process.
  /// AsyncCache creates one while it runs a function of its caller, because these calls block, or only AsyncCache may make them.
  class Visit {
   public:
    explicit Visit(Cache& cache);
    ~Visit();
    Visit(const Visit&) = delete;
    Visit& operator=(const Visit&) = delete;

   private:
    Cache& cache_;
  };

  /// Used by Terrace's own tools and tests: the type is internal.
  [[nodiscard]] const CacheManager& manager() const;
  /// Used by OffloadCache and AsyncCache, which work with the same state: the type is internal.
  [[nodiscard]] CacheState& internals() const { return *state_; }
  /// Used by the idle service of CacheSystem: does the work of poll() while the engine makes no calls, and keeps the events for
  /// the engine's next poll(). Returns at about `until`. The result is true if there is more to do at once.
  bool serve_idle(TimePoint until);
  [[nodiscard]] bool has_idle_service() const;

 private:
  std::unique_ptr<CacheState> state_;
};

}  // namespace terrace
