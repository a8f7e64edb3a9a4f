#pragma once

#include "terrace/config.hpp"
#include "terrace/policies.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace terrace::tools {

/// The eviction policies of the cache, and three for comparison.
enum class PolicyKind : unsigned char {
  lru,       ///< the least recently used leaf: LruPolicy, the reference
  lru_2,     ///< the leaf whose second-to-last use is longest ago: Lru2Policy
  arc,       ///< ArcPolicy
  s3_fifo,   ///< S3FifoPolicy
  adaptive,  ///< the leaf with the fewest expected hits for its time: AdaptivePolicy
};

inline constexpr std::array all_policies{PolicyKind::lru, PolicyKind::lru_2, PolicyKind::arc, PolicyKind::s3_fifo,
                                         PolicyKind::adaptive};

[[nodiscard]] std::unique_ptr<EvictionPolicy> lru2_policy(std::uint32_t capacity);
[[nodiscard]] std::unique_ptr<EvictionPolicy> arc_policy(std::uint32_t capacity);
[[nodiscard]] std::unique_ptr<EvictionPolicy> s3_fifo_policy(std::uint32_t capacity);

struct NamedPolicy {
  std::string_view name;
  std::unique_ptr<EvictionPolicy> (*make)(std::uint32_t capacity);
};
/// By PolicyKind.
inline constexpr NamedPolicy named_policies[] = {
    {"lru", lru_policy}, {"lru-2", lru2_policy}, {"arc", arc_policy}, {"s3-fifo", s3_fifo_policy}, {"adaptive", adaptive_policy}};

[[nodiscard]] constexpr const NamedPolicy& named(PolicyKind kind) { return named_policies[static_cast<std::size_t>(kind)]; }
[[nodiscard]] constexpr std::string_view to_string(PolicyKind kind) { return named(kind).name; }

/// Makes the policy for a tier of `capacity` blocks.
[[nodiscard]] inline std::unique_ptr<EvictionPolicy> make_policy(PolicyKind kind, std::uint32_t capacity) {
  return named(kind).make(capacity);
}
/// Makes policies of this kind: for ManagerConfig::policy and CacheSystemOptions::policy.
[[nodiscard]] inline PolicyFactory policy_factory(PolicyKind kind) { return named(kind).make; }
/// The three for comparison, for a Config whose option `policy` takes their names.
[[nodiscard]] inline std::vector<ConfigPolicy> comparison_policies() {
  std::vector<ConfigPolicy> policies;
  for (const PolicyKind kind : {PolicyKind::lru_2, PolicyKind::arc, PolicyKind::s3_fifo}) {
    policies.push_back({std::string{to_string(kind)}, policy_factory(kind)});
  }
  return policies;
}

}  // namespace terrace::tools
