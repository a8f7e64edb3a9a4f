#include "runtime/cache/control/model_groups.hpp"

#include "runtime/cache/control/manager_state.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

namespace terrace {

ModelGroups::ModelGroups(ManagerState& state) {
  const ManagerConfig& config = state.config;
  std::vector<GroupConfig> groups = config.groups;
  if (groups.empty()) groups.emplace_back();
  unit_tokens_ = hash_unit(groups, config.hash_unit_tokens);
  for (const GroupConfig& group : groups) rules_.emplace_back(group, unit_tokens_);
  alignment_ = hit_alignment(rules_);
  single_ = rules_.size() == 1 && rules_.front().chained() && rules_.front().units_per_block() == 1;
  shared_writes_.budget.limit(config.shared.daily_write_bytes);
  for (std::size_t number = 0; number < config.pools.size(); ++number) {
    const PoolId id{static_cast<std::uint16_t>(number)};
    owned_pools_.push_back(std::make_unique<TieredPool>(id, config, state.stats, state.shared, state.kv_events,
                                                        state.write_budget, state.offload_totals, shared_writes_, state.link,
                                                        state.now));
    pools_.push_back(owned_pools_.back().get());
  }
  choose_owners(config.caching);
}

void ModelGroups::choose_owners(bool caching) {
  const auto owns = std::ranges::find_if(rules_, [](const GroupRule& rule) { return rule.chained() && !rule.config().optional; });
  const auto stands_alone = [](const GroupRule& rule) { return rule.cached() && !rule.chained(); };
  if (!caching || owns == rules_.end() || std::ranges::none_of(rules_, stands_alone)) return;
  owners_ = static_cast<std::size_t>(owns - rules_.begin());
  // A hit needs blocks of these groups wherever it ends. One that ends with a chunk of local attention needs none.
  const auto is_needed = [&](const GroupRule& rule) {
    const bool always = rule.config().kind == GroupKind::recurrent || rule.config().kind == GroupKind::sliding_window;
    return stands_alone(rule) && always && rule.config().span_tokens != 1 && !rule.config().optional;
  };
  if (std::ranges::any_of(rules_, is_needed)) pool_of(*owners_).need_companions(id_of(*owners_));
}

void ModelGroups::refuse(PoolId pool) const {
  throw std::invalid_argument{fmt::format("there is no pool {}: the number of pools is {}", pool.value(), pools_.size())};
}

std::span<const BlockKey> ModelGroups::keys_in(std::size_t group, std::span<const BlockKey> keys, std::uint32_t from) const {
  const GroupRule& rule = rules_[group];
  if (group == 0 && rule.units_per_block() == 1) return keys.subspan(from);
  group_keys_.clear();
  const std::uint32_t end = rule.full_blocks(static_cast<std::uint32_t>(keys.size()));
  for (std::uint32_t block = from; block < end; ++block) group_keys_.push_back(key_in(group, keys, block));
  return group_keys_;
}

BlockKey ModelGroups::key_in(std::size_t group, std::span<const BlockKey> keys, std::uint32_t block) const {
  return key_in_group(keys[std::size_t{block + 1} * rules_[group].units_per_block() - 1], id_of(group));
}

std::vector<Prefix> ModelGroups::find(std::size_t group, std::span<const BlockKey> keys, std::uint32_t first) const {
  const GroupRule& rule = rules_[group];
  const PrefixTree& tree = pool_of(group).residency().tree();
  if (!rule.cached()) return {};
  if (rule.chained()) return {tree.find(keys_in(group, keys, 0))};
  std::vector<Prefix> found;
  for (const BlockKey& key : keys_in(group, keys, first)) found.push_back(tree.find({&key, 1}));
  return found;
}

}  // namespace terrace
