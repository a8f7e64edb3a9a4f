#pragma once

#include "base/bytes.hpp"
#include "base/clock.hpp"
#include "radix/eviction/policies.hpp"
#include "radix/groups/groups.hpp"

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace terrace {

/// How a block's device and host copies relate.
enum class InclusionPolicy : unsigned char {
  non_inclusive,  ///< the host copy stays after a swap-in: a duplicate that costs nothing to drop
  exclusive,      ///< a block is in one of the two: a swap-in frees the host slot
  inclusive,      ///< every computed block is copied to the host at once
};

/// What reaches storage, and when.
enum class WritePolicy : unsigned char {
  none,
  write_through,  ///< on insertion
  selective,      ///< when it is hit for the n-th time: ManagerConfig::selective_hits
  write_back,     ///< when the last copy above goes
};

/// Which hits in tiers below the device are taken.
enum class LoadPolicy : unsigned char {
  /// Those that are had sooner by loading than by computing them (runtime/measure/load_costs.hpp). What comes from storage has a
  /// time within which it must come, too.
  measured,
  always,
};

[[nodiscard]] constexpr std::string_view to_string(InclusionPolicy r) {
  switch (r) {
    case InclusionPolicy::non_inclusive: return "non-inclusive";
    case InclusionPolicy::exclusive: return "exclusive";
    case InclusionPolicy::inclusive: return "inclusive";
  }
  return "?";
}

[[nodiscard]] constexpr std::string_view to_string(WritePolicy p) {
  switch (p) {
    case WritePolicy::none: return "none";
    case WritePolicy::write_through: return "write-through";
    case WritePolicy::selective: return "selective";
    case WritePolicy::write_back: return "write-back";
  }
  return "?";
}

/// Free slots of a pool, as shares of it: fewer than `low`, and room is made in the background up to `high`. Off where low is 0.
struct Watermarks {
  double low = 0;
  double high = 0;
};

/// Of one pool, in blocks.
struct PoolSizes {
  /// Of the device pool. The first slot is the null block where `null_block` is set: never handed out, never counted as used.
  /// Groups whose blocks may be given up while their request goes on need one: it keeps the other blocks' places in the table.
  std::uint32_t device_blocks = 0;
  /// The pool is slots [first_slot, first_slot + device_blocks) of the device: one shard of several, each with a manager of its
  /// own, so that the hits and slots of a data-parallel rank are confined to its shard. Slots below are others': they count as
  /// `null` in the ledger.
  std::uint32_t first_slot = 0;
  bool null_block = false;
  /// Of the host tier; 0: none.
  std::uint32_t host_blocks = 0;
  /// Bounce slots of the host arena, beside host_blocks, through which device and storage meet. At least 1 where there is
  /// storage.
  std::uint32_t staging_blocks = 0;
};

/// The sizes are those of the first pool; where there are others, theirs stand in `other_pools`.
struct ManagerConfig : PoolSizes {
  /// The model's layers, by GroupId; each names its pool. Empty: one group with full attention in the first pool, whose blocks
  /// are what requests count in. With several, requests and keys count in hash units (hash_unit()): one block of a group is
  /// one or several of them.
  std::vector<GroupConfig> groups;
  std::vector<PoolSizes> other_pools;
  bool storage = false;
  InclusionPolicy inclusion = InclusionPolicy::non_inclusive;
  WritePolicy write_policy = WritePolicy::none;
  /// With WritePolicy::selective, the hit that stores a block, 1 to 255: runtime/tiering/hit_count_write_policy.hpp says how they
  /// are counted.
  std::uint32_t selective_hits = 1;
  /// Off: nothing is matched, and nothing is kept when a request is released.
  bool caching = true;
  /// With caching off: what requests commit goes to storage all the same, by the write policy and by jobs, and is given up above
  /// as soon as its bytes have left the device. For an instance that decodes: its conversations are hits of who reads the store
  /// next. Needs storage; not with inclusive.
  bool store_uncached = false;
  /// Of one request, in hash units, as the model's length gives it: who asks for more has so many. 0: no such bound, and who asks
  /// for more than the pools hold is refused.
  std::uint32_t request_blocks_max = 0;
  /// What pin() may keep from eviction in each pool, all pins together; 0: half of its device_blocks.
  std::uint32_t pinned_blocks_max = 0;
  /// What retain() may speak of, all retentions together; 0: as many as the first pool's device_blocks.
  std::uint32_t retained_blocks_max = 0;
  /// Makes the policies that choose what device and host give up first: one for each of the two in each pool.
  PolicyFactory policy = adaptive_policy;
  /// Largest number of blocks in each pool that are copied to the host at one time to make room for requests; 0: no limit. With
  /// 1, each victim is in the host before the next one is chosen.
  std::uint32_t evictions_in_flight_max = 0;
  /// Of each pool. 0 <= low <= high < 1.
  Watermarks device_watermarks;
  Watermarks host_watermarks;
  LoadPolicy loads = LoadPolicy::measured;
  /// How long the engine takes to compute a hash unit of a prompt (its tokens over the prefill speed). 0: not stated; then it is
  /// learned from commits (runtime/measure/prefill_speed.hpp), hits in storage are measured by it, and those in the host are
  /// always taken.
  double unit_prefill_seconds = 0;
  /// What storage may be written to in a day, by policy and by jobs: flash wears out (runtime/tiering/write_budget.hpp); 0: no
  /// limit.
  Bytes daily_write_bytes{};
  /// A write-back job over the whole tree has at most so many blocks under way, so that requests still find copies that may be
  /// given up.
  std::uint32_t write_back_blocks_ahead = 256;
  /// What storage holds survives a power failure at most so long after it was written, plus the time a flush takes; 0: when a job
  /// has it flushed, and when the store is closed.
  Duration flush_interval{};

  [[nodiscard]] std::size_t pool_count() const { return 1 + other_pools.size(); }
  [[nodiscard]] const PoolSizes& pool(PoolId id) const { return id.value() == 0 ? *this : other_pools.at(id.value() - 1U); }
  [[nodiscard]] PoolSizes& pool(PoolId id) { return id.value() == 0 ? *this : other_pools.at(id.value() - 1U); }
};

/// Throws std::invalid_argument, saying what is wrong and what would be right, where the sizes, groups and pools do not fit
/// each other.
void validate(const ManagerConfig& config);

}  // namespace terrace
