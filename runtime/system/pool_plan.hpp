#pragma once

#include "base/bytes.hpp"
#include "radix/groups/groups.hpp"
#include "runtime/types/config.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace terrace {

/// A group and how large its blocks are: all its layers together, on one rank.
struct SizedGroup {
  GroupConfig group;  ///< its pool is chosen by the plan
  Bytes block_bytes{};
};

/// What a sequence is like, typically.
struct TypicalSequence {
  std::uint32_t tokens = 0;        ///< prompt and output
  std::uint32_t chunk_tokens = 0;  ///< computed in one step, at most; what a window's group holds beside its window
  std::uint32_t encoder_tokens = 0;
};

/// How memory is divided among the groups of a model.
struct PoolPlan {
  std::vector<GroupConfig> groups;  ///< with their pools, for ManagerConfig::groups
  std::vector<PoolSizes> pools;     ///< for ManagerConfig, the first as its own sizes
  std::vector<Bytes> block_bytes;   ///< by pool
  Bytes device_used{};              ///< null blocks included
  Bytes host_used{};
  std::uint32_t sequences = 0;  ///< typical ones that fit the device side by side
};

/// Divides device and host memory so that all pools are full at the same time, if sequences are typical. Groups with blocks of
/// equal size share a pool. No byte of a slot is padding, so that what is lost is less than the smallest block, and a null
/// block for each pool that needs one. `staging_blocks` of each pool come out of the host's bytes.
///
/// Throws std::invalid_argument where a group has no block in a typical sequence, and, with the number of bytes that would do,
/// where not even one typical sequence fits the device.
[[nodiscard]] PoolPlan plan_pools(std::span<const SizedGroup> groups, const TypicalSequence& typical, Bytes device, Bytes host,
                                  std::uint32_t staging_blocks = 0);

}  // namespace terrace
