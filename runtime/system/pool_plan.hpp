#pragma once

#include "terrace/model_plan.hpp"
#include "terrace/types.hpp"

#include <cstdint>
#include <span>

namespace terrace {

/// A group, and the size of its blocks: all layers together, on one rank.
struct SizedGroup {
  GroupConfig group{};  ///< the plan chooses its pool
  Bytes block_bytes{};
  std::uint32_t layers = 1;
};

/// Divides device and host memory of one rank so that all pools become full at the same time if sequences are typical. Groups
/// with blocks of equal size and the same number of layers share a pool. Slots have no padding. So the loss is less than the
/// smallest block, plus one null block for each pool that needs one. `staging_blocks` slots of each pool are taken from `host`.
///
/// Throws std::invalid_argument if a group has no block in a typical sequence, or if not even one typical sequence fits the
/// device; the message then says how many bytes are enough.
[[nodiscard]] GroupPlan plan_pools(std::span<const SizedGroup> groups, const TypicalSequence& typical, Bytes device, Bytes host,
                                   Blocks staging_blocks = 0);

}  // namespace terrace
