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

/// The longest cached prefix of a sequence, by the tier each block would come from.
struct MatchResult {
  std::uint32_t device = 0;
  std::uint32_t host = 0;
  std::uint32_t storage = 0;

  [[nodiscard]] std::uint32_t total() const { return device + host + storage; }
};

/// What a request needs to run. Blocks are counted from the sequence's start. Where a manager has several groups, "block" means
/// a hash unit here and in the statistics (hash_unit() of its groups); with one, a hash unit is a block of it.
struct AcquireRequest {
  RequestId id;
  /// Of the full blocks that are known, from the first. Need to stay valid for the call only.
  std::span<const BlockKey> keys;
  /// All blocks the request needs now: those of `keys`, a partly filled last one, lookahead. At least keys.size(). No more than
  /// ManagerConfig::request_blocks_max are given, and keys beyond them are not looked at. (Of a recurrent state a slot is kept
  /// after the last of `keys`, and in each block behind them.)
  std::uint32_t blocks = 0;
  /// At most so many of them beyond those that come from the cache: the first chunk of a prompt that is computed in chunks.
  /// The rest is extend()ed.
  std::uint32_t new_blocks_max = std::numeric_limits<std::uint32_t>::max();
  /// Of the blocks after the cached ones, so many are filled by somebody else (another instance's prefill, say): they are the
  /// request's own like any it computes, and are committed when they are there.
  std::uint32_t external_blocks = 0;
  /// What groups with cross attention keep for as long as the request lives.
  std::uint32_t encoder_tokens = 0;
  /// At most so many blocks may come from the cache, so that something is left to compute where the caller needs logits.
  std::uint32_t hit_blocks_max = std::numeric_limits<std::uint32_t>::max();
  /// Takes one cached block less than were found: speculative decoding computes the last one again for its draft's state.
  bool drop_last_hit = false;
  /// Takes nothing from tiers below this one: what only they have is computed, and cached all the same.
  Tier lowest_tier = Tier::storage;
  /// The request was served before, was preempted, and comes back: the totals count it apart.
  bool preempted = false;
  /// The first eight bytes of the root key (BlockKey::prefix64): kept with stored blocks, for statistics and jobs.
  TenantId tenant;
  /// For everything the caller waits for, from room to loads.
  TimePoint deadline = never;
  /// While it waits for loads, events tell of the leading layers of all its blocks that are there (RequestEvent::layers), so that
  /// their compute goes on beside the load of those behind them. What it loads itself is moved so; of blocks that another request
  /// is loading already, and not by layer, nothing is told until all of their layers are there.
  bool by_layer = false;
};

/// Whether room may come from what is cached, which is given up then.
enum class Evicting : bool { no, yes };

/// How much of a pool is where.
struct Usage {
  std::uint64_t blocks = 0;  ///< of the pool, null block excepted
  std::uint64_t free = 0;
  std::uint64_t evictable = 0;  ///< cached, and held by nobody
  std::uint64_t promised = 0;   ///< of free and evictable: to requests that wait

  /// What can still be asked for.
  [[nodiscard]] std::uint64_t available() const { return free + evictable - promised; }
  /// Whether so many blocks can be had now.
  [[nodiscard]] bool has_room(std::uint64_t wanted, Evicting evicting) const {
    return wanted <= (evicting == Evicting::yes ? available() : free - std::min(free, promised));
  }
  /// 0 to 1: held, or on its way.
  [[nodiscard]] double share_used() const {
    return blocks == 0 ? 0 : 1 - static_cast<double>(free + evictable) / static_cast<double>(blocks);
  }
  /// 0 to 1: without anything cached.
  [[nodiscard]] double share_free() const { return blocks == 0 ? 0 : static_cast<double>(free) / static_cast<double>(blocks); }
};

/// How an accepted request stands: `pending` while it waits for room or loads.
enum class Acquired : bool { pending, ready };

/// What a lease has at the moment.
enum class RequestState : std::uint8_t {
  unknown,  ///< nothing: the lease has ended, or is another cache's
  waiting,  ///< for room or loads; events will tell
  failed,   ///< nothing, and never will: an event has said why, or the next poll says it
  ready,
};

/// Whether a group can serve what a request has hit. Only optional groups may not.
enum class GroupState : std::uint8_t {
  unknown,  ///< the request is, or it has no block table, or there is no such group
  serves,
  does_not_serve,  ///< the table has null blocks there, and the group shares nothing of this request
};

/// Where a request's keyed blocks were found; the tiers, external and miss sum to all. A join counts under its source's tier; a
/// block whose load failed is a miss. With several groups a block counts under the lowest tier that any of them wanted it from.
struct RequestStats {
  std::uint32_t blocks = 0;
  std::uint32_t device = 0;
  std::uint32_t host = 0;
  std::uint32_t storage = 0;
  std::uint32_t external = 0;
  std::uint32_t miss = 0;
  std::uint32_t joined = 0;  ///< of host and storage: another request's load was under way already
  bool preempted = false;    ///< AcquireRequest::preempted
};

/// Tokens that requests asked for, and where they were found. Counted when a request becomes ready, so that nothing counts
/// that did not arrive: `asked` is the sum of what follows it. Of a manager without groups, which does not know how many
/// tokens a block has, the counts are of blocks.
struct RequestTotals {
  std::uint64_t requests = 0;
  std::uint64_t asked = 0;  ///< in full blocks with keys
  std::uint64_t device = 0;
  std::uint64_t host = 0;
  std::uint64_t storage = 0;
  std::uint64_t external = 0;
  std::uint64_t miss = 0;
};

/// Where a block is cached.
struct BlockPlace {
  std::optional<SlotId> device;
  std::optional<SlotId> host;
  bool storage = false;
  bool in_use = false;  ///< a request, a pin or a transfer holds it
};

/// What became of blocks that were to be evicted by name.
struct EvictedBlocks {
  std::uint32_t evicted = 0;     ///< blocks, those that followed the named ones included
  std::vector<SlotId> in_use{};  ///< the named slots whose blocks are cached still: they, or blocks that follow them, are held
};

/// Tells how a pending request ended its wait: no error, and it is ready; else it failed, holds nothing, and wants to be
/// released. Errors: no_room (something it counted on is gone), deadline_exceeded, cleared.
///
/// Of a request by layer, events with ever more `layers` may come before: its block table is final and can be asked for, and
/// compute that reads these layers of its hits, or writes any of its new blocks, may be launched. Nothing else may be asked of
/// the request before it is ready. A group whose blocks have fewer layers has them all by then. Where it fails after such an
/// event (load_failed too, then: it is not planned again) what was computed is void: nothing of it can be committed, and what it
/// read may not be there any more. The new blocks stay the request's until it is released; the release names what compute may
/// still write them.
struct RequestEvent {
  RequestId id;
  ErrorCode error;
  /// Not 0: the wait goes on, and so many leading layers of all the request's blocks are there.
  std::uint32_t layers = 0;

  [[nodiscard]] bool ends_wait() const { return layers == 0; }
};

/// What the cache is doing as a whole.
enum class CacheStatus : std::uint8_t {
  normal,
  clearing,  ///< nothing is served until the last of what was cached has gone
  cleared,   ///< it has; resume() goes back to normal
};

/// How a cache is cleared.
struct ClearOptions {
  /// Serve nothing until transfers under way have ended, live requests are released and resume() is called. Else new requests
  /// are served at once, in the room that is free.
  bool wait = false;
  /// Stored blocks go too. Else they are hits again, under the keys they have: for a weight update, give new weights new keys
  /// (RootFields::weight_epoch), and the old ones will never be asked for.
  bool storage = false;
};

/// What a tenant may keep cached in each tier of a pool: more goes first where there is no room. A tenant is known by the
/// namespace of its requests (AcquireRequest::tenant).
struct TenantQuota {
  std::uint32_t device_blocks = std::numeric_limits<std::uint32_t>::max();
  std::uint32_t host_blocks = std::numeric_limits<std::uint32_t>::max();

  friend bool operator==(const TenantQuota&, const TenantQuota&) = default;
};

/// Blocks kept from eviction on the caller's wish.
using PinId = StrongId<struct PinIdTag, std::uint64_t>;

/// A block whose content was in the tree already when it was committed. The request's own slot stays its own until it is
/// released, since some engines' block tables only grow; a table that may change can use the shared slot from now on.
struct Duplicate {
  GroupId group;
  std::uint32_t block = 0;  ///< index in the group's table
  SlotId own;
  SlotId shared;
};

/// Counts since construction. They only grow: readers keep snapshots and subtract.
struct ManagerStats {
  RequestTotals requests;   ///< without those that were preempted and came back
  RequestTotals preempted;  ///< those
  std::uint64_t acquired = 0;
  std::uint64_t refused_no_room = 0;
  std::uint64_t evictions_cancelled = 0;  ///< hit while being swapped out, and stayed
  std::uint64_t joined = 0;               ///< blocks of requests that joined another's load
  std::uint64_t turned_down = 0;          ///< blocks of hits that took longer to load than to compute
  std::uint64_t load_failures = 0;        ///< blocks that did not arrive
  std::uint64_t loads_late = 0;           ///< of them: storage had not given them within their time
  std::uint64_t replans = 0;              ///< requests planned again after a failed load
  std::uint64_t duplicates = 0;
  std::uint64_t evicted_device = 0;  ///< device copies given up, however
  std::uint64_t evicted_host = 0;
  std::uint64_t ahead_device = 0;  ///< device copies given up, or begun to be, for a watermark
  std::uint64_t ahead_host = 0;
  std::uint64_t dropped_clean = 0;  ///< of those given up: a lower tier had the block
  std::uint64_t dropped_lost = 0;   ///< of those given up: no lower tier had it (none configured, no room, or the copy failed)
  std::uint64_t backup_candidates = 0;  ///< WritePolicy::selective: blocks whose hits began to be counted
  std::uint64_t backed_up = 0;          ///< blocks ordered to storage for their hits, ancestors included
  // Blocks that were to be stored and were not, by reason. One that is wished for again counts again.
  std::uint64_t store_failed = 0;       ///< storage, or the copy there, failed
  std::uint64_t store_skipped = 0;      ///< so many wait already (StorageWriter::wishes_max)
  std::uint64_t store_gone = 0;         ///< its copies were given up for the room before its turn came
  std::uint64_t store_no_room = 0;      ///< write-back: given up at once, since staging had no room for what it needs
  std::uint64_t store_orphaned = 0;     ///< a block before it was not stored
  std::uint64_t store_cancelled = 0;    ///< its job was, or the cache was cleared
  std::uint64_t store_over_budget = 0;  ///< the day's budget is spent
  std::uint64_t stored_evicted = 0;     ///< blocks that storage gave up
  std::uint64_t cleared = 0;            ///< device and host copies dropped by clear()
  std::uint64_t dropped_by_call = 0;    ///< by drop() and evict()
  std::uint64_t released_unfenced = 0;  ///< requests that were quarantined: their leases ended without a word of the last use
  std::uint64_t dropped_uncached = 0;   ///< device copies of what is stored without being cached, when they had left for there

  friend ManagerStats operator-(const ManagerStats& now, const ManagerStats& before) { return difference(now, before); }
};

}  // namespace terrace
