#pragma once

#include "terrace/config.hpp"
#include "terrace/policies.hpp"

#include <array>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

namespace terrace::tools {

/// The eviction policies of the cache, and three for comparison.
enum class PolicyKind : unsigned char {
  lru,       ///< the least recently used leaf: LruPolicy, the reference
  lru_2,     ///< the leaf whose second-to-last use is longest ago: Lru2Policy
  arc,       ///< ArcPolicy
  s3_fifo,   ///< S3FifoPolicy
  adaptive,  ///< the rule, of a few, that has had most hits lately: AdaptivePolicy
};

inline constexpr std::array all_policies{PolicyKind::lru, PolicyKind::lru_2, PolicyKind::arc, PolicyKind::s3_fifo,
                                         PolicyKind::adaptive};

[[nodiscard]] constexpr std::string_view to_string(PolicyKind kind) {
  switch (kind) {
    case PolicyKind::lru: return "lru";
    case PolicyKind::lru_2: return "lru-2";
    case PolicyKind::arc: return "arc";
    case PolicyKind::s3_fifo: return "s3-fifo";
    case PolicyKind::adaptive: return "adaptive";
  }
  return "?";
}

[[nodiscard]] std::unique_ptr<EvictionPolicy> lru2_policy(std::uint32_t capacity);
[[nodiscard]] std::unique_ptr<EvictionPolicy> arc_policy(std::uint32_t capacity);
[[nodiscard]] std::unique_ptr<EvictionPolicy> s3_fifo_policy(std::uint32_t capacity);
/// Makes the policy for a tier of `capacity` blocks.
[[nodiscard]] std::unique_ptr<EvictionPolicy> make_policy(PolicyKind kind, std::uint32_t capacity);
/// Calls make_policy() with this kind: for ManagerConfig::policy and CacheSystemOptions::policy.
[[nodiscard]] PolicyFactory policy_factory(PolicyKind kind);
/// The three for comparison, for a Config whose option `policy` takes their names.
[[nodiscard]] std::vector<ConfigPolicy> comparison_policies();

}  // namespace terrace::tools
