#pragma once

#include "base/log.hpp"
#include "runtime/system/system_config.hpp"
#include "terrace/device.hpp"
#include "terrace/options.hpp"
#include "terrace/result.hpp"
#include "terrace/system.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace terrace {

/// The places of the engine's memory on each rank now. They change with relocate().
///
/// Threads: the thread of the cache.
class EngineMemory {
 public:
  /// manager_config() has checked the options.
  explicit EngineMemory(const CacheSystemOptions& options);

  /// The regions of the pool on the rank; empty: the device has allocated its memory itself.
  [[nodiscard]] const std::vector<DeviceRegion>& regions(std::size_t rank, std::size_t pool) const {
    return places_.at(rank).at(pool);
  }
  /// The same as CacheSystem::relocate(). The cache must not be using the memory.
  [[nodiscard]] Result<void> relocate(std::span<const RankRegions> ranks, const RankDevices& devices, Log& log);

 private:
  /// The order to one rank.
  struct Move {
    std::uint32_t rank = 0;
    std::vector<RelocatedPool> to;
    std::vector<RelocatedPool> back;  ///< the places of these pools now
  };

  [[nodiscard]] std::vector<Move> moves(std::span<const RankRegions> ranks) const;

  std::vector<std::size_t> pools_of_groups_;
  std::vector<std::vector<std::vector<DeviceRegion>>> places_;  ///< by rank and PoolId
};

}  // namespace terrace
