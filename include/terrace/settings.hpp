#pragma once

#include "terrace/device.hpp"
#include "terrace/policies.hpp"
#include "terrace/types.hpp"

#include <cstdint>

/// The settings of a live cache.

namespace terrace {

/// The options of a cache that can change while it serves (Cache::change). They mean the same as the members of
/// CacheSystemOptions with these names.
struct CacheSettings {
  /// The eviction policy of device and host. A new one begins without knowledge of earlier uses, except for their order.
  EvictionPolicyName policy = EvictionPolicyName::adaptive;
  WritePolicy write_policy = WritePolicy::none;
  std::uint32_t selective_hits = 1;
  LoadPolicy loads = LoadPolicy::measured;
  double device_reserve_max = 0;
  Watermarks device_watermarks{};
  Watermarks host_watermarks{};
  Bytes daily_write_bytes{};
  LaneRates lane_rates{};
};

}  // namespace terrace
