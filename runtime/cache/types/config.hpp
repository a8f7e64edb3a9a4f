#pragma once

#include "radix/groups/groups.hpp"
#include "terrace/clock.hpp"
#include "terrace/policies.hpp"
#include "terrace/types.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace terrace {

/// Sizes of one pool, in blocks.
struct PoolSizes {
  /// Slots of the device pool. If `null_block` is set, the first slot is the null block: it is never handed out and never counted
  /// as used. A pool needs a null block if a group can give blocks up while their request continues. The null block then takes
  /// their place in the block table, so that the other blocks keep their index.
  std::uint32_t device_blocks = 0;
  /// Cache::resize refuses more device blocks than this; 0: no limit. The device must have memory for them.
  std::uint32_t device_blocks_max = 0;
  /// The pool consists of the device slots [first_slot, first_slot + device_blocks). So one device can have several shards, each
  /// with its own manager: the hits and slots of a data-parallel rank stay within its shard. The slots below first_slot belong to
  /// other shards; they count as null slots (SlotState).
  std::uint32_t first_slot = 0;
  /// Slots [0, engine_blocks) of the device belong to the engine, which names them in the orders of an OffloadCache. Then the
  /// pool has no device tier of its own: device_blocks is 0.
  std::uint32_t engine_blocks = 0;
  bool null_block = false;
  /// Slots of the host tier. 0: there is no host tier.
  std::uint32_t host_blocks = 0;
  /// Slots of the host arena, in addition to host_blocks, through which blocks pass between device and storage. At least 1 if
  /// there is storage.
  std::uint32_t staging_blocks = 0;
};

/// The greatest ManagerConfig::selective_hits.
inline constexpr std::uint32_t selective_hits_max = 255;

/// How a cache uses a store that it shares with others (SharedStore).
struct SharedConfig {
  bool on = false;
  /// The longest time that a request waits for the answer which of its blocks the store has.
  Duration probe_timeout = std::chrono::milliseconds{20};
  /// A block that the store does not have is not asked for again during this time.
  Duration miss_lifetime = std::chrono::seconds{1};
  /// The longest time that a request waits for blocks, if LoadPolicy does not limit the wait.
  Duration read_timeout = std::chrono::seconds{1};
  Duration write_timeout = std::chrono::seconds{5};
  /// Which blocks are written: none, those that were hit `selective_hits` times, or all that are computed (write_through).
  WritePolicy writes = WritePolicy::none;
  std::uint32_t selective_hits = 2;  ///< 1 to selective_hits_max
  /// The most bytes that are being written at a time; one block is always allowed.
  Bytes writing_bytes_max = MiB * 64;
  /// The most bytes per second, and per day of 24 hours. 0: no limit.
  BytesPerSecond write_rate{};
  Bytes daily_write_bytes{};
  /// The expiry of a prefix that is hit repeatedly is renewed at most once in this time.
  Duration renew_interval = std::chrono::minutes{1};
  /// After the shared store has failed, or was full, nothing is written during this time.
  Duration rest = std::chrono::seconds{1};
  /// The store keeps an unused block for at least this time, unless it needs the room. 0: not known (KvEvent::expires_after).
  Duration kept_for{};
};

/// Options of a CacheManager. Cache::change() changes some of them later, so that parts read these when they need them.
struct ManagerConfig {
  std::vector<PoolSizes> pools = {PoolSizes{}};  ///< by PoolId; at least one
  /// The KV cache groups of the model, by GroupId. Each group names its pool. If empty, there is one group with full attention in
  /// the first pool, and requests count in its blocks. If there are several groups, requests and keys count in hash units
  /// (hash_unit()), and a block of a group is one or more hash units.
  std::vector<GroupConfig> groups;
  bool storage = false;
  /// For an OffloadCache.
  KeyOrder key_order = KeyOrder::prefix;
  InclusionPolicy inclusion = InclusionPolicy::lazy_exclusive;
  WritePolicy write_policy = WritePolicy::none;
  /// With WritePolicy::selective: a block is stored at this hit, 1 to 255 (runtime/cache/pool/hit_count_write_policy.hpp).
  std::uint32_t selective_hits = 1;
  /// If false, no request finds a hit, and no block stays cached after its request is released.
  bool caching = true;
  /// With caching off: the blocks that requests commit are still written to storage and to the shared store, by the write
  /// policies and by write-back jobs. SharedConfig::writes `selective` means `write_through` here, because nothing is hit. Device
  /// copies are dropped as soon as the bytes have left the device. Use it for an instance that only decodes, and whose output
  /// other instances read. Needs storage or a shared store. Cannot be combined with InclusionPolicy::inclusive.
  bool store_uncached = false;
  /// The most blocks of one request, in hash units, from the maximum length of the model. A request that asks for more gets this
  /// many. If 0, there is no such limit, and a request that asks for more than the pools hold is refused.
  std::uint32_t request_units_max = 0;
  /// The most blocks of each pool that all pins together can keep from eviction. 0: half of device_blocks.
  std::uint32_t pinned_blocks_max = 0;
  /// The most blocks that all retentions together can name. 0: device_blocks of the first pool.
  std::uint32_t retained_units_max = 0;
  /// Makes the eviction policies: one for the device and one for the host, in each pool.
  PolicyFactory policy = adaptive_policy;
  /// The most blocks in each pool that are copied to the host at a time to free slots for requests; 0: no limit. With 1, each
  /// victim has arrived in the host before the next one is chosen.
  std::uint32_t evictions_in_flight_max = 0;
  /// The largest share of each device pool that is kept free for bursts of requests (BurstReserve).
  double device_reserve_max = 0;
  /// The watermarks of each pool: 0 <= low <= high < 1.
  Watermarks device_watermarks;
  Watermarks host_watermarks;
  LoadPolicy loads = LoadPolicy::measured;
  /// Seconds that the engine takes to compute one hash unit of a prompt: tokens of a unit divided by prefill speed. If 0, the
  /// cache learns this time from commits (runtime/cache/measure/load_costs.hpp) and uses it for hits in storage; hits in the
  /// host are then always used.
  double unit_prefill_seconds = 0;
  /// The most bytes per day that may be written to storage, by the write policy and by jobs together, because flash memory wears
  /// out (runtime/cache/types/write_budget.hpp). 0: no limit.
  Bytes daily_write_bytes{};
  /// The most blocks that a write-back job over the whole tree has under way at a time. The limit leaves enough copies that
  /// requests can evict.
  std::uint32_t write_back_blocks_ahead = 256;
  /// The longest time that a stored block waits for a flush. A power failure costs at most the blocks of this time and of the
  /// flush itself. If 0, storage is flushed only for a durable job and when the store is closed.
  Duration flush_interval{};
  SharedConfig shared{};

  [[nodiscard]] const PoolSizes& pool(PoolId id) const { return pools.at(id.value()); }
  [[nodiscard]] PoolSizes& pool(PoolId id) { return pools.at(id.value()); }
  /// The name of `policy`. Blocks without an order always have lru.
  [[nodiscard]] EvictionPolicyName policy_name() const;
  [[nodiscard]] bool stores_by(WritePolicy wanted) const { return storage && write_policy == wanted; }
};

/// Checks that the sizes, groups and pools fit each other. Throws std::invalid_argument with a message that says what is wrong
/// and what would be right.
void validate(const ManagerConfig& config);

}  // namespace terrace
