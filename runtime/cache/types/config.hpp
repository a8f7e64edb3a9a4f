#pragma once

#include "radix/groups/groups.hpp"
#include "terrace/clock.hpp"
#include "terrace/policies.hpp"
#include "terrace/settings.hpp"
#include "terrace/types.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace terrace {

/// Sizes of one pool, in blocks. Members with the name of a member of PoolOptions mean the same.
struct PoolSizes {
  std::uint32_t device_blocks = 0;      ///< the null block is never counted as used
  std::uint32_t device_blocks_max = 0;  ///< 0: no limit
  /// One device can have several shards, each with its own manager: the hits and slots of a data-parallel rank stay within its
  /// shard. The slots below first_slot belong to other shards; they count as null slots (SlotState).
  std::uint32_t first_slot = 0;
  /// Slots [0, engine_blocks) of the device belong to the engine, which names them in the orders of an OffloadCache. Then the
  /// pool has no device tier of its own: device_blocks is 0.
  std::uint32_t engine_blocks = 0;
  bool null_block = false;
  std::uint32_t host_blocks = 0;  ///< 0: there is no host tier

  /// The blocks of the pool's first tier: the host tier if the engine owns the slots of the device.
  [[nodiscard]] std::uint32_t first_tier_blocks() const { return engine_blocks > 0 ? host_blocks : device_blocks; }
  /// Slots of the host arena, in addition to host_blocks, through which blocks pass between device and storage. At least 1 if
  /// there is storage.
  std::uint32_t staging_blocks = 0;
  /// The size of a block, for amounts that are counted in bytes. A Cache sets it to that of the host arena.
  Bytes block_bytes{1};
};

/// The greatest CacheSettings::selective_hits.
inline constexpr std::uint32_t selective_hits_max = 255;

/// How a cache uses a store that it shares with others (SharedStore).
struct SharedConfig {
  bool on = false;
  Duration probe_timeout = std::chrono::milliseconds{20};  ///< SharedStorage::probe_deadline
  /// A block that the store does not have is not asked for again during this time.
  Duration miss_lifetime = std::chrono::seconds{1};
  /// The longest time that a request waits for blocks, if LoadPolicy does not limit the wait.
  Duration read_timeout = std::chrono::seconds{1};
  Duration write_timeout = std::chrono::seconds{5};
  WritePolicy writes = WritePolicy::none;  ///< SharedStorage::write_policy
  std::uint32_t selective_hits = 2;
  Bytes writing_bytes_max = MiB * 64;  ///< SharedStorage::bytes_in_flight
  BytesPerSecond write_rate{};         ///< SharedStorage::write_bandwidth
  Bytes daily_write_bytes{};
  /// The expiry of a prefix that is hit repeatedly is renewed at most once in this time.
  Duration renew_interval = std::chrono::minutes{1};
  /// After the shared store has failed, or was full, nothing is written during this time.
  Duration rest = std::chrono::seconds{1};
  /// The store keeps an unused block for at least this time, unless it needs the room. 0: not known (KvEvent::expires_after).
  Duration kept_for{};
};

/// Options of a CacheManager: the settings that Cache::change() may change later (CacheSettings), and those that stay. Its parts
/// have a reference to the one that ManagerState owns, and read a setting when they need it. Members with the name of a member
/// of CacheSystemOptions mean the same.
struct ManagerConfig : CacheSettings {
  std::vector<PoolSizes> pools = {PoolSizes{}};  ///< by PoolId; the present sizes, as set by resize()
  std::vector<GroupConfig> groups;
  std::uint32_t hash_unit_tokens = 0;
  bool storage = false;
  KeyOrder key_order = KeyOrder::prefix;
  InclusionPolicy inclusion = InclusionPolicy::lazy_exclusive;
  bool host_admission = false;
  bool caching = true;
  bool store_uncached = false;
  std::uint32_t request_units_max = 0;
  std::uint32_t pinned_blocks_max = 0;
  std::uint32_t retained_units_max = 0;
  /// In place of CacheSettings::policy, which is its name: policy_name().
  PolicyFactory policy = adaptive_policy;
  std::uint32_t evictions_in_flight_max = 0;
  double unit_prefill_seconds = 0;
  std::uint32_t write_back_blocks_ahead = 256;
  Duration flush_interval{};
  SharedConfig shared{};

  [[nodiscard]] const PoolSizes& pool(PoolId id) const { return pools.at(id.value()); }
  [[nodiscard]] PoolSizes& pool(PoolId id) { return pools.at(id.value()); }
  /// The name of `policy`. Blocks without an order always have lru.
  [[nodiscard]] EvictionPolicyName policy_name() const;
  [[nodiscard]] bool stores_by(WritePolicy wanted) const { return storage && write_policy == wanted; }
};

/// Copies the settings that CacheSettings and CacheSystemOptions both have, except the policies, which have other types there.
template <class From, class To>
void copy_settings(const From& from, To& to) {
  to.selective_hits = from.selective_hits;
  to.loads = from.loads;
  to.device_reserve_max = from.device_reserve_max;
  to.device_watermarks = from.device_watermarks;
  to.host_watermarks = from.host_watermarks;
  to.daily_write_bytes = from.daily_write_bytes;
  to.lane_rates = from.lane_rates;
}

/// Checks that the sizes, groups and pools fit each other. Throws std::invalid_argument with a message that says what is wrong
/// and what would be right.
void validate(const ManagerConfig& config);

}  // namespace terrace
