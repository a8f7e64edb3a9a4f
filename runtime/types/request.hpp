#pragma once

#include "base/block_key.hpp"
#include "base/clock.hpp"
#include "base/counters.hpp"
#include "base/result.hpp"
#include "base/strong_id.hpp"
#include "base/tier.hpp"
#include "radix/keys/block_keys.hpp"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <vector>

namespace terrace {

/// The longest cached prefix of a sequence: number of its blocks by the tier from which they would come.
struct MatchResult {
  std::uint32_t device = 0;
  std::uint32_t host = 0;
  std::uint32_t storage = 0;

  [[nodiscard]] std::uint32_t total() const { return device + host + storage; }
};

/// The needs of a request. Blocks are counted from the start of the sequence. In a manager with several groups, "block"
/// means a hash unit here and in the statistics (hash_unit() of its groups). In a manager with one group, a hash unit is one of
/// its blocks.
struct AcquireRequest {
  RequestId id;
  /// Keys of the full blocks that are known, from the first block on. They must stay valid only during the call.
  std::span<const BlockKey> keys;
  /// All blocks that the request needs now: the blocks of `keys`, a last block that is not full, and lookahead. At least
  /// keys.size(). A request gets at most ManagerConfig::request_blocks_max blocks, and keys beyond them are ignored. (A group
  /// with recurrent state keeps a slot after the last of `keys`, and one in each block behind them.)
  std::uint32_t blocks = 0;
  /// The most blocks to allocate now in addition to cached ones: the first chunk of a prompt that is computed in chunks. The
  /// caller gets the other blocks with extend().
  std::uint32_t new_blocks_max = std::numeric_limits<std::uint32_t>::max();
  /// Number of blocks after the cached ones that something else fills, for example the prefill of another instance. They belong
  /// to this request like the blocks that it computes, and are committed when their data has arrived.
  std::uint32_t external_blocks = 0;
  /// Number of encoder tokens, which groups with cross attention keep until the request ends.
  std::uint32_t encoder_tokens = 0;
  /// The most blocks that may come from the cache. A caller that needs logits sets it so that at least one token is left to
  /// compute.
  std::uint32_t hit_blocks_max = std::numeric_limits<std::uint32_t>::max();
  /// Uses one cached block less than was found. Speculative decoding computes this block again for the state of its draft model.
  bool drop_last_hit = false;
  /// The lowest tier from which blocks are loaded. Blocks that only lower tiers have are computed, and then cached as usual.
  Tier lowest_tier = Tier::storage;
  /// The request was served before, was preempted, and is back. It is counted in separate totals.
  bool preempted = false;
  /// The tenant: the first eight bytes of the root key (BlockKey::prefix64). Stored with the blocks, for statistics and jobs.
  TenantId tenant;
  /// The latest time for everything the request waits for, from free slots to loads.
  TimePoint deadline = never;
  /// Report loads layer by layer. While the request waits for loads, events say how many leading layers of all its blocks have
  /// arrived (RequestEvent::layers), so that compute can start before the other layers arrive. This works for loads that this
  /// request starts. If another request already loads a block, and not by layer, the block counts only when all its layers have
  /// arrived.
  bool by_layer = false;
};

/// Whether an allocation may evict cached blocks.
enum class Evicting : bool { no, yes };

/// How the slots of a pool are used.
struct Usage {
  std::uint64_t blocks = 0;  ///< in the pool, without the null block
  std::uint64_t free = 0;
  std::uint64_t evictable = 0;  ///< cached, and not held by anything
  std::uint64_t promised = 0;   ///< slots out of free and evictable that are promised to waiting requests

  /// Slots that a new request can get.
  [[nodiscard]] std::uint64_t available() const { return free + evictable - promised; }
  /// Whether `wanted` slots can be allocated now.
  [[nodiscard]] bool has_room(std::uint64_t wanted, Evicting evicting) const {
    return wanted <= (evicting == Evicting::yes ? available() : free - std::min(free, promised));
  }
  /// From 0 to 1: slots that are held or in transit.
  [[nodiscard]] double share_used() const {
    return blocks == 0 ? 0 : 1 - static_cast<double>(free + evictable) / static_cast<double>(blocks);
  }
  /// From 0 to 1: slots with nothing cached in them.
  [[nodiscard]] double share_free() const { return blocks == 0 ? 0 : static_cast<double>(free) / static_cast<double>(blocks); }
};

/// State of an accepted request. `pending`: it waits for slots or loads.
enum class Acquired : bool { pending, ready };

/// State of a lease.
enum class RequestState : std::uint8_t {
  unknown,  ///< the lease has ended, or belongs to another cache
  waiting,  ///< for slots or loads; an event will report the end
  failed,   ///< the request must be released; an event has said why, or the next poll will
  ready,
};

/// Whether a group can serve what a request has hit. Only optional groups can fail to.
enum class GroupState : std::uint8_t {
  unknown,  ///< there is no such request or group, or the request has no block table yet
  serves,
  does_not_serve,  ///< the block table has null blocks there, and the group shares no block of this request
};

/// How many of the request's blocks that have keys were found in which tier. blocks = device + host + storage + external + miss.
/// A block that another request was already loading counts under the tier that it is loaded from. A block whose load failed is a
/// miss. With several groups, a block counts under the lowest tier from which any group needed it.
struct RequestStats {
  std::uint32_t blocks = 0;
  std::uint32_t device = 0;
  std::uint32_t host = 0;
  std::uint32_t storage = 0;
  std::uint32_t external = 0;
  std::uint32_t miss = 0;
  std::uint32_t joined = 0;  ///< out of host and storage: another request was already loading them
  bool preempted = false;    ///< AcquireRequest::preempted
};

/// Tokens that requests asked for, by where they were found. A request is counted when it becomes ready, so that data that never
/// arrived is not counted. `asked` is the sum of the fields after it. A manager without groups does not know the number of tokens
/// in a block, so it counts blocks.
struct RequestTotals {
  std::uint64_t requests = 0;
  std::uint64_t asked = 0;  ///< in full blocks with keys
  std::uint64_t device = 0;
  std::uint64_t host = 0;
  std::uint64_t storage = 0;
  std::uint64_t external = 0;
  std::uint64_t miss = 0;
};

/// The copies of a cached block.
struct BlockPlace {
  std::optional<SlotId> device;
  std::optional<SlotId> host;
  bool storage = false;
  bool in_use = false;  ///< a request, a pin or a transfer holds it
};

/// Result of an eviction by name.
struct EvictedBlocks {
  std::uint32_t evicted = 0;     ///< number of evicted blocks, including blocks that followed the named ones
  std::vector<SlotId> in_use{};  ///< named slots whose blocks stay cached, because they or blocks after them are held
};

/// Reports on a pending request. If ends_wait() is true and there is no error, the request is ready. With an error it has failed
/// and must be released; it holds nothing unless layers were reported. Errors: no_room (something that it counted on is gone, and
/// there are not enough slots to plan it again), deadline_exceeded, cleared, load_failed (only by layer).
///
/// For a request by layer, events with increasing `layers` can come first. After the first of them the block table is final and
/// can be read. Compute may be launched that reads these layers of the hits, or that writes any of the new blocks. No other call
/// is allowed for this request until it is ready. A group whose blocks have fewer layers has received all of them by then.
///
/// If the request fails after such an event (load_failed is possible then, because it is not planned again), everything that was
/// computed is void. It cannot be committed, and the blocks that it read may have been overwritten. The new blocks belong to the
/// request until it is released. The fence of the release must cover compute that may still write them.
struct RequestEvent {
  RequestId id;
  ErrorCode error;
  /// If not 0, the wait continues, and this many leading layers of all blocks of the request have arrived.
  std::uint32_t layers = 0;

  [[nodiscard]] bool ends_wait() const { return layers == 0; }
};

/// State of the whole cache.
enum class CacheStatus : std::uint8_t {
  normal,
  clearing,  ///< serves nothing until everything that was cached has been dropped
  cleared,   ///< everything has been dropped; resume() returns to normal
};

/// How to clear a cache.
struct ClearOptions {
  /// If true, nothing is served until transfers under way have ended, live requests have been released, and resume() is called.
  /// If false, new requests are served at once, in the slots that are free.
  bool wait = false;
  /// If true, stored blocks are removed too. If false, they are hits again under their keys. For a weight update, give new
  /// weights new keys (RootFields::weight_epoch), so that nobody asks for the old keys again.
  bool storage = false;
};

/// The most blocks that a tenant can keep cached in each tier of a pool. Blocks beyond the quota are evicted first when slots are
/// needed. The tenant of a block is AcquireRequest::tenant.
struct TenantQuota {
  std::uint32_t device_blocks = std::numeric_limits<std::uint32_t>::max();
  std::uint32_t host_blocks = std::numeric_limits<std::uint32_t>::max();

  friend bool operator==(const TenantQuota&, const TenantQuota&) = default;
};

/// A set of blocks that a caller keeps from eviction.
using PinId = StrongId<struct PinIdTag, std::uint64_t>;

/// A block whose content was already cached when it was committed. The request keeps its own slot until it is released, because
/// the block tables of some engines can only grow. An engine whose table can change may use the shared slot from now on.
struct Duplicate {
  GroupId group;
  std::uint32_t block = 0;  ///< index in the block table of the group
  SlotId own;
  SlotId shared;
};

/// Counts since construction. They only grow: a reader keeps an earlier copy and subtracts it.
struct ManagerStats {
  RequestTotals requests;   ///< without preempted requests that came back
  RequestTotals preempted;  ///< preempted requests that came back
  std::uint64_t acquired = 0;
  std::uint64_t refused_no_room = 0;
  std::uint64_t evictions_cancelled = 0;  ///< blocks that were hit during their swap-out, and stayed
  std::uint64_t joined = 0;               ///< blocks for which a request joined the load of another
  std::uint64_t turned_down = 0;          ///< blocks of hits that take longer to load than to compute
  std::uint64_t load_failures = 0;        ///< blocks that did not arrive
  std::uint64_t loads_late = 0;           ///< load failures because storage did not answer in time
  std::uint64_t replans = 0;              ///< requests that were planned again after a failed load
  std::uint64_t duplicates = 0;
  std::uint64_t evicted_device = 0;  ///< device copies dropped, for any reason
  std::uint64_t evicted_host = 0;
  std::uint64_t ahead_device = 0;  ///< device copies dropped, or being dropped, for a watermark
  std::uint64_t ahead_host = 0;
  std::uint64_t dropped_clean = 0;  ///< of the dropped copies: a lower tier had the block
  /// Dropped copies whose block no lower tier had: none is configured, none had a free slot, or the copy failed.
  std::uint64_t dropped_lost = 0;
  std::uint64_t backup_candidates = 0;  ///< WritePolicy::selective: blocks for which a hit count was started
  std::uint64_t backed_up = 0;          ///< blocks ordered to storage because of their hits, with ancestors
  // Blocks that should have been stored and were not, by reason. A block that is ordered again is counted again.
  std::uint64_t store_failed = 0;       ///< storage failed, or the copy to it
  std::uint64_t store_skipped = 0;      ///< too many were waiting already (StorageWriter::wishes_max)
  std::uint64_t store_gone = 0;         ///< its copies were evicted before its turn came
  std::uint64_t store_no_room = 0;      ///< write-back: dropped at once, because no staging slot was free
  std::uint64_t store_orphaned = 0;     ///< a block before it was not stored
  std::uint64_t store_cancelled = 0;    ///< its job was cancelled, or the cache was cleared
  std::uint64_t store_over_budget = 0;  ///< the daily budget was spent
  std::uint64_t stored_evicted = 0;     ///< blocks that storage evicted
  std::uint64_t cleared = 0;            ///< device and host copies dropped by clear()
  std::uint64_t dropped_by_call = 0;    ///< by drop() and evict()
  std::uint64_t released_unfenced = 0;  ///< requests that were quarantined: their leases ended without used_until()
  std::uint64_t dropped_uncached = 0;   ///< device copies of blocks that are stored without being cached, dropped after the copy

  friend ManagerStats operator-(const ManagerStats& now, const ManagerStats& before) { return difference(now, before); }
};

}  // namespace terrace
