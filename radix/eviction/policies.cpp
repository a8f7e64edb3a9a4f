#include "radix/eviction/policies.hpp"

#include "base/check.hpp"
#include "radix/eviction/adaptive_policy.hpp"
#include "radix/eviction/arc_policy.hpp"
#include "radix/eviction/lru2_policy.hpp"
#include "radix/eviction/lru_policy.hpp"
#include "radix/eviction/s3_fifo_policy.hpp"

namespace terrace {

std::unique_ptr<EvictionPolicy> make_policy(PolicyKind kind, std::uint32_t capacity) {
  switch (kind) {
    case PolicyKind::lru: return std::make_unique<LruPolicy>();
    case PolicyKind::lru_2: return std::make_unique<Lru2Policy>(capacity);
    case PolicyKind::arc: return std::make_unique<ArcPolicy>(capacity);
    case PolicyKind::s3_fifo: return std::make_unique<S3FifoPolicy>(capacity);
    case PolicyKind::adaptive: return std::make_unique<AdaptivePolicy>(capacity);
  }
  TERRACE_CHECK(false);
}

}  // namespace terrace
