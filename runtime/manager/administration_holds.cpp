// Calls that change the order of eviction: pins, retentions, and the quotas of tenants.

#include "runtime/manager/administration.hpp"

#include <algorithm>
#include <iterator>

namespace terrace {

Result<PinId> Administration::pin(std::span<const BlockKey> keys, TimePoint until) {
  if (state_.status != CacheStatus::normal) return Errc::paused;
  if (!state_.config.caching) return Errc::not_found;
  const std::uint32_t hits = planner_.look_up(keys, Source::storage);
  if (hits == 0) return Errc::not_found;
  // Pinned copies cannot be promised to requests. So the pin is refused if it would break a promise.
  std::vector<std::uint64_t> wanted = pinned_;
  for (std::size_t g = 0; g < groups_.size(); ++g)
    wanted[groups_.rules()[g].config().pool.value()] += planner_.hit(g).end - planner_.hit(g).first;
  planner_.pin_hits(keys, TenantId{});
  for (std::size_t pool = 0; pool < groups_.pools().size(); ++pool) {
    const std::uint64_t half = groups_.pools()[pool]->sizes().device_blocks / 2;
    const std::uint64_t most = state_.config.pinned_blocks_max > 0 ? state_.config.pinned_blocks_max : half;
    if (wanted[pool] <= most && groups_.pools()[pool]->device_slots().can_promise(0)) continue;
    planner_.unpin_hits();
    return Errc::no_room;
  }
  Pin pin;
  pin.until = until;
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    const PoolId pool = groups_.rules()[g].config().pool;
    if (planner_.hit(g).found.prefix.length > 0) pin.prefixes.push_back({pool, planner_.hit(g).found.prefix});
    for (const Found& unchained_block : planner_.hit(g).unchained) pin.prefixes.push_back({pool, unchained_block.prefix});
  }
  // Otherwise an evicting block may stay, because it is pinned when its swap-out ends, although the block before it has gone.
  for (const PoolPrefix& pinned : pin.prefixes) groups_.at(pinned.pool).cancel_evictions(pinned.prefix);
  pinned_ = wanted;
  last_pin_ = PinId{last_pin_.value() + 1};
  pins_.emplace(last_pin_, std::move(pin));
  return last_pin_;
}

Result<void> Administration::unpin(PinId pin) {
  const auto found = pins_.find(pin);
  if (found == pins_.end()) return Errc::not_found;
  end_pin(found);
  requests_.settle();
  return {};
}

void Administration::end_pin(std::map<PinId, Pin>::iterator pin) {
  const std::vector<PoolPrefix> prefixes = std::move(pin->second.prefixes);
  pins_.erase(pin);
  for (const PoolPrefix& pinned : prefixes) {
    pinned_[pinned.pool.value()] -= pinned.prefix.length;
    groups_.at(pinned.pool).unpin_incomplete(pinned.prefix);
  }
}

Result<RetentionId> Administration::retain(std::span<const BlockKey> keys, Priority priority, TimePoint until) {
  const bool ranked = std::ranges::all_of(groups_.pools(), [](const auto& pool) { return pool->residency().ranks(); });
  if (priority > highest_priority || !ranked) return Errc::invalid_argument;
  if (state_.status != CacheStatus::normal) return Errc::paused;
  const std::uint32_t hits = planner_.look_up(keys, Source::storage);
  if (hits == 0) return Errc::not_found;
  const std::uint64_t most =
      state_.config.retained_units_max > 0 ? state_.config.retained_units_max : groups_.pools()[0]->sizes().device_blocks;
  if (retained_blocks_ + hits > most) return Errc::no_room;
  last_retention_ = RetentionId{last_retention_.value() + 1};
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    TieredPool& pool = groups_.pool_of(g);
    if (planner_.hit(g).found.prefix.length > 0) pool.retain(planner_.hit(g).found.prefix, last_retention_, priority);
    for (const Found& unchained_block : planner_.hit(g).unchained) pool.retain(unchained_block.prefix, last_retention_, priority);
  }
  retentions_.emplace(last_retention_, Retention{{keys.begin(), keys.begin() + hits}, until});
  retained_blocks_ += hits;
  return last_retention_;
}

Result<void> Administration::end_retention(RetentionId retention) {
  const auto found = retentions_.find(retention);
  if (found == retentions_.end()) return Errc::not_found;
  end_retention(found);
  return {};
}

void Administration::end_retention(std::map<RetentionId, Retention>::iterator retention) {
  const std::vector<BlockKey> keys = std::move(retention->second.keys);
  const RetentionId id = retention->first;
  retentions_.erase(retention);
  retained_blocks_ -= keys.size();
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    const GroupRule& rule = groups_.rules()[g];
    if (!rule.cached()) continue;
    TieredPool& pool = groups_.pool_of(g);
    const PrefixTree& tree = pool.residency().tree();
    if (rule.chained()) {
      if (const Prefix prefix = tree.find(groups_.keys_in(g, keys, 0)); prefix.length > 0) pool.end_retention(prefix, id);
      continue;
    }
    const std::uint32_t end = rule.full_blocks(static_cast<std::uint32_t>(keys.size()));
    for (std::uint32_t block = rule.first_needed(keys.size() * groups_.unit_tokens()); block < end; ++block) {
      const BlockKey key = groups_.key_in(g, keys, block);
      if (const Prefix prefix = tree.find(std::span{&key, 1}); prefix.length > 0) pool.end_retention(prefix, id);
    }
  }
}

Result<void> Administration::set_quota(TenantId tenant, TenantQuota quota, PoolId pool) {
  if (!groups_.has(pool) || !groups_.at(pool).residency().ranks()) return Errc::invalid_argument;
  groups_.at(pool).set_quota(tenant, quota);
  return {};
}

Result<void> Administration::remove_quota(TenantId tenant, PoolId pool) {
  if (!groups_.has(pool)) return Errc::invalid_argument;
  if (!groups_.at(pool).remove_quota(tenant)) return Errc::not_found;
  return {};
}

std::optional<std::uint64_t> Administration::tenant_blocks(TenantId tenant, Tier tier, PoolId pool) const {
  if (!groups_.has(pool) || !groups_.at(pool).residency().quotas().quota(tenant)) return std::nullopt;
  return groups_.at(pool).residency().tree().resident(tier, tenant);
}

void Administration::on_time() {
  use_clock_.note(state_.now, state_.last_stamp);
  for (auto pin = pins_.begin(); pin != pins_.end();) {
    const auto next = std::next(pin);
    if (pin->second.until <= state_.now) end_pin(pin);
    pin = next;
  }
  for (auto retention = retentions_.begin(); retention != retentions_.end();) {
    const auto next = std::next(retention);
    if (retention->second.until <= state_.now) end_retention(retention);
    retention = next;
  }
}

TimePoint Administration::next_deadline() const {
  TimePoint next = never;
  for (const auto& [id, pin] : pins_) next = std::min(next, pin.until);
  for (const auto& [id, retention] : retentions_) next = std::min(next, retention.until);
  return next;
}

}  // namespace terrace
