// What is kept longer than its age would have it: priorities, and what tenants may keep.

#include "runtime/manager/cache_manager.hpp"

#include <algorithm>

namespace terrace {

Result<RetentionId> CacheManager::retain(std::span<const BlockKey> keys, Priority priority, TimePoint until) {
  const bool ranked = std::ranges::all_of(pools_, [](const auto& pool) { return pool->residency().ranks(); });
  if (priority > highest_priority || !ranked) return Errc::invalid_argument;
  if (status_ != CacheStatus::normal) return Errc::paused;
  const std::uint32_t hits = look_up(keys, Tier::storage);
  if (hits == 0) return Errc::not_found;
  const std::uint64_t most = config_.retained_blocks_max > 0 ? config_.retained_blocks_max : config_.device_blocks;
  if (retained_blocks_ + hits > most) return Errc::no_room;
  last_retention_ = RetentionId{last_retention_.value() + 1};
  for (std::size_t g = 0; g < rules_.size(); ++g) {
    TieredPool& pool = pool_of(g);
    if (hits_[g].found.prefix.length > 0) pool.retain(hits_[g].found.prefix, last_retention_, priority);
    for (const Found& unchained_block : hits_[g].unchained) pool.retain(unchained_block.prefix, last_retention_, priority);
  }
  retentions_.emplace(last_retention_, Retention{{keys.begin(), keys.begin() + hits}, until});
  retained_blocks_ += hits;
  return last_retention_;
}

Result<void> CacheManager::end_retention(RetentionId retention) {
  const auto found = retentions_.find(retention);
  if (found == retentions_.end()) return Errc::not_found;
  end_retention(found);
  return {};
}

void CacheManager::end_retention(std::map<RetentionId, Retention>::iterator retention) {
  const std::vector<BlockKey> keys = std::move(retention->second.keys);
  const RetentionId id = retention->first;
  retentions_.erase(retention);
  retained_blocks_ -= keys.size();
  for (std::size_t g = 0; g < rules_.size(); ++g) {
    const GroupRule& rule = rules_[g];
    if (!rule.cached()) continue;
    TieredPool& pool = pool_of(g);
    const PrefixTree& tree = pool.residency().tree();
    if (rule.chained()) {
      if (const Prefix prefix = tree.find(keys_in(g, keys, 0)); prefix.length > 0) pool.end_retention(prefix, id);
      continue;
    }
    const std::uint32_t end = rule.full_blocks(static_cast<std::uint32_t>(keys.size()));
    for (std::uint32_t block = rule.first_needed(keys.size() * unit_tokens_); block < end; ++block) {
      const BlockKey key = key_in(g, keys, block);
      if (const Prefix prefix = tree.find(std::span{&key, 1}); prefix.length > 0) pool.end_retention(prefix, id);
    }
  }
}

Result<void> CacheManager::set_quota(TenantId tenant, TenantQuota quota, PoolId pool) {
  if (!residency(pool).ranks()) return Errc::invalid_argument;
  at(pool).set_quota(tenant, quota);
  return {};
}

Result<void> CacheManager::remove_quota(TenantId tenant, PoolId pool) {
  if (!at(pool).remove_quota(tenant)) return Errc::not_found;
  return {};
}

std::optional<std::uint64_t> CacheManager::tenant_blocks(TenantId tenant, Tier tier, PoolId pool) const {
  if (!residency(pool).quotas().quota(tenant)) return std::nullopt;
  return residency(pool).tree().resident(tier, tenant);
}

}  // namespace terrace
