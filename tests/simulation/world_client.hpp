#pragma once

#include "tests/simulation/world.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace terrace::test {

/// The largest sizes of pools.
inline constexpr std::uint32_t device_blocks_max = 24;
inline constexpr std::uint32_t host_blocks_max = 60;
/// Prefixes of different tenants differ from the first block on.
inline constexpr std::uint32_t tenants = 3;
[[nodiscard]] inline TenantId tenant_of(std::span<const std::uint32_t> names) { return TenantId{names.front() / 3 % tenants}; }

/// The smallest size of a file block. The blocks of each pool have a different size.
inline constexpr std::uint32_t least_block_bytes = 4096;

constexpr std::uint32_t block_bytes_of(std::size_t pool) { return least_block_bytes * static_cast<std::uint32_t>(pool + 1); }

/// A request, and what its engine knows about it.
struct World::Client {
  enum class State : unsigned char { pending, ready, computed, committed, failed };
  RequestId id;
  Lease lease;
  State state = State::pending;
  std::vector<std::uint32_t> names;
  std::vector<BlockKey> keys;  ///< of all full blocks, including those added by extend
  std::uint32_t held = 0;      ///< blocks that it has slots for
  std::uint32_t filled = 0;    ///< blocks whose content is written, or will be by launched compute
  std::uint32_t chunk = 0;     ///< blocks that it computes at a time
  std::uint32_t encoder_tokens = 0;
  Fence fence;
  std::uint32_t extensions_left = 0;
  std::uint64_t weights = 0;  ///< at its start
  std::uint32_t layers = 0;   ///< that it was told of
  TimePoint deadline = never;
  /// For each optional group: the numbers of hits that it could serve when the request was accepted.
  std::vector<std::vector<std::optional<bool>>> could_serve;
  Source farthest_source = all_sources.back();
  std::uint64_t replans = 0;  ///< of all requests, when this one was accepted
  /// False after the request has failed: what its compute reads then means nothing.
  std::shared_ptr<bool> valid = std::make_shared<bool>(true);
};

}  // namespace terrace::test
