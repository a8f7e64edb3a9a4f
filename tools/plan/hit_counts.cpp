#include "tools/plan/hit_counts.hpp"

#include "terrace/policies.hpp"
#include "tools/interrupted.hpp"
#include "tools/plan/cache_simulator.hpp"

#include <algorithm>
#include <vector>

namespace terrace::tools {
namespace {

std::uint64_t default_hits(const RequestLog& log, std::uint32_t capacity, const std::function<bool()>& go_on) {
  if (capacity == 0) return 0;
  const auto policy = adaptive_policy(capacity);
  CacheSimulator cache{*policy, capacity};
  std::vector<BlockNumber> prefix;
  std::vector<BlockKey> keys;
  std::uint64_t hits = 0;
  for (const RequestLog::Request& request : log.requests()) {
    if (!go_on()) break;
    log.read(request, prefix);
    keys.clear();
    for (const BlockNumber block : prefix) keys.push_back(log.key(block));
    if (!keys.empty()) hits += cache.serve(keys);
  }
  return hits;
}

}  // namespace

std::uint64_t HitCounts::hits(PlanPolicy policy, std::uint64_t capacity) {
  capacity = std::min<std::uint64_t>(capacity, log_.different_blocks());
  const auto known = known_.find({policy, capacity});
  if (known != known_.end()) return known->second;
  const std::uint64_t hits = compute(policy, capacity);
  // A pass that was stopped early has a wrong result.
  if (!go_on_()) throw Interrupted{};
  known_[{policy, capacity}] = hits;
  return hits;
}

std::uint64_t HitCounts::insertions(PlanPolicy policy, std::uint64_t capacity) {
  return log_.blocks_within(capacity) - hits(policy, capacity);
}

std::uint64_t HitCounts::evictions(PlanPolicy policy, std::uint64_t capacity) {
  return insertions(policy, capacity) - std::min<std::uint64_t>(capacity, log_.different_blocks());
}

std::uint64_t HitCounts::compute(PlanPolicy policy, std::uint64_t capacity) {
  switch (policy) {
    case PlanPolicy::lru:
      if (!lru_) lru_.emplace(log_, go_on_);
      return lru_->hits(capacity);
    case PlanPolicy::default_policy: return default_hits(log_, static_cast<std::uint32_t>(capacity), go_on_);
    case PlanPolicy::opt:
      if (!next_uses_) next_uses_.emplace(log_, go_on_);
      return opt_hits(log_, *next_uses_, capacity, go_on_);
  }
  return 0;
}

}  // namespace terrace::tools
