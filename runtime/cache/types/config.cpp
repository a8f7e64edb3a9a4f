#include "runtime/cache/types/config.hpp"

#include "radix/tree/copy.hpp"

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace terrace {
namespace {

[[noreturn]] void refuse(const std::string& text) { throw std::invalid_argument{text}; }

void validate(const PoolSizes& pool, std::size_t number, bool storage) {
  if (pool.engine_blocks > 0) {
    if (pool.device_blocks > 0 || pool.first_slot > 0 || pool.null_block) {
      refuse(fmt::format(
          "pool {}: its device slots belong to the engine, so device_blocks and first_slot must be 0, and there is no "
          "null block",
          number));
    }
    if (pool.engine_blocks >= Copy::slots_max) {
      refuse(fmt::format("pool {}: {} slots of the engine: they must be under {}", number, pool.engine_blocks, Copy::slots_max));
    }
  } else if (pool.device_blocks <= (pool.null_block ? 1U : 0U)) {
    const char* const in_addition = pool.null_block ? " in addition to the null block" : "";
    refuse(fmt::format("pool {}: the device needs at least one block{}", number, in_addition));
  }
  if (storage && pool.staging_blocks == 0) {
    refuse(fmt::format("pool {}: storage needs at least one staging block", number));
  }
  const std::uint64_t arena = std::uint64_t{pool.host_blocks} + pool.staging_blocks;
  if (std::uint64_t{pool.first_slot} + pool.device_blocks >= Copy::slots_max || arena >= Copy::slots_max) {
    refuse(fmt::format("pool {}: {} device blocks and {} host blocks: each must be under {}", number, pool.device_blocks, arena,
                       Copy::slots_max));
  }
}

void validate(const Watermarks& marks, std::string_view tier) {
  if (!(marks.low >= 0 && marks.low <= marks.high && marks.high < 1)) {
    refuse(fmt::format("watermarks of the {}: low {}, high {}: they are shares of the pool, 0 <= low <= high < 1", tier,
                       marks.low, marks.high));
  }
}

}  // namespace

EvictionPolicyName ManagerConfig::policy_name() const {
  using Function = std::unique_ptr<EvictionPolicy> (*)(std::uint32_t);
  const Function* const function = policy.target<Function>();
  if (key_order == KeyOrder::flat || (function != nullptr && *function == lru_policy)) return EvictionPolicyName::lru;
  return function != nullptr && *function == adaptive_policy ? EvictionPolicyName::adaptive : EvictionPolicyName::own;
}

namespace {

void validate_shared(const ManagerConfig& config) {
  const SharedConfig& shared = config.shared;
  constexpr std::uint32_t staging_min = 2;  // writes may use half of them
  for (std::size_t pool = 0; pool < config.pools.size(); ++pool) {
    if (config.pools[pool].staging_blocks < staging_min) {
      refuse(fmt::format("pool {}: a shared store needs at least {} staging blocks", pool, staging_min));
    }
    if (config.pools[pool].engine_blocks > 0 && (config.pools.size() > 1 || config.groups.size() > 1)) {
      refuse("a shared store of an offload cache needs one pool and one KV cache group");
    }
  }
  if (shared.writes == WritePolicy::write_back) {
    refuse("blocks are written to a shared store by the policy none, selective or write_through");
  }
  if (shared.selective_hits == 0 || shared.selective_hits > selective_hits_max) {
    refuse(
        fmt::format("selective_hits of the shared store is {}: it must be 1 to {}", shared.selective_hits, selective_hits_max));
  }
  const Duration shortest =
      std::min({shared.probe_timeout, shared.read_timeout, shared.write_timeout, shared.renew_interval, shared.rest});
  if (shortest <= Duration{} || shared.miss_lifetime < Duration{}) refuse("the times of a shared store must be above 0");
}

}  // namespace

void validate(const ManagerConfig& config) {
  if (!(config.device_reserve_max >= 0 && config.device_reserve_max < 1)) {
    refuse(fmt::format("device_reserve_max is {}: it is a share of the pool, 0 <= share < 1", config.device_reserve_max));
  }
  validate(config.device_watermarks, "device");
  validate(config.host_watermarks, "host");
  if (config.selective_hits == 0 || config.selective_hits > selective_hits_max) {
    refuse(fmt::format("selective_hits is {}: it must be 1 (store at the first hit) to {}", config.selective_hits,
                       selective_hits_max));
  }
  if (config.pools.empty()) refuse("a cache needs at least one pool");
  for (std::size_t pool = 0; pool < config.pools.size() && config.key_order == KeyOrder::flat; ++pool) {
    if (config.pools[pool].device_blocks > 0) {
      refuse(fmt::format("pool {}: flat keys are for pools whose device slots belong to the engine (engine_blocks)", pool));
    }
  }
  for (std::size_t pool = 0; pool < config.pools.size(); ++pool) validate(config.pools[pool], pool, config.storage);
  if (config.store_uncached && (config.caching || !(config.storage || config.shared.on))) {
    refuse("store_uncached needs storage or a shared store, and caching must be off");
  }
  if (config.store_uncached && config.inclusion == InclusionPolicy::inclusive) {
    refuse("store_uncached keeps no copies in the host, but inclusion policy inclusive needs them there");
  }
  const auto has_engine_blocks = [](const PoolSizes& pool) { return pool.engine_blocks > 0; };
  if (config.host_admission && config.inclusion == InclusionPolicy::inclusive) {
    refuse("host_admission leaves blocks out of the host, but inclusion policy inclusive copies all of them");
  }
  if (config.host_admission && std::ranges::any_of(config.pools, has_engine_blocks)) {
    refuse("host_admission is about blocks that the cache evicts from the device, but the device slots belong to the engine");
  }
  if (config.shared.on) validate_shared(config);
  if (config.write_back_blocks_ahead == 0) refuse("a write-back job needs at least one block under way");
  if (!(config.unit_prefill_seconds >= 0)) refuse("a prefill time must be 0 or more seconds");
  if (config.groups.empty()) {
    if (config.pools.size() > 1) refuse("several pools need several groups, but no group is given");
    if (config.hash_unit_tokens > 0) refuse("a hash unit is part of a group's block, but no group is given");
    return;
  }
  const std::uint32_t unit = hash_unit(config.groups, config.hash_unit_tokens);
  std::vector<bool> used(config.pools.size());
  std::vector<GroupRule> rules;
  for (std::size_t g = 0; g < config.groups.size(); ++g) {
    const GroupConfig& group = config.groups[g];
    if (group.pool.value() >= config.pools.size()) {
      refuse(fmt::format("group {} uses pool {}, but there are {} pools", g, group.pool.value(), config.pools.size()));
    }
    used[group.pool.value()] = true;
    const GroupRule& rule = rules.emplace_back(group, unit);
    if (group.optional && !rule.cached()) refuse(fmt::format("group {}: cross attention cannot be optional", g));
    const bool has_gaps = rule.cached() && (!rule.chained() || group.optional);
    if (has_gaps && !config.pool(group.pool).null_block) {
      refuse(fmt::format("group {} ({}{}) may have gaps: its pool {} needs a null block", g, group.optional ? "optional, " : "",
                         to_string(group.kind), group.pool.value()));
    }
  }
  for (std::size_t pool = 0; pool < used.size(); ++pool) {
    if (!used[pool]) refuse(fmt::format("pool {} is used by no group", pool));
  }
  (void)hit_alignment(rules);  // throws if the groups do not fit together
}

}  // namespace terrace
