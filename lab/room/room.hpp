#pragma once

#include "lab/room/room_model.hpp"
#include "lab/rows.hpp"

#include <cstdint>
#include <filesystem>
#include <vector>

namespace terrace::tools {

struct RoomBenchOptions {
  std::vector<std::filesystem::path> traces;
  std::uint64_t requests_max = 0;  ///< of each trace; 0: all
  std::vector<std::uint32_t> device_blocks = {3000, 10'000};
  double reserve_max = 0.15;
  std::vector<InclusionPolicy> inclusions = {InclusionPolicy::lazy_exclusive};
  EvictionPolicyName policy = EvictionPolicyName::adaptive;
  RoomModel model{};  ///< all but what is varied
};

/// Shows who waits for device slots, and for how long, with and without free slots ahead of requests: serves each trace at its
/// own clock in virtual time, by size of the device and by inclusion policy. Throws UsageError for a trace that cannot be read.
[[nodiscard]] Row bench_room(const RoomBenchOptions& options);

}  // namespace terrace::tools
