#pragma once

#include "runtime/cache/types/config.hpp"
#include "terrace/device.hpp"
#include "terrace/options.hpp"
#include "terrace/types.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace terrace {

/// Makes all checks of the options that are possible before the parts are made, and returns the options for the CacheManager.
/// Throws std::invalid_argument with one sentence that says what is wrong and what would be right.
[[nodiscard]] ManagerConfig manager_config(const CacheSystemOptions& options);

/// The same for the admin endpoint.
void check_admin(const AdminOptions& options);

/// RankOptions::regions.
using GroupRegions = std::vector<std::vector<DeviceRegion>>;
/// The pool of each entry of GroupRegions.
[[nodiscard]] std::vector<std::size_t> pools_of_groups(const CacheSystemOptions& options);
/// Throws std::invalid_argument, with a sentence that names the rank, if there are more regions than groups, or different ones
/// for a pool. manager_config() does it for the options.
void check_regions(std::size_t rank, const GroupRegions& regions, std::span<const std::size_t> pools);
/// The regions of the pool; empty: there are none.
[[nodiscard]] std::vector<DeviceRegion> regions_of(std::size_t pool, const GroupRegions& regions,
                                                   std::span<const std::size_t> pools);
/// Number of slots for which the device has memory: the slots of other caches below first_slot, and the largest size of the pool.
[[nodiscard]] std::uint32_t device_slots(const PoolOptions& pool);
/// Divides the capacity of storage among the pools as FileStorage::capacity says. The parts add up to at most `capacity`. Throws
/// std::invalid_argument if a pool would not have room for one block; the sentence then says the capacity that is enough.
[[nodiscard]] std::vector<Bytes> storage_shares(Bytes capacity, const std::vector<PoolOptions>& pools);

}  // namespace terrace
