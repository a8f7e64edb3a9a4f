#pragma once

#include "radix/eviction/eviction_policy.hpp"

#include <cstdint>
#include <functional>
#include <memory>

namespace terrace {

/// Makes the eviction policy of one tier. `capacity` is the number of blocks that it plans for: those of the tier, and for the
/// host under exclusive copies those of the device as well. Never returns null. A policy that remembers evicted
/// blocks takes the memory for them when it is made, in proportion to `capacity`.
using PolicyFactory = std::function<std::unique_ptr<EvictionPolicy>(std::uint32_t capacity)>;

/// Makes an LruPolicy, which evicts the least recently used leaf first.
[[nodiscard]] std::unique_ptr<EvictionPolicy> lru_policy(std::uint32_t capacity);
/// Makes an AdaptivePolicy, which follows the one of four rules that has lately had the most hits.
[[nodiscard]] std::unique_ptr<EvictionPolicy> adaptive_policy(std::uint32_t capacity);

}  // namespace terrace
