#pragma once

#include "terrace/cache.hpp"
#include "terrace/clock.hpp"
#include "terrace/device.hpp"
#include "terrace/export.hpp"
#include "terrace/offload_orders.hpp"
#include "terrace/result.hpp"
#include "terrace/types.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace terrace {

/// A cache below an engine that owns the slots of its device. The engine asks what the cache has, and orders jobs: load these
/// blocks into these slots, store the blocks in these slots. The cache keeps blocks in its host tier and in storage, and never
/// chooses a device slot.
///
/// It works on the same machinery as Cache, and is made from a Cache whose pools have no device tier of their own
/// (CacheSystemOptions::engine_owns_slots). Everything that is not about jobs is called there: clear,
/// resize, quotas, retention, write-back jobs, checkpoint, durability, events (KvEvent), byte counts, bandwidth limits. cache()
/// returns it.
///
/// Keys: opaque_key() makes them from names of any length (terrace/keys.hpp). KeyOrder says whether the keys of a call are a
/// prefix, or stand alone. In a cache whose own order is flat (CacheSystemOptions::key_order) they always stand alone. In one in
/// prefix order both have their place: blocks of windows and of recurrent states are of use without those before them. A block
/// that is stored in both ways is two blocks.
///
/// Ownership: the Cache outlives the OffloadCache, and has one at a time. Destroying it ends no job: call drain() before, or let
/// CacheSystem wait. poll() of this class takes the place of Cache::poll(). Slots and memory that an
/// order names belong to its job until the result of their block: compute and other programs must not write them meanwhile, and
/// must not read slots that a load writes. After the result nothing of the cache touches them.
///
/// Threads: one, that of the Cache. No call blocks, except drain(). poll() copies at most some megabytes between caller's memory
/// and the host tier.
///
/// Units: blocks of a pool. Errors: a call that fails returns the reason and changes nothing. A block that cannot be moved is a
/// result, not a failure of the call. No call that returns a Result throws, except std::bad_alloc.
///
///     OffloadOrder order{.id = OffloadJobId{7}, .keys = keys, .slots = slots};
///     if (offload.leading(keys) == keys.size() && offload.load(order)) …
///     for (const OffloadEvent& event : offload.poll()) …   // one for each block, then `ended`
class TERRACE_API OffloadCache {
 public:
  /// Throws std::invalid_argument if the cache has device slots of its own.
  explicit OffloadCache(Cache& cache, const OffloadLimits& limits = {});
  OffloadCache(const OffloadCache&) = delete;
  OffloadCache& operator=(const OffloadCache&) = delete;

  // ---- questions, without side effects: they are no uses, and move nothing

  /// Returns the state of one block. In prefix order it is the first block of a prefix.
  [[nodiscard]] OffloadHit look_up(const BlockKey& key, PoolId pool = {}) const;
  /// Sets hits[i] to the state of keys[i]. Both have the same length. In prefix order keys are a prefix. Fails:
  /// invalid_argument.
  [[nodiscard]] Result<void> look_up(std::span<const BlockKey> keys, std::span<OffloadHit> hits, PoolId pool = {},
                                     KeyOrder order = KeyOrder::prefix) const;
  /// Number of leading keys of which there is a copy. `pending` counts as a copy, too. 0 while copies to the device fail
  /// (Cache::link_health), because loads would fail; so does find().
  [[nodiscard]] std::uint32_t leading(std::span<const BlockKey> keys, PoolId pool = {}, KeyOrder order = KeyOrder::prefix) const;
  /// Sets bit i of bits[i / 64] if there is a copy of keys[i], and clears it otherwise. `bits` is as long as that needs. Fails:
  /// invalid_argument.
  [[nodiscard]] Result<void> bitmap(std::span<const BlockKey> keys, std::span<std::uint64_t> bits, PoolId pool = {},
                                    KeyOrder order = KeyOrder::prefix) const;

  /// The same as leading(), and asks the shared store for the keys after that, if there is one that can be used. It does not
  /// wait: while `looking`, poll() and ask again with the same keys. That ends after SharedStorage::probe_deadline at the latest,
  /// then without blocks of the shared store. An answer is believed for a second. Whether the blocks are still there is known
  /// only when a load (OffloadOrder::shared) has read them. Equal questions of several requests are one. Also in flat order,
  /// the keys are those of one prefix. No such pool: none.
  [[nodiscard]] OffloadFound find(std::span<const BlockKey> keys, PoolId pool = {}, KeyOrder order = KeyOrder::prefix);

  // ---- jobs

  /// Loads blocks into slots or memory. Fails: invalid_argument (no such pool, slot or fence, numbers that do not fit, a slot
  /// twice, memory of a wrong size), duplicate_request (the id is live), in_use (another job uses a slot), refused
  /// (OffloadLimits; try again when jobs have ended), paused (Cache::clear), stopped.
  [[nodiscard]] Result<void> load(const OffloadOrder& order);
  /// Stores blocks: copies them to the host tier, and from there to storage as the write policy says. It takes its host slots at
  /// once, and evicts what the policy says; blocks of its own order are never evicted for it. A block that is there already is
  /// not copied. Its result says that the host tier has it (or storage, if it was there). Fails as load(), and with
  /// invalid_argument if keys in prefix order are not chained: they contradict blocks that are there.
  [[nodiscard]] Result<void> store(const OffloadOrder& order);
  /// Ends the job's blocks that have not begun to cross the link with `cancelled`, at once. The others end as soon as the device
  /// is done with them. Fails: not_found.
  [[nodiscard]] Result<void> cancel(OffloadJobId job);
  /// Keeps the host copies of the cached blocks among the keys until unpin(), or until a job with this id has ended (it can be
  /// ordered later). Call it between a look-up and the load that relies on it. Storage evicts by its own order all the same.
  /// Returns the number of blocks. Fails: not_found (none is cached), duplicate_request (the id has a pin), no_room
  /// (OffloadLimits::pinned_blocks), invalid_argument, paused, stopped.
  ///
  /// `slots` are for the last keys, all of them or fewer, and become the slots of the host tier that hold these, or
  /// no_host_slot. The caller may read these slots until it ends the pin, for example with a mover of its own. Such a pin is a
  /// use of all the blocks.
  [[nodiscard]] Result<std::uint32_t> pin(OffloadJobId job, std::span<const BlockKey> keys, PoolId pool = {},
                                          std::span<SlotId> slots = {}, KeyOrder order = KeyOrder::prefix);
  /// Fails: not_found.
  [[nodiscard]] Result<void> unpin(OffloadJobId job);

  /// The blocks were used elsewhere, for example in slots of the device where the engine found them: they are evicted later, the
  /// first of the keys last. Keys that are not there are ignored. Fails: invalid_argument (no such pool).
  Result<void> touch(std::span<const BlockKey> keys, PoolId pool = {}, KeyOrder order = KeyOrder::prefix);

  // ---- blocks that the caller brings to the host tier itself, for example with a mover of its own (PoolOptions::host_rows)

  /// Takes host slots for the blocks of the order, as store() does. slots[i] becomes the slot for keys[order.first + i], or
  /// no_host_slot: the block is there already or on its way, or no slot could be had for it. The caller fills the slots, and
  /// then calls publish(); until then the blocks are `pending`. Returns the number of slots. If that is 0, nothing is reserved,
  /// and there is nothing to publish. Fails: as store(), duplicate_request (the id has a reservation), no_room
  /// (OffloadLimits::pinned_blocks).
  [[nodiscard]] Result<std::uint32_t> reserve(const OffloadOrder& order, std::span<SlotId> slots);
  /// Ends a reservation. `filled`: the slots have their blocks, which are cached from now on, and written to storage as the
  /// write policy says. Otherwise the slots are free again; nobody may write them any more. Fails: not_found.
  [[nodiscard]] Result<void> publish(OffloadJobId job, bool filled);

  // ---- streams of the engine

  /// Marks all work that is on the stream of this rank's engine now, and returns the point at which it is done, for
  /// OffloadOrder::after. With several ranks, mark a stream of each rank in turn; the point is the same on all. Fails as
  /// Cache::signal().
  [[nodiscard]] Result<Fence> signal(StreamRef stream, std::uint32_t rank = 0);
  /// Makes the stream wait, on the device, for a job. For a load: until the leading `layers` layers of all its blocks have
  /// arrived in their slots (all_layers: the whole blocks). For a store: until the copies out of its slots have ended, for any
  /// `layers`, so that work that is put on the stream afterwards may overwrite them. The results of the blocks come as always,
  /// and only they say that a copy did not fail under way; the stream goes on all the same. To other orders, the slots belong to
  /// the job until then.
  ///
  ///     Result<void> ordered = offload.await(job, OffloadCache::all_layers, stream);
  ///     while (!ordered && ordered.error() == Errc::not_ready) …sleep until wake_fd() is readable, poll(), and try again…
  ///
  /// Fails: not_ready (some copies of the job are not on the device yet, because blocks wait for storage, for host slots, for
  /// another job, or for the launched work of OffloadOrder::after; or a store is unconfirmed. Try again after the next poll()),
  /// not_found (no such job is alive), invalid_argument (the job is one of memory, which no stream waits for; 0 layers),
  /// load_failed (a load has missed a block), the error of the first block of a load, or of the first copy, that has failed, and
  /// as Device::await(): io_failed, invalid_argument (also if there is no such rank).
  [[nodiscard]] Result<void> await(OffloadJobId job, std::uint32_t layers, StreamRef stream, std::uint32_t rank = 0);
  static constexpr std::uint32_t all_layers = Cache::all_layers;

  // ---- progress

  /// Collects ended work, starts new work, and returns the events since the last call. The result is valid until the next call.
  std::span<const OffloadEvent> poll();
  /// Becomes readable when poll() has something to collect or to report (an eventfd); -1 without a waker.
  [[nodiscard]] int wake_fd() const;
  /// When to call poll() even if wake_fd() is not readable.
  [[nodiscard]] TimePoint next_deadline() const;
  [[nodiscard]] bool has_pending_work() const;
  /// No order is accepted from now on.
  void stop_accepting();
  /// Blocks until nothing is under way, neither jobs nor writes to storage. Their events come with the next poll(). It ends a
  /// pause of transfers. It waits as long as a device that does not answer.
  void drain();

  /// Blocks whose deadline has passed while they crossed the link. Their results come when the device has confirmed that nothing
  /// moves any more; until then their slots must not be used.
  [[nodiscard]] std::uint32_t unconfirmed() const;
  /// Blocks without a result.
  [[nodiscard]] std::uint32_t blocks_in_flight() const;
  [[nodiscard]] OffloadTotals totals() const;
  [[nodiscard]] Cache& cache() { return cache_; }

 private:
  [[nodiscard]] Result<void> see(std::span<const BlockKey> keys, std::span<OffloadHit> hits, PoolId pool, KeyOrder order) const;

  Cache& cache_;
  std::vector<OffloadEvent> events_;
  mutable std::vector<OffloadHit> hits_;  ///< scratch
};

}  // namespace terrace
