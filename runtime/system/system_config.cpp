#include "runtime/system/system_config.hpp"

#include "radix/tree/copy.hpp"
#include "runtime/admin/address.hpp"
#include "transfer/engine/ranked_transfers.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>

namespace terrace {
namespace {

/// Enough staging slots to keep disk and link busy at the same time.
constexpr std::uint32_t default_staging_blocks = 64;

[[noreturn]] void refuse(const std::string& sentence) { throw std::invalid_argument{sentence}; }

bool same(const std::vector<DeviceRegion>& a, const std::vector<DeviceRegion>& b) {
  return std::ranges::equal(a, b, [](const DeviceRegion& x, const DeviceRegion& y) {
    return x.base == y.base && x.stride == y.stride && x.bytes == y.bytes && x.layer == y.layer;
  });
}

std::uint32_t most_device_blocks(const PoolOptions& pool) { return std::max(pool.device_blocks, pool.device_blocks_max).value(); }

void check_pool(std::size_t number, const PoolOptions& pool) {
  if (count(pool.block_bytes) == 0) refuse(fmt::format("pool {}: a block needs at least one byte", number));
  if (pool.layers == 0 || count(pool.block_bytes) % pool.layers != 0) {
    refuse(fmt::format("pool {}: a block of {} bytes cannot be divided into {} equal layers", number, count(pool.block_bytes),
                       pool.layers));
  }
  if (std::uint64_t{pool.first_slot} + most_device_blocks(pool) >= Copy::slots_max) {
    refuse(fmt::format("pool {}: device slots up to number {}: the highest must be under {}", number,
                       std::uint64_t{pool.first_slot} + most_device_blocks(pool), Copy::slots_max));
  }
}

void check_stores(const CacheSystemOptions& options) {
  if (const auto* file = std::get_if<FileStorage>(&options.storage)) {
    if (file->directories.empty()) refuse("file storage needs at least one directory");
    if (file->name.empty() && options.pools.size() > 1) {
      refuse("file storage of several pools needs a name, because each pool has a directory of its own");
    }
  }
  const auto* const stores = std::get_if<CustomStorage>(&options.storage);
  if (stores == nullptr) return;
  if (stores->size() != options.pools.size()) {
    refuse(fmt::format("there are {} stores for {} pools: each pool needs one store", stores->size(), options.pools.size()));
  }
  for (std::size_t pool = 0; pool < stores->size(); ++pool) {
    const BlockStore* const store = (*stores)[pool].get();
    if (store == nullptr) refuse(fmt::format("the store of pool {} is null", pool));
    if (store->block_bytes() != options.pools[pool].block_bytes) {
      refuse(fmt::format("the store of pool {} has blocks of {}, but the pool has blocks of {}", pool,
                         to_string(store->block_bytes()), to_string(options.pools[pool].block_bytes)));
    }
    if (std::count(stores->begin(), stores->end(), (*stores)[pool]) > 1) {
      refuse(fmt::format("the store of pool {} is that of another pool, too: each pool needs its own", pool));
    }
  }
}

void use_shared(const SharedStorage& shared, ManagerConfig& config) {
  config.shared.on = true;
  config.shared.probe_timeout = shared.probe_deadline;
  config.shared.writes = shared.write_policy;
  config.shared.selective_hits = shared.selective_hits;
  config.shared.writing_bytes_max = shared.bytes_in_flight;
  config.shared.write_rate = shared.write_bandwidth;
  config.shared.daily_write_bytes = shared.daily_write_bytes;
  if (!shared.store) config.shared.kept_for = shared.expiry / 2;  // a lower bound for the deepest blocks
  for (PoolSizes& pool : config.pools) {
    if (pool.staging_blocks == 0) pool.staging_blocks = default_staging_blocks;
  }
}

}  // namespace

void check_regions(std::size_t rank, const GroupRegions& regions, std::span<const std::size_t> pools) {
  if (regions.size() > pools.size()) {
    refuse(fmt::format("rank {} has regions for {} groups, but there are {}", rank, regions.size(), pools.size()));
  }
  for (std::size_t group = 0; group < regions.size(); ++group) {
    if (regions[group].empty()) continue;
    if (!same(regions[group], regions_of(pools[group], regions, pools))) {
      refuse(fmt::format("rank {}: group {} shares pool {} with another group, so it must have the same regions or none", rank,
                         group, pools[group]));
    }
  }
}

std::vector<std::size_t> pools_of_groups(const CacheSystemOptions& options) {
  std::vector<std::size_t> pools;
  pools.reserve(std::max(options.groups.size(), options.pools.size()));
  for (const GroupConfig& group : options.groups) pools.push_back(group.pool.value());
  if (options.groups.empty()) {
    for (std::size_t pool = 0; pool < options.pools.size(); ++pool) pools.push_back(pool);
  }
  return pools;
}

std::uint32_t device_slots(const PoolOptions& pool) { return pool.first_slot + most_device_blocks(pool); }

void check_admin(const AdminOptions& options) {
  if (!options.listen.empty()) (void)admin::checked_address(options);
}

ManagerConfig manager_config(const CacheSystemOptions& options) {
  if (options.ranks.empty() || options.ranks.size() > RankedTransfers::ranks_max) {
    refuse(fmt::format("there are {} ranks: at least 1 is needed, and at most {}", options.ranks.size(),
                       RankedTransfers::ranks_max));
  }
  if (options.pools.size() > std::numeric_limits<std::uint16_t>::max()) refuse("there are more than 65535 pools");
  ManagerConfig config;
  config.groups = options.groups;
  config.hash_unit_tokens = options.hash_unit_tokens;
  config.storage = !std::holds_alternative<NoStorage>(options.storage);
  config.write_policy = options.write_policy.value_or(config.storage ? WritePolicy::write_through : WritePolicy::none);
  if (!config.storage && config.write_policy != WritePolicy::none) {
    refuse(fmt::format("write policy {} needs storage", to_string(config.write_policy)));
  }
  config.key_order = options.key_order;
  config.pools.clear();
  for (std::size_t number = 0; number < options.pools.size(); ++number) {
    const PoolOptions& pool = options.pools[number];
    check_pool(number, pool);
    PoolSizes sizes;
    if (options.engine_owns_slots) {
      sizes.engine_blocks = pool.device_blocks.value();
    } else {
      sizes.device_blocks = pool.device_blocks.value();
      sizes.device_blocks_max = most_device_blocks(pool);
    }
    sizes.block_bytes = pool.block_bytes;
    sizes.first_slot = pool.first_slot;
    sizes.null_block = pool.null_block;
    sizes.host_blocks = pool.host_blocks.value();
    sizes.staging_blocks = pool.staging_blocks.value();
    if (sizes.staging_blocks == 0 && config.storage) sizes.staging_blocks = default_staging_blocks;
    config.pools.push_back(sizes);
  }
  config.inclusion = options.inclusion;
  config.host_admission = options.host_admission;
  copy_settings(options, config);
  config.caching = options.caching;
  config.store_uncached = options.store_uncached;
  config.request_units_max = options.request_units_max.value();
  config.pinned_blocks_max = options.pinned_blocks_max.value();
  config.retained_units_max = options.retained_units_max.value();
  config.policy = options.policy;
  config.evictions_in_flight_max = options.evictions_in_flight_max.value();
  config.unit_prefill_seconds = options.unit_prefill_seconds;
  if (options.shared) use_shared(*options.shared, config);
  config.write_back_blocks_ahead = options.write_back_blocks_ahead.value();
  config.flush_interval = options.flush_interval;
  validate(config);
  const std::vector<std::size_t> pools = pools_of_groups(options);
  for (std::size_t rank = 0; rank < options.ranks.size(); ++rank) check_regions(rank, options.ranks[rank].regions, pools);
  if (options.poison && !options.engine_owns_slots &&
      !std::ranges::all_of(options.ranks, [](const RankOptions& rank) { return rank.regions.empty(); })) {
    refuse("poison overwrites freed slots on the device, and compute in regions of the engine would not wait for that");
  }
  check_stores(options);
  return config;
}

std::vector<DeviceRegion> regions_of(std::size_t pool, const GroupRegions& regions, std::span<const std::size_t> pools) {
  for (std::size_t group = 0; group < regions.size(); ++group) {
    if (!regions[group].empty() && pools[group] == pool) return regions[group];
  }
  return {};
}

std::vector<Bytes> storage_shares(Bytes capacity, const std::vector<PoolOptions>& pools) {
  if (pools.size() == 1) return {capacity};
  const auto bytes_of = [](const PoolOptions& pool) {
    return static_cast<double>(count(pool.block_bytes)) *
           static_cast<double>(std::uint64_t{pool.device_blocks.value()} + pool.host_blocks.value());
  };
  double all = 0;
  for (const PoolOptions& pool : pools) all += bytes_of(pool);
  std::vector<Bytes> shares;
  for (std::size_t number = 0; number < pools.size(); ++number) {
    const double its = bytes_of(pools[number]);
    shares.push_back(Bytes{static_cast<std::uint64_t>(static_cast<double>(count(capacity)) * its / all)});
    if (shares.back() >= pools[number].block_bytes) continue;
    const double enough = std::ceil(static_cast<double>(count(pools[number].block_bytes)) * all / its);
    refuse(fmt::format("a storage capacity of {} gives pool {} no block of {}: at least {} bytes are needed", to_string(capacity),
                       number, to_string(pools[number].block_bytes), static_cast<std::uint64_t>(enough)));
  }
  return shares;
}

}  // namespace terrace
