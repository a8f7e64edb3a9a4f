#include "lab/policies/policies.hpp"

#include "base/check.hpp"

#include <string>

namespace terrace::tools {

std::unique_ptr<EvictionPolicy> make_policy(PolicyKind kind, std::uint32_t capacity) {
  switch (kind) {
    case PolicyKind::lru: return lru_policy(capacity);
    case PolicyKind::lru_2: return lru2_policy(capacity);
    case PolicyKind::arc: return arc_policy(capacity);
    case PolicyKind::s3_fifo: return s3_fifo_policy(capacity);
    case PolicyKind::adaptive: return adaptive_policy(capacity);
  }
  TERRACE_CHECK(false);
}

PolicyFactory policy_factory(PolicyKind kind) {
  return [kind](std::uint32_t capacity) { return make_policy(kind, capacity); };
}

std::vector<ConfigPolicy> comparison_policies() {
  std::vector<ConfigPolicy> policies;
  for (const PolicyKind kind : {PolicyKind::lru_2, PolicyKind::arc, PolicyKind::s3_fifo}) {
    policies.push_back({std::string{to_string(kind)}, policy_factory(kind)});
  }
  return policies;
}

}  // namespace terrace::tools
