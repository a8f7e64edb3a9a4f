#pragma once

#include "terrace/clock.hpp"
#include "terrace/export.hpp"
#include "terrace/types.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace terrace {

/// Returns the difference of two snapshots of counters. Counters are never reset, so any number of readers can use them: each
/// reader keeps its last snapshot and subtracts it. `Counters` is a struct of std::uint64_t members only. Threads: any.
///
///     const ManagerStats before = cache.stats();
///     ...
///     const std::uint64_t acquired_meanwhile = (cache.stats() - before).acquired;
template <class Counters>
[[nodiscard]] constexpr Counters difference(const Counters& now, const Counters& before) {
  static_assert(std::has_unique_object_representations_v<Counters> && sizeof(Counters) % sizeof(std::uint64_t) == 0);
  using Words = std::array<std::uint64_t, sizeof(Counters) / sizeof(std::uint64_t)>;
  auto words = std::bit_cast<Words>(now);
  const auto subtrahends = std::bit_cast<Words>(before);
  for (std::size_t i = 0; i < words.size(); ++i) words[i] -= subtrahends[i];
  return std::bit_cast<Counters>(words);
}

/// Counts values by size. Bucket 0 counts zeros, bucket n counts values from 2^(n-1) to 2^n - 1. The last bucket also counts all
/// larger values.
struct TERRACE_API Histogram {
  static constexpr std::size_t buckets = 32;
  std::array<std::uint64_t, buckets> counts{};

  void add(std::uint64_t value) {
    const auto bucket = static_cast<std::size_t>(std::bit_width(value));
    ++counts[bucket < buckets ? bucket : buckets - 1];
  }
  /// The smallest value that the bucket counts.
  [[nodiscard]] static constexpr std::uint64_t smallest(std::size_t bucket) {
    return bucket == 0 ? 0 : std::uint64_t{1} << (bucket - 1);
  }
  [[nodiscard]] std::uint64_t total() const;
};

/// The same, with the sum of all values.
struct SummedHistogram : Histogram {
  std::uint64_t sum = 0;

  void add(std::uint64_t value) {
    Histogram::add(value);
    sum += value;
  }
};

/// Statistics of the sampled blocks. Durations are counted in requests: the number that was accepted between two events.
struct TERRACE_API ResidencyTotals {
  struct OfTier {
    SummedHistogram lifetime{};  ///< from arrival in the tier to removal from it, for any reason
    SummedHistogram idle{};      ///< the part of that from the last use to the removal
  };
  OfTier device{};
  OfTier host{};
  SummedHistogram gaps{};        ///< between two uses of a block that stayed in memory between them
  std::uint64_t overlooked = 0;  ///< blocks that should have been sampled, but for which there was no space

  friend ResidencyTotals operator-(const ResidencyTotals& now, const ResidencyTotals& before) { return difference(now, before); }
};

/// Durations of one kind: their number and their sum.
struct TERRACE_API TimeTotal {
  std::uint64_t number = 0;
  double seconds = 0;
  Histogram microseconds{};

  void add(Duration time) {
    ++number;
    const double took = std::chrono::duration<double>(time).count();
    seconds += took;
    microseconds.add(static_cast<std::uint64_t>(took * 1e6));
  }
  friend TimeTotal operator-(const TimeTotal& now, const TimeTotal& before) {
    return {now.number - before.number, now.seconds - before.seconds, difference(now.microseconds, before.microseconds)};
  }
};

/// Why a block that a request asked for was a miss: it is not cached, or not used.
enum class MissReason : std::uint8_t {
  unknown,          ///< it was never cached, or there is no record of it any more
  evicted_device,   ///< the last copy was evicted from this tier
  evicted_host,     ///< the same
  evicted_storage,  ///< the same
  damaged,          ///< its copy in storage failed its checksum
  cleared,
  turned_down,  ///< it is cached, but loading it would take longer than computing it
  not_used,     ///< it is cached, but after a missing block, or in a source that the request did not allow
};
inline constexpr std::size_t miss_reason_count = 8;
[[nodiscard]] TERRACE_API std::string_view to_string(MissReason reason);

/// Misses by reason, estimated from a share of the keys (Cache::measure_misses).
struct TERRACE_API MissTotals {
  std::array<std::uint64_t, miss_reason_count> units{};  ///< hash units, by MissReason; for an OffloadCache, blocks
  Histogram gone_seconds{};                              ///< time since the followed blocks had been dropped

  [[nodiscard]] std::uint64_t operator[](MissReason reason) const { return units[static_cast<std::size_t>(reason)]; }
  [[nodiscard]] std::uint64_t& operator[](MissReason reason) { return units[static_cast<std::size_t>(reason)]; }
  friend MissTotals operator-(const MissTotals& now, const MissTotals& before) { return difference(now, before); }
};

/// The work of an idle service (CacheSystemOptions::idle_service, TierStoreOptions::idle_service).
struct TERRACE_API IdleTotals {
  TimeTotal slices{};        ///< slices in which the service worked
  TimeTotal engine_waits{};  ///< waits of calls that came during a slice, until its end
};

/// How long calls of the engine took. One call in sixteen of each kind is measured.
struct CallTimes {
  TimeTotal acquire{};
  TimeTotal extend{};
  TimeTotal commit{};
  TimeTotal release{};
  TimeTotal load{};  ///< of an OffloadCache, as is `store`
  TimeTotal store{};
  TimeTotal poll{};
};

/// How long transfers took, and how long reads and writes of single blocks in storage and in the shared store took: from the
/// order to the end, including the time in queues.
struct TransferTimes {
  TimeTotal swap_out{};
  TimeTotal swap_in{};
  TimeTotal storage_read{};
  TimeTotal storage_write{};
  TimeTotal shared_probe{};  ///< of the shared store, as are the next two
  TimeTotal shared_read{};
  TimeTotal shared_write{};
};

/// Waits of one kind: the number of requests that waited, and the sum of their waits.
struct WaitTotal {
  std::uint64_t requests = 0;
  double seconds = 0;
  Histogram microseconds{};  ///< of each wait

  friend WaitTotal operator-(const WaitTotal& now, const WaitTotal& before) {
    return {now.requests - before.requests, now.seconds - before.seconds, difference(now.microseconds, before.microseconds)};
  }
};

/// How long accepted requests waited until they were ready. Each request counts once, under the slowest thing that it waited for.
/// (Its other waits, for example for a slot while blocks came from storage, are part of the same time.) An OffloadCache and a
/// TierStore know no requests: each load or get counts, from the order to its end, and as `looking` each question to the shared
/// store (OffloadCache::find, TierStore::submit_probe). A load or get that brought nothing counts, too.
struct WaitTotals {
  std::uint64_t at_once = 0;  ///< did not wait
  WaitTotal room{};           ///< waited only for slots
  WaitTotal looking{};  ///< waited for the answer of the shared store, which had none of its blocks, or for slots after that
  /// Waited for blocks from this source, and not for blocks from a farther source. Requests do not wait for blocks on the device.
  PerSource<WaitTotal> loads{};
  std::uint64_t failed = 0;  ///< ended their wait with an error

  friend WaitTotals operator-(const WaitTotals& now, const WaitTotals& before) {
    return {now.at_once - before.at_once, now.room - before.room, now.looking - before.looking, now.loads - before.loads,
            now.failed - before.failed};
  }
};

/// The requests that wait now.
struct WaitsNow {
  std::uint64_t requests = 0;
  double oldest_seconds = 0;
};

/// A request that waited, and the slowest thing that it waited for.
struct SlowRequest {
  RequestId id{};  ///< or the number of a load's job, or of a get's batch
  double seconds = 0;
  /// The farthest source from which a block came; none: it waited only for slots, or for an answer of the shared store.
  std::optional<Source> source{};
  bool looked = false;  ///< without a source: as WaitTotals::looking
  TimePoint ended{};    ///< when it became ready
};

/// Tokens that requests asked for, by where they were found. A request is counted when it becomes ready, so data that never
/// arrived is not counted. asked = found.sum() + external + miss. A manager without groups does not know the number of tokens in
/// a block, so it counts blocks.
struct RequestTotals {
  std::uint64_t requests = 0;
  std::uint64_t asked = 0;  ///< in full blocks with keys
  SourceCounts found{};
  std::uint64_t external = 0;  ///< filled externally: AcquireRequest::external_units
  std::uint64_t miss = 0;
};

/// Blocks that were to be copied in one direction between device and host. When no transfer is under way,
/// ordered = done + failed + cancelled + late.
struct TERRACE_API CopyTotals {
  std::uint64_t ordered = 0;
  std::uint64_t done = 0;
  std::uint64_t failed = 0;     ///< the device could not copy them, or a rank is lost
  std::uint64_t cancelled = 0;  ///< no longer needed, or their deadline came before they began
  std::uint64_t late = 0;       ///< their deadline passed while they were being copied
};

/// How well the copies between device and host work.
struct LinkHealth {
  /// False: no copy is started. Either several copies in a row failed, and only an occasional probe is started; or a copy does
  /// not end, and all copies wait for its end.
  bool in_use = true;
  std::uint64_t stopped = 0;  ///< how often `in_use` became false; a failed probe does not count
  std::uint64_t silent = 0;   ///< how often a copy was found that had been under way for 30 s
  std::string reason{};       ///< one sentence for people; empty if copies are in use
};

/// Counts since construction. They only grow: a reader keeps an earlier copy and subtracts it.
struct TERRACE_API ManagerStats {
  RequestTotals requests{};   ///< without preempted requests that came back
  RequestTotals preempted{};  ///< preempted requests that came back
  std::uint64_t acquired = 0;
  // Requests that were refused, by reason.
  std::uint64_t refused_no_room = 0;
  std::uint64_t refused_never_fits = 0;   ///< they need more than the pools hold
  std::uint64_t refused_paused = 0;       ///< the cache is being cleared
  std::uint64_t refused_invalid = 0;      ///< their arguments were wrong, or there is such a request already
  std::uint64_t aborted = 0;              ///< requests whose leases ended before they were ready
  std::uint64_t evictions_cancelled = 0;  ///< blocks whose eviction was cancelled by a hit during their swap-out
  std::uint64_t joined = 0;               ///< blocks for which a request joined the load of another
  std::uint64_t turned_down = 0;          ///< hit blocks that were not loaded, because loading takes longer than computing
  std::uint64_t load_failures = 0;        ///< blocks that did not arrive
  std::uint64_t loads_late = 0;           ///< the part of `load_failures` in which storage did not answer in time
  std::uint64_t replans = 0;              ///< requests that were planned again after a failed load
  std::uint64_t duplicates = 0;
  std::uint64_t evicted_device = 0;  ///< device copies dropped to free slots for requests, a watermark or a resize
  std::uint64_t evicted_host = 0;
  std::uint64_t ahead_device = 0;  ///< device copies dropped, or being dropped, for a watermark
  std::uint64_t ahead_host = 0;
  std::uint64_t dropped_clean = 0;  ///< the dropped copies whose block a lower tier had
  /// Dropped copies whose block no lower tier had: none is configured, none had a free slot, or the copy failed.
  std::uint64_t dropped_lost = 0;
  /// Blocks that were evicted from the device and not copied to the host, because its next victim is worth more
  /// (CacheSystemOptions::host_admission).
  std::uint64_t not_admitted = 0;
  // Calls of expect_use(), also through a lease. With several groups, each pool counts.
  std::uint64_t uses_expected = 0;      ///< with a time
  std::uint64_t sessions_ended = 0;     ///< with no_use
  std::uint64_t expected_ignored = 0;   ///< of both: another prefix needs the blocks, or no blocks are cached
  std::uint64_t backup_candidates = 0;  ///< WritePolicy::selective: blocks for which a hit count was started
  std::uint64_t backed_up = 0;          ///< blocks ordered to storage because of their hits, with ancestors
  // Blocks that should have been stored and were not, by reason. A block that is ordered again is counted again.
  std::uint64_t store_failed = 0;          ///< storage or the copy to it failed
  std::uint64_t store_skipped = 0;         ///< too many blocks were waiting already (StorageWriter::wishes_max)
  std::uint64_t store_gone = 0;            ///< its copies were evicted before its turn came
  std::uint64_t store_no_room = 0;         ///< write-back: dropped because no staging slot was free, or copies to the host fail
  std::uint64_t store_orphaned = 0;        ///< a block before it was not stored
  std::uint64_t store_cancelled = 0;       ///< its job was cancelled, or the cache was cleared
  std::uint64_t store_over_budget = 0;     ///< the daily budget was spent
  std::uint64_t stored_evicted = 0;        ///< blocks that storage evicted
  std::uint64_t cleared = 0;               ///< device and host copies dropped by clear()
  std::uint64_t dropped_by_call = 0;       ///< by drop() and evict()
  std::uint64_t released_unfenced = 0;     ///< requests that were quarantined: their leases ended without used_until()
  std::uint64_t quarantined_unfenced = 0;  ///< their device slots
  std::uint64_t quarantined_late = 0;      ///< slots that a transfer which did not end in time may still write
  std::uint64_t dropped_uncached = 0;  ///< device copies of blocks that are stored without being cached, dropped after the copy
  CopyTotals swap_outs{};
  CopyTotals swap_ins{};

  friend ManagerStats operator-(const ManagerStats& now, const ManagerStats& before) { return difference(now, before); }
};

/// Whether an allocation may evict cached blocks.
enum class Evicting : bool { no, yes };

/// How the slots of a pool are used.
struct TERRACE_API Usage {
  std::uint64_t blocks = 0;  ///< in the pool, without the null block
  std::uint64_t free = 0;
  std::uint64_t evictable = 0;  ///< cached, and not held by anything
  std::uint64_t promised = 0;   ///< the part of `free` and `evictable` that is promised to waiting requests

  /// Slots that a new request can get.
  [[nodiscard]] std::uint64_t available() const { return free + evictable - promised; }
  /// Returns true if `wanted` slots can be allocated now.
  [[nodiscard]] bool has_room(std::uint64_t wanted, Evicting evicting) const {
    return wanted <= (evicting == Evicting::yes ? available() : free - std::min(free, promised));
  }
  /// Share of the slots that are held or in transit, from 0 to 1.
  [[nodiscard]] double share_used() const {
    return blocks == 0 ? 0 : 1 - static_cast<double>(free + evictable) / static_cast<double>(blocks);
  }
  /// Share of the free slots, from 0 to 1.
  [[nodiscard]] double share_free() const { return blocks == 0 ? 0 : static_cast<double>(free) / static_cast<double>(blocks); }
};

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
  Moved swap_out{};        ///< device to host
  Moved swap_in{};         ///< host to device
  Moved storage_reads{};   ///< storage to the arena
  Moved storage_writes{};  ///< the arena to storage
  Moved shared_reads{};    ///< the shared store to the arena
  Moved shared_writes{};   ///< the arena to the shared store
};

/// Totals of a cache's use of the shared store, since construction. They count blocks, unless a comment says otherwise.
struct TERRACE_API SharedTotals {
  // Look-ups of requests.
  std::uint64_t look_ups = 0;         ///< requests that asked the store
  std::uint64_t look_ups_joined = 0;  ///< the part of `look_ups` for which another request was already asking for the same blocks
  /// requests that did not ask, because the store had just reported that the block is not there
  std::uint64_t look_ups_skipped = 0;
  std::uint64_t look_ups_late = 0;  ///< requests that continued without an answer
  std::uint64_t asked = 0;          ///< blocks that requests asked for
  std::uint64_t there = 0;          ///< the part of `asked` that was there
  // Reads.
  std::uint64_t read_gone = 0;     ///< were there at the look-up, but not at the read
  std::uint64_t read_corrupt = 0;  ///< failed their checksum
  std::uint64_t read_late = 0;     ///< did not arrive in time, or were no longer needed
  std::uint64_t read_failed = 0;   ///< failed for another reason
  // Writes. A wish is the order to write a prefix to the shared store.
  // wished is the sum of present, written, the drop_* counts, and the blocks that wait or are being written.
  std::uint64_t wishes = 0;   ///< prefixes
  std::uint64_t wished = 0;   ///< the blocks of these prefixes that were not known to be there
  std::uint64_t present = 0;  ///< were there already: this cache or another user had written them before
  std::uint64_t renewed = 0;  ///< blocks whose expiry was renewed
  std::uint64_t written = 0;
  std::uint64_t drop_bound = 0;   ///< not written, because too many were waiting already
  std::uint64_t drop_gone = 0;    ///< their copies were evicted before their turn came
  std::uint64_t drop_failed = 0;  ///< the shared store or the copy to it failed
  std::uint64_t drop_full = 0;    ///< the shared store was full
  std::uint64_t drop_budget = 0;  ///< the budget of the day was spent
  /// The cache was cleared or drained, or the write-back job was cancelled. With caching off, also blocks that were not written
  /// because the store could not be used.
  std::uint64_t drop_off = 0;

  friend SharedTotals operator-(const SharedTotals& now, const SharedTotals& before) { return difference(now, before); }
};

/// Totals of Cache::prefetch. Counts since construction.
struct TERRACE_API PrefetchTotals {
  std::uint64_t orders = 0;        ///< accepted
  std::uint64_t refused = 0;       ///< orders that were not accepted
  std::uint64_t cut = 0;           ///< orders that bring only their first blocks, because of the limit on all prefetches
  std::uint64_t cancelled = 0;     ///< orders cancelled by the engine or a clear, or because the slots were promised to requests
  std::uint64_t joined = 0;        ///< requests that waited for a prefetch of their blocks
  std::uint64_t from_storage = 0;  ///< blocks brought to the host tier
  std::uint64_t from_shared = 0;   ///< the same, from the shared store
  std::uint64_t failed = 0;        ///< blocks that did not arrive: gone, damaged, late, or no room in the host tier
  /// blocks to bring; when no order is alive, the sum of from_storage, from_shared, failed, there and not_wanted
  std::uint64_t blocks = 0;
  std::uint64_t there = 0;       ///< blocks that the host tier had already
  std::uint64_t not_wanted = 0;  ///< blocks that had not arrived when their order was cancelled

  friend PrefetchTotals operator-(const PrefetchTotals& now, const PrefetchTotals& before) { return difference(now, before); }
};

/// Bytes written to storage on the current day, and their limit (CacheSettings::daily_write_bytes). A day is 24 hours. It begins
/// with the first write, and the next day begins with the first write after that. A restart begins a new day.
struct DailyWrites {
  Bytes limit{};  ///< 0: no limit
  Bytes written{};
  Duration elapsed{};  ///< since the day began
};

/// The work and the leases for which the end of a cache has to wait.
struct WorkLeft {
  std::uint64_t leases = 0;
  std::uint64_t transfers = 0;  ///< between device and host
  std::uint64_t reads = 0;      ///< of blocks, from storage
  std::uint64_t writes = 0;     ///< of blocks, to storage
  bool under_way = false;       ///< Cache::has_pending_work(): also true if only a flush is under way

  [[nodiscard]] bool none() const { return leases == 0 && !under_way; }
};

/// The state of the memory of the host tier.
struct HostMemory {
  std::uint32_t wanted = 0;  ///< number of blocks of the tier, as set by the last resize
  std::uint32_t usable = 0;  ///< the part of `wanted` that has memory
  Bytes mapped{};            ///< bytes that the arena has mapped, including staging and chunks that are being added or removed
  std::uint32_t coming = 0;  ///< chunks that are being added
  std::uint32_t going = 0;   ///< chunks that will be unmapped when their slots are no longer used
  std::string failure{};     ///< why the last growth stopped early; empty if it did not

  /// Returns true if the whole tier can be used. Before that, the cache already serves with the usable part.
  [[nodiscard]] bool warm() const { return usable == wanted; }
};

/// Counts of the current contents of a tree.
struct TreeCounts {
  struct InTier {
    std::uint64_t blocks = 0;  ///< copies in any state
    std::uint64_t pinned = 0;  ///< copies of pinned blocks; 0 for a tier without a policy
    std::uint64_t leaves = 0;  ///< nodes with a staying copy (Copy::stays) of which no descendant has one
  };
  std::uint64_t nodes = 0;
  std::uint64_t blocks = 0;
  std::uint64_t references = 0;  ///< pins
  std::array<InTier, tier_count> tiers{};
};

/// A change of what is cached, for routers and other observers. Events are reported in the order in which they happened.
///
/// `stored` with Source::shared means that this cache has written or renewed a copy in the shared store. It is only a hint: the
/// store removes copies by itself, and no `removed` event reports that. The hint ends after `expires_after`.
struct KvEvent {
  enum class Kind : std::uint8_t {
    stored,   ///< the block can be served from the source now
    removed,  ///< the block can no longer be served from the source
    cleared,  ///< no block that was stored before can be served; no `removed` event follows for them. Only `kind` is set.
  };

  Kind kind = Kind::stored;
  Source source = Source::device;
  GroupId group{};
  std::uint32_t depth = 0;  ///< index in its prefix; 0 is the first block
  TenantId tenant{};        ///< as in AcquireRequest
  BlockKey key{};
  std::optional<BlockKey> parent{};  ///< the key of the block before it; none for a first block
  Duration expires_after{};          ///< 0: the copy stays until a `removed` event, or the time is not known

  friend bool operator==(const KvEvent&, const KvEvent&) = default;
};

}  // namespace terrace
