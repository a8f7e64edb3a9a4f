#pragma once

#include "radix/groups/groups.hpp"
#include "runtime/cache/types/config.hpp"
#include "terrace/model_plan.hpp"
#include "terrace/types.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace terrace {

/// A group, and the size of its blocks: all layers together, on one rank.
struct SizedGroup {
  GroupConfig group{};  ///< the plan chooses its pool
  Bytes block_bytes{};
  std::uint32_t layers = 1;
};

/// The division of memory among the groups of a model.
struct PoolPlan {
  std::vector<GroupConfig> groups;    ///< for ManagerConfig::groups, with pools
  std::vector<PoolSizes> pools;       ///< for ManagerConfig
  std::vector<Bytes> block_bytes;     ///< by pool
  std::vector<std::uint32_t> layers;  ///< number of layers of a block, by pool
  Bytes device_used{};                ///< including null blocks
  Bytes host_used{};
  std::uint32_t sequences = 0;  ///< typical sequences that fit the device at the same time
};

/// Divides device and host memory so that all pools become full at the same time if sequences are typical. Groups with blocks of
/// equal size and the same number of layers share a pool. Slots have no padding. So the loss is less than the smallest block,
/// plus one null block for each pool that needs one. `staging_blocks` slots of each pool are taken from `host`.
///
/// Throws std::invalid_argument if a group has no block in a typical sequence, or if not even one typical sequence fits the
/// device; the message then says how many bytes are enough.
[[nodiscard]] PoolPlan plan_pools(std::span<const SizedGroup> groups, const TypicalSequence& typical, Bytes device, Bytes host,
                                  std::uint32_t staging_blocks = 0);

}  // namespace terrace
