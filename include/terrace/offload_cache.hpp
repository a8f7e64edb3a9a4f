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

/// A cache for an engine that owns the slots of its device. The engine queries the cache, and orders jobs that load blocks into
/// given slots or store blocks from given slots. The cache keeps blocks in its host tier and in storage, and never chooses a
/// device slot.
///
/// It is made from a Cache whose pools have no device tier of their own (CacheSystemOptions::engine_owns_slots), and uses the
/// same implementation. Functions that are not about jobs are members of that Cache, which cache() returns: clear, resize,
/// quotas, retention, write-back jobs, checkpoint, durability, events (KvEvent), byte counts, bandwidth limits.
///
/// Keys: opaque_key() makes them from names of any length (terrace/keys.hpp). KeyOrder says whether the keys of a call form a
/// prefix, or name unchained blocks. In a cache in flat order (CacheSystemOptions::key_order), all blocks are unchained. In a
/// cache in prefix order, both are possible: blocks of windows and of recurrent states are useful without the blocks before them.
/// A block that is stored in both ways counts as two blocks.
///
/// Ownership: the Cache must outlive the OffloadCache, and has at most one at a time. The destructor does not end jobs: call
/// drain() before, or let CacheSystem wait. Call poll() of this class instead of Cache::poll(). Slots and memory that an order
/// names belong to its job until the result of their block. Until then, compute and other programs must not write them, and must
/// not read slots that a load writes. After the result, the cache does not access them any more.
///
/// Threads: the thread of the Cache. No call blocks, except drain(). One poll() copies at most some megabytes between memory of
/// the caller and the host tier.
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

  // ---- queries, without side effects: they do not count as uses, and move nothing

  /// Returns the state of one block. In prefix order, `key` must be the key of the first block of a prefix.
  [[nodiscard]] OffloadHit look_up(const BlockKey& key, PoolId pool = {}) const;
  /// Sets hits[i] to the state of keys[i]. Both have the same length. In prefix order, the keys form a prefix. Fails:
  /// invalid_argument.
  [[nodiscard]] Result<void> look_up(std::span<const BlockKey> keys, std::span<OffloadHit> hits, PoolId pool = {},
                                     KeyOrder order = KeyOrder::prefix) const;
  /// Returns the number of leading keys that have a copy. `pending` counts as a copy, too. Returns 0 while copies to the device
  /// fail (Cache::link_health), because loads would fail. find() does the same.
  [[nodiscard]] std::uint32_t leading(std::span<const BlockKey> keys, PoolId pool = {}, KeyOrder order = KeyOrder::prefix) const;
  /// Sets bit i % 64 of bits[i / 64] if there is a copy of keys[i], and clears it otherwise. `bits` has (keys.size() + 63) / 64
  /// words. Fails: invalid_argument.
  [[nodiscard]] Result<void> bitmap(std::span<const BlockKey> keys, std::span<std::uint64_t> bits, PoolId pool = {},
                                    KeyOrder order = KeyOrder::prefix) const;

  /// Does the same as leading(), and also asks a usable shared store for the following keys. It does not wait: while the result
  /// is `looking`, call poll() and then find() again with the same keys. This ends after SharedStorage::probe_deadline at the
  /// latest, then without blocks of the shared store. An answer stays valid for a second. Only a load (OffloadOrder::shared)
  /// shows whether the blocks are still there. Equal queries of several requests share one query to the store. The keys form one
  /// prefix, even in flat order. If there is no such pool, returns 0 blocks.
  [[nodiscard]] OffloadFound find(std::span<const BlockKey> keys, PoolId pool = {}, KeyOrder order = KeyOrder::prefix);

  // ---- jobs

  /// Loads blocks into slots or memory. Fails: invalid_argument (no such pool, slot or fence, numbers of keys, slots and memory
  /// that do not match, a slot named twice, memory of a wrong size), duplicate_request (the id is live), in_use (another job uses
  /// a slot), refused (OffloadLimits; try again when jobs have ended), paused (Cache::clear), stopped.
  [[nodiscard]] Result<void> load(const OffloadOrder& order);
  /// Stores blocks: copies them to the host tier, and from there to storage if the write policy says so. It takes the host slots
  /// at once, and evicts other blocks if necessary, but never blocks of the same order. A block that is cached already is not
  /// copied. A result without an error means that the host tier has the block (or storage, if the block was there). Fails as
  /// load(), and with invalid_argument if keys in prefix order contradict the chain of blocks that are cached.
  [[nodiscard]] Result<void> store(const OffloadOrder& order);
  /// Ends all blocks of the job whose copies over the link have not begun, at once and with `cancelled`. The other blocks end as
  /// soon as the device is done with them. Fails: not_found.
  [[nodiscard]] Result<void> cancel(OffloadJobId job);
  /// Pins the host copies of the cached blocks among the keys until unpin(), or until a job with this id has ended (the job can
  /// be ordered later). Call it between a look-up and the load that relies on it. Storage is not affected and may still evict its
  /// copies. Returns the number of blocks. Fails: not_found (none is cached), duplicate_request (the id has a pin), no_room
  /// (OffloadLimits::pinned_blocks), invalid_argument, paused, stopped.
  ///
  /// `slots` receives the host slots of the last slots.size() keys, or no_host_slot for a key without a host copy. The caller may
  /// read these slots, for example with its own copy functions, until the pin ends. Such a pin counts as a use of all the blocks
  /// (`use`: OffloadOrder::use).
  [[nodiscard]] Result<std::uint32_t> pin(OffloadJobId job, std::span<const BlockKey> keys, PoolId pool = {},
                                          std::span<SlotId> slots = {}, KeyOrder order = KeyOrder::prefix, std::uint64_t use = 0);
  /// Fails: not_found.
  [[nodiscard]] Result<void> unpin(OffloadJobId job);

  /// Returns a number for the orders of one request of the engine (OffloadOrder::use).
  [[nodiscard]] std::uint64_t new_use();
  /// Tells the cache that the blocks were used elsewhere, for example in device slots in which the engine found them. They are
  /// then evicted later, the first of the keys last. Keys that are not cached are ignored. Fails: invalid_argument (no such
  /// pool).
  Result<void> touch(std::span<const BlockKey> keys, PoolId pool = {}, KeyOrder order = KeyOrder::prefix);
  /// Tells the cache that the engine's last request that used this prefix has ended, after it wrote so many tokens. The adaptive
  /// policy learns from it which requests are continued (Lease::set_output_tokens). Optional. Keys that are not cached are
  /// ignored, and so are blocks that stand alone. Fails: invalid_argument (no such pool).
  Result<void> end_request(std::span<const BlockKey> keys, std::uint64_t output_tokens, PoolId pool = {},
                           KeyOrder order = KeyOrder::prefix);

  /// Tells when the prefix is expected to be used next, or `no_use` (Cache::expect_use). Keys that are not cached are ignored,
  /// and so are blocks that stand alone. Fails: invalid_argument (no such pool).
  Result<void> expect_use(std::span<const BlockKey> keys, Duration in, PoolId pool = {}, KeyOrder order = KeyOrder::prefix);

  // ---- blocks that the caller writes into the host tier itself, for example with its own copy functions
  // (PoolOptions::host_rows)

  /// Takes host slots for the blocks of the order, as store() does. slots[i] becomes the slot for keys[order.first + i], or
  /// no_host_slot if the block is cached already, is being copied to the host tier, or gets no slot. The caller fills the slots,
  /// and then calls publish(); until then the blocks are `pending`. Returns the number of slots. If that is 0, nothing is
  /// reserved, and there is nothing to publish. Fails: as store(), duplicate_request (the id has a reservation), no_room
  /// (OffloadLimits::pinned_blocks).
  [[nodiscard]] Result<std::uint32_t> reserve(const OffloadOrder& order, std::span<SlotId> slots);
  /// Ends a reservation. If `filled` is true, the slots contain their blocks: these are cached from now on, and are written to
  /// storage if the write policy says so. If it is false, the slots become free, and the caller must not write them any more.
  /// Fails: not_found.
  [[nodiscard]] Result<void> publish(OffloadJobId job, bool filled);

  // ---- streams of the engine

  /// Does the same as Cache::signal(). The point is for OffloadOrder::after.
  [[nodiscard]] Result<Fence> signal(StreamRef stream, std::uint32_t rank = 0);
  /// Makes the stream wait, on the device, for a job. For a load: until the leading `layers` layers of all its blocks have
  /// arrived in their slots (all_layers: the whole blocks). For a store: until the copies out of its slots have ended, for any
  /// `layers`, so that work that is put on the stream afterwards may overwrite them. The results of the blocks come as usual, and
  /// only they tell whether a copy failed; the stream continues even if one did. Until these results, other orders cannot use the
  /// slots.
  ///
  ///     Result<void> ordered = offload.await(job, OffloadCache::all_layers, stream);
  ///     while (!ordered && ordered.error() == Errc::not_ready) …sleep until wake_fd() is readable, poll(), and try again…
  ///
  /// Fails: not_ready (some copies of the job are not on the device yet, because blocks wait for storage, for host slots, for
  /// another job, or for the launched work of OffloadOrder::after; or a store is unconfirmed. Try again after the next poll()),
  /// not_found (no such job is alive), invalid_argument (a job with memory instead of slots, for which streams cannot wait; 0
  /// layers), load_failed (a load has missed a block), the error of the first block of a load, or of the first copy, that has
  /// failed, and as Device::await(): io_failed, invalid_argument (also if there is no such rank).
  [[nodiscard]] Result<void> await(OffloadJobId job, std::uint32_t layers, StreamRef stream, std::uint32_t rank = 0);
  static constexpr std::uint32_t all_layers = Cache::all_layers;

  // ---- progress

  /// Collects ended work, starts new work, and returns the events since the last call. The result is valid until the next call.
  /// One call handles only so much of what has ended (Cache::poll).
  std::span<const OffloadEvent> poll();
  /// Becomes readable when poll() has something to collect or to report (an eventfd); -1 without a waker.
  [[nodiscard]] int wake_fd() const;
  /// When to call poll() even if wake_fd() is not readable.
  [[nodiscard]] TimePoint next_deadline() const;
  [[nodiscard]] bool has_pending_work() const;
  /// Rejects all later orders.
  void stop_accepting();
  /// Blocks until no jobs and no writes to storage are under way. Their events come with the next poll(). It resumes paused
  /// transfers. It has no time limit: if a device does not respond, it waits until the device does.
  void drain();

  /// Number of blocks whose deadline passed during their copy over the link. Their results come when the device has confirmed
  /// that the copies have ended; until then their slots must not be used.
  [[nodiscard]] std::uint32_t unconfirmed() const;
  /// Number of blocks that have no result yet.
  [[nodiscard]] std::uint32_t blocks_in_flight() const;
  [[nodiscard]] OffloadTotals totals() const;
  [[nodiscard]] Cache& cache() { return cache_; }

 private:
  [[nodiscard]] Result<void> see(std::span<const BlockKey> keys, std::span<OffloadHit> hits, PoolId pool, KeyOrder order) const;

  Cache& cache_;
  CacheState& state_;  ///< the state of the cache
  std::vector<OffloadEvent> events_;
  mutable std::vector<OffloadHit> hits_;  ///< scratch
};

}  // namespace terrace
