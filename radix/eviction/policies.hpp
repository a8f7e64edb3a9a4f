#pragma once

#include "radix/eviction/eviction_policy.hpp"

#include <cstdint>
#include <functional>
#include <memory>

namespace terrace {

/// Makes the eviction policy of one tier, which holds `capacity` blocks. Never returns null. A policy that remembers blocks
/// beyond those takes the memory for that when it is made, in proportion to `capacity`.
using PolicyFactory = std::function<std::unique_ptr<EvictionPolicy>(std::uint32_t capacity)>;

/// LruPolicy: the least recently used leaf goes first.
[[nodiscard]] std::unique_ptr<EvictionPolicy> lru_policy(std::uint32_t capacity);
/// AdaptivePolicy: the leaf that goes first is that of whichever of a few rules has lately hit most.
[[nodiscard]] std::unique_ptr<EvictionPolicy> adaptive_policy(std::uint32_t capacity);

}  // namespace terrace
