#pragma once

#include "tools/plan/request_log.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

namespace terrace::tools {

/// The eviction policies of a plan.
enum class PlanPolicy : unsigned char {
  lru,             ///< the least recently used leaf: exact for all sizes from one pass over the workload
  default_policy,  ///< the cache's default, AdaptivePolicy: its own code and the prefix tree, simulated for each size
  opt,             ///< the bound of all policies, computed for each size
};
inline constexpr std::array all_plan_policies{PlanPolicy::lru, PlanPolicy::default_policy, PlanPolicy::opt};

[[nodiscard]] constexpr std::string_view to_string(PlanPolicy policy) {
  constexpr std::array names{"lru", "default", "opt"};
  return names.at(static_cast<std::size_t>(policy));
}

/// How far a policy's hits are on the way from those of LRU to the bound; nothing if LRU reaches the bound.
[[nodiscard]] std::optional<double> share_of_way(std::uint64_t hits, std::uint64_t lru, std::uint64_t bound);

/// When the blocks of each request are used next.
class NextUses;

/// How many blocks of a workload one tier hits, by policy and size in blocks. Each result is computed when it is asked for, and
/// kept. A cache for all different blocks evicts nothing, so all larger sizes have its hits.
///
/// Errors: Interrupted, if `go_on` returned false. Threads: one.
class HitCounts {
 public:
  /// `log` must outlive this object. `go_on` is asked before each request of each pass. Once it has returned false, it must not
  /// return true again.
  HitCounts(const RequestLog& log, std::function<bool()> go_on) : log_{log}, go_on_{std::move(go_on)} {}

  [[nodiscard]] std::uint64_t hits(PlanPolicy policy, std::uint64_t capacity);
  /// How many copies a tier of this size gets: one for each block of a prompt that it does not hit.
  [[nodiscard]] std::uint64_t insertions(PlanPolicy policy, std::uint64_t capacity) {
    return log_.blocks_within(capacity) - hits(policy, capacity);
  }
  /// How many of these leave it because others need their slots. The tier is full from its first eviction on, so the number
  /// follows from the insertions, whatever the policy.
  [[nodiscard]] std::uint64_t evictions(PlanPolicy policy, std::uint64_t capacity) {
    return insertions(policy, capacity) - std::min<std::uint64_t>(capacity, log_.different_blocks());
  }

 private:
  [[nodiscard]] std::uint64_t compute(PlanPolicy policy, std::uint64_t capacity);

  const RequestLog& log_;
  const std::function<bool()> go_on_;
  std::vector<std::uint64_t> lru_;             ///< by capacity; empty: not computed yet
  std::shared_ptr<const NextUses> next_uses_;  ///< none: not computed yet
  std::map<std::pair<PlanPolicy, std::uint64_t>, std::uint64_t> known_;
};

}  // namespace terrace::tools
