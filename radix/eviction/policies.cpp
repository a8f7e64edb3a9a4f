#include "terrace/policies.hpp"

#include "radix/eviction/adaptive_policy.hpp"
#include "radix/eviction/lru_policy.hpp"

namespace terrace {

std::unique_ptr<EvictionPolicy> lru_policy(std::uint32_t) { return std::make_unique<LruPolicy>(); }

std::unique_ptr<EvictionPolicy> adaptive_policy(std::uint32_t capacity) { return std::make_unique<AdaptivePolicy>(capacity); }

}  // namespace terrace
