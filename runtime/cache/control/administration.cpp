// Calls for the cache as a whole: clear, drop, evict, resize, write-back jobs, pins, retentions, and quotas.

#include "runtime/cache/control/administration.hpp"

#include "base/failure.hpp"

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <utility>

namespace terrace {

Administration::Administration(ManagerState& state, HitPlanner& planner, Requests& requests, WriteBackJobs& write_backs,
                               Prefetches& prefetches)
    : state_{state},
      groups_{state.groups},
      planner_{planner},
      requests_{requests},
      write_backs_{write_backs},
      prefetches_{prefetches} {
  pinned_.resize(groups_.pools().size());
  if (state_.config.policy_name() == EvictionPolicyName::own) own_policy_ = state_.config.policy;
}

CacheStatus Administration::status() const {
  if (state_.status != CacheStatus::clearing) return state_.status;
  return all_gone() && !erasing() ? CacheStatus::cleared : CacheStatus::clearing;
}

void Administration::clear(const ClearOptions& options, std::span<const std::vector<BlockKey>> stored) {
  state_.epoch = Epoch{state_.epoch.value() + 1};
  requests_.fail_pending(Errc::cleared);
  prefetches_.cancel_all();
  while (!pins_.empty()) end_pin(pins_.begin());
  retentions_.clear();  // the tree ends the retentions of hidden blocks itself
  retained_blocks_ = 0;
  for (std::size_t pool = 0; pool < groups_.pools().size(); ++pool) {
    groups_.pools()[pool]->clear(options.keep_storage,
                                 pool < stored.size() ? std::span{stored[pool]} : std::span<const BlockKey>{});
  }
  if (state_.config.shared.on && !options.keep_shared) {
    // It is not known whether the blocks in the shared store are for the weights that are used from now on.
    state_.shared_off = true;
    state_.set_shared_usable(false);
  }
  if (state_.misses.on()) state_.misses.cleared();
  if (state_.kv_events.on()) state_.kv_events.add({.kind = KvEvent::Kind::cleared});
  if (options.wait) state_.status = CacheStatus::clearing;
}

Result<void> Administration::resume() {
  if (state_.status == CacheStatus::clearing && !all_gone()) return Errc::paused;
  state_.status = CacheStatus::normal;
  return {};
}

Result<void> Administration::change(const CacheSettings& settings) {
  ManagerConfig wanted = state_.config;
  static_cast<CacheSettings&>(wanted) = settings;
  if (wanted.write_policy != WritePolicy::none && !wanted.storage) {
    return failure<Errc::invalid_argument, "a write policy other than none needs storage">;
  }
  const bool new_policy = settings.policy != wanted.policy_name();
  std::vector<Residency::Policies> policies;  // by pool
  try {
    validate(wanted);
    if (new_policy) {
      wanted.policy = policy_named(settings.policy);
      for (const auto& pool : groups_.pools()) policies.push_back(pool->residency().make_policies(wanted.policy));
    }
  } catch (const std::invalid_argument&) {
    if (!new_policy) return Errc::invalid_argument;
    return failure<Errc::invalid_argument, "there is no such eviction policy here: `own` needs a policy of the engine, and "
                                           "blocks without order have lru">;
  } catch (const std::bad_alloc&) {
    return Errc::no_room;
  }
  for (std::size_t pool = 0; pool < policies.size(); ++pool) {
    const bool must_rank = !retentions_.empty() || groups_.pools()[pool]->residency().quotas().any();
    if (must_rank && !policies[pool].rank()) return Errc::in_use;
  }
  static_cast<CacheSettings&>(state_.config) = settings;
  state_.config.policy = std::move(wanted.policy);
  state_.write_budget.limit(settings.daily_write_bytes);
  for (const auto& pool : groups_.pools()) pool->on_settings();
  for (std::size_t pool = 0; pool < policies.size(); ++pool) groups_.pools()[pool]->set_policies(std::move(policies[pool]));
  return {};
}

PolicyFactory Administration::policy_named(EvictionPolicyName name) const {
  const bool flat = state_.config.key_order == KeyOrder::flat;
  if (name == EvictionPolicyName::own && own_policy_) return own_policy_;
  if (name == EvictionPolicyName::lru) return lru_policy;
  if (name == EvictionPolicyName::adaptive && !flat) return adaptive_policy;
  throw std::invalid_argument{"there is no such eviction policy here"};
}

Result<std::uint32_t> Administration::drop(std::span<const BlockKey> keys) {
  if (keys.empty()) return Errc::not_found;
  std::vector<PoolPrefix> prefixes;
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    const GroupRule& rule = groups_.rules()[g];
    const PoolId pool = rule.config().pool;
    const std::uint32_t blocks = rule.full_blocks(static_cast<std::uint32_t>(keys.size()));
    for (const Prefix& prefix : groups_.find(g, keys)) {
      if (rule.chained() && prefix.length < blocks && !rule.config().optional) return Errc::not_found;
      if (prefix.length == 0) continue;
      if (!groups_.at(pool).residency().tree().pinned(prefix.last())) prefixes.push_back({pool, prefix});
      else if (rule.chained()) return Errc::in_use;
    }
  }
  if (prefixes.empty()) return Errc::not_found;
  std::uint32_t freed = 0;
  for (const PoolPrefix& prefix : prefixes) freed += groups_.at(prefix.pool).drop(prefix.prefix);
  return freed;
}

Result<EvictedBlocks> Administration::evict(std::span<const SlotId> slots, PoolId pool) {
  if (!groups_.has(pool)) return no_such_pool;
  const std::uint32_t end = groups_.at(pool).residency().slots_of(Tier::device).capacity();
  if (std::ranges::any_of(slots, [&](SlotId slot) { return slot.value() >= end; })) {
    return failure<Errc::invalid_argument, "`slots` names a slot that the pool does not have">;
  }
  return groups_.at(pool).evict(slots);
}

std::optional<BlockPlace> Administration::find_block(const BlockKey& key, GroupId group) const {
  if (group.value() >= groups_.size()) return std::nullopt;
  return groups_.pool_of(group.value()).find_block(key_in_group(key, group));
}

std::vector<BlockPlace> Administration::find_blocks(std::span<const BlockKey> keys, GroupId group) const {
  const std::size_t g = group.value();
  if (g >= groups_.size() || !groups_.rules()[g].cached()) return {};
  const TieredPool& pool = groups_.pool_of(g);
  std::vector<BlockPlace> places(groups_.rules()[g].full_blocks(static_cast<std::uint32_t>(keys.size())));
  const std::vector<Prefix> found = groups_.find(g, keys);
  if (groups_.rules()[g].chained()) {
    const Prefix prefix = found.front();
    for (std::uint32_t depth = 0; depth < prefix.length; ++depth) places[depth] = pool.place_of({prefix.node, depth});
  } else {
    for (std::size_t i = 0; i < places.size(); ++i) {
      if (found[i].length > 0) places[i] = pool.place_of(found[i].last());
    }
  }
  return places;
}

Result<void> Administration::make_room(Tier tier, std::uint32_t blocks, PoolId pool) {
  if (!groups_.has(pool)) return no_such_pool;
  if (tier == Tier::storage) return failure<Errc::invalid_argument, "storage makes room by itself">;
  const PoolSizes& sizes = groups_.at(pool).sizes();
  const std::uint32_t there = tier == Tier::device ? sizes.device_blocks : sizes.host_blocks;
  if (blocks > there) return failure<Errc::never_fits, "the tier has fewer slots">;
  groups_.at(pool).make_room(tier, blocks);
  return {};
}

Result<void> Administration::resize(Tier tier, std::uint32_t blocks, PoolId pool, std::span<const SlotSpan> closing) {
  if (!groups_.has(pool)) return no_such_pool;
  const Result<void> resized = groups_.at(pool).resize(tier, blocks, closing);
  if (!resized) return resized;
  (tier == Tier::device ? state_.config.pool(pool).device_blocks : state_.config.pool(pool).host_blocks) = blocks;
  return {};
}

Result<WriteBackId> Administration::start_write_back(const WriteBackOrder& order) {
  using Scope = WriteBackOrder::Scope;
  const bool shared = order.target == WriteBackOrder::Target::shared;
  if (shared && !state_.config.shared.on) return failure<Errc::invalid_argument, "there is no shared store to write to">;
  if (!shared && !state_.config.storage) return failure<Errc::invalid_argument, "there is no storage to write to">;
  if (state_.status != CacheStatus::normal) return Errc::paused;
  switch (order.scope) {
    case Scope::request: {
      const Result<std::vector<PoolPrefix>> prefixes = requests_.pinned_prefixes(order.request);
      return prefixes ? write_backs_.start(order, *prefixes, {}) : Result<WriteBackId>{prefixes.error()};
    }
    case Scope::prefix: return write_back_prefix(order);
    case Scope::tenant:
    case Scope::all: return write_backs_.start(order, std::numeric_limits<std::uint64_t>::max());
    case Scope::idle: return write_backs_.start(order, use_clock_.stamp_at(state_.now - order.unused_for));
  }
  return Errc::invalid_argument;
}

Result<WriteBackId> Administration::write_back_prefix(const WriteBackOrder& order) {
  std::vector<PoolPrefix> prefixes;
  std::vector<BlockKey> gone;
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    const GroupRule& rule = groups_.rules()[g];
    const std::uint32_t blocks = rule.full_blocks(static_cast<std::uint32_t>(order.keys.size()));
    for (const Prefix& prefix : groups_.find(g, order.keys)) {
      if (prefix.length > 0) prefixes.push_back({rule.config().pool, prefix});
      // Groups of other kinds keep only some of their blocks. A missing block of such a group is not reported as gone.
      if (!rule.chained()) continue;
      for (std::uint32_t block = prefix.length; block < blocks; ++block) gone.push_back(groups_.key_in(g, order.keys, block));
    }
  }
  if (prefixes.empty()) return failure<Errc::not_found, "nothing of the prefix is cached">;
  return write_backs_.start(order, prefixes, gone);
}

Durability Administration::durability() const {
  Durability all;
  for (const auto& pool : groups_.pools()) {
    const Durability of_pool = pool->durability();
    all.durable_blocks += of_pool.durable_blocks;
    all.lost_blocks += of_pool.lost_blocks;
    all.durable += of_pool.durable;
    all.lost += of_pool.lost;
  }
  return all;
}

// ---- what changes the order of eviction: pins, retentions, and the quotas of tenants ----------------------------------------

Result<PinId> Administration::pin(std::span<const BlockKey> keys, TimePoint until) {
  if (state_.status != CacheStatus::normal) return Errc::paused;
  if (!state_.config.caching) return Errc::not_found;
  planner_.find_hit(keys, Source::storage, hit_);
  if (hit_.units == 0) return Errc::not_found;
  // Pinned copies cannot be promised to requests. So the pin is refused if it would break a promise.
  std::vector<std::uint64_t> wanted = pinned_;
  for (std::size_t g = 0; g < groups_.size(); ++g)
    wanted[groups_.rules()[g].config().pool.value()] += hit_.groups[g].end - hit_.groups[g].first;
  planner_.pin_hit(hit_, keys, TenantId{});
  Pin pin;
  pin.until = until;
  pin.tenant = tenant_of(hit_);
  for (std::size_t pool = 0; pool < groups_.pools().size(); ++pool) {
    const PoolSizes& sizes = groups_.pools()[pool]->sizes();
    const std::uint64_t most =
        state_.config.pinned_blocks_max > 0 ? state_.config.pinned_blocks_max : sizes.first_tier_blocks() / 2;
    const auto quota = groups_.pools()[pool]->residency().quotas().quota(pin.tenant);
    const Tier first = sizes.engine_blocks > 0 ? Tier::host : Tier::device;
    const bool in_quota = !quota || pinned_of(pin.tenant, pool) + wanted[pool] - pinned_[pool] <= quota->in(first).value();
    const bool may = wanted[pool] <= most && in_quota;
    if (may && groups_.pools()[pool]->device_slots().can_promise(0)) continue;
    planner_.unpin_hit(hit_);
    return failure<Errc::no_room, "too many blocks are pinned (pinned_blocks_max, or the quota of the tenant), or requests were "
                                  "promised them">;
  }
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    const PoolId pool = groups_.rules()[g].config().pool;
    if (hit_.groups[g].found.prefix.length > 0) pin.prefixes.push_back({pool, hit_.groups[g].found.prefix});
    for (const Found& unchained_block : hit_.groups[g].unchained) pin.prefixes.push_back({pool, unchained_block.prefix});
  }
  // Without this, a block that is being evicted could keep its copy, because it is pinned when its swap-out ends, although the
  // block before it has lost its copy.
  for (const PoolPrefix& pinned : pin.prefixes) groups_.at(pinned.pool).cancel_evictions(pinned.prefix);
  pinned_ = wanted;
  last_pin_ = PinId{last_pin_.value() + 1};
  pins_.emplace(last_pin_, std::move(pin));
  return last_pin_;
}

/// The tenant whose blocks the hit has.
TenantId Administration::tenant_of(const Hit& hit) const {
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    const PrefixTree& tree = groups_.pool_of(g).residency().tree();
    if (hit.groups[g].found.prefix.length > 0) return tree.tenant(hit.groups[g].found.prefix.last());
    if (!hit.groups[g].unchained.empty()) return tree.tenant(hit.groups[g].unchained.front().prefix.last());
  }
  return {};
}

/// Number of blocks of the pool in the pins of the tenant.
std::uint64_t Administration::pinned_of(TenantId tenant, std::size_t pool) const {
  std::uint64_t blocks = 0;
  for (const auto& [id, pin] : pins_) {
    if (pin.tenant != tenant) continue;
    for (const PoolPrefix& pinned : pin.prefixes) blocks += pinned.pool.value() == pool ? pinned.prefix.length : 0;
  }
  return blocks;
}

Result<void> Administration::unpin(PinId pin) {
  const auto found = pins_.find(pin);
  if (found == pins_.end()) return failure<Errc::not_found, "there is no such pin, or it has ended at its time">;
  end_pin(found);
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

Result<void> Administration::expect_use(std::span<const BlockKey> keys, Duration in) {
  if (state_.status != CacheStatus::normal) return Errc::paused;
  planner_.find_hit(keys, Source::storage, hit_);
  if (hit_.units == 0) return Errc::not_found;
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    const Prefix prefix = hit_.groups[g].found.prefix;
    if (prefix.length > 0) state_.expect(groups_.pool_of(g), prefix, in);
  }
  return {};
}

Result<RetentionId> Administration::retain(std::span<const BlockKey> keys, Priority priority, TimePoint until) {
  const bool ranked = std::ranges::all_of(groups_.pools(), [](const auto& pool) { return pool->residency().ranks(); });
  if (priority > highest_priority) return failure<Errc::invalid_argument, "the priority is above highest_priority">;
  if (!ranked) return failure<Errc::invalid_argument, "the eviction policy knows no priorities; lru and adaptive do">;
  if (state_.status != CacheStatus::normal) return Errc::paused;
  planner_.find_hit(keys, Source::storage, hit_);
  if (hit_.units == 0) return Errc::not_found;
  const std::uint64_t most = state_.config.retained_units_max > 0 ? state_.config.retained_units_max
                                                                  : groups_.pools()[0]->sizes().first_tier_blocks() / 2;
  if (retained_blocks_ + hit_.units > most) {
    return failure<Errc::no_room, "retentions name too many blocks (retained_units_max): end some first">;
  }
  last_retention_ = RetentionId{last_retention_.value() + 1};
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    TieredPool& pool = groups_.pool_of(g);
    if (hit_.groups[g].found.prefix.length > 0) pool.retain(hit_.groups[g].found.prefix, last_retention_, priority);
    for (const Found& unchained_block : hit_.groups[g].unchained) pool.retain(unchained_block.prefix, last_retention_, priority);
  }
  retentions_.emplace(last_retention_, Retention{{keys.begin(), keys.begin() + hit_.units}, until});
  retained_blocks_ += hit_.units;
  return last_retention_;
}

Result<void> Administration::end_retention(RetentionId retention) {
  const auto found = retentions_.find(retention);
  if (found == retentions_.end()) return failure<Errc::not_found, "there is no such retention, or it has ended at its time">;
  end_retention(found);
  return {};
}

void Administration::end_retention(std::map<RetentionId, Retention>::iterator retention) {
  const std::vector<BlockKey> keys = std::move(retention->second.keys);
  const RetentionId id = retention->first;
  retentions_.erase(retention);
  retained_blocks_ -= keys.size();
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    const std::uint32_t first = groups_.rules()[g].first_needed(keys.size() * groups_.unit_tokens());
    for (const Prefix& prefix : groups_.find(g, keys, first)) {
      if (prefix.length > 0) groups_.pool_of(g).end_retention(prefix, id);
    }
  }
}

Result<void> Administration::set_quota(TenantId tenant, TenantQuota quota, PoolId pool) {
  if (!groups_.has(pool)) return no_such_pool;
  if (!groups_.at(pool).residency().ranks()) {
    return failure<Errc::invalid_argument, "the eviction policy knows no tenants; lru and adaptive do">;
  }
  groups_.at(pool).set_quota(tenant, quota);
  return {};
}

Result<void> Administration::remove_quota(TenantId tenant, PoolId pool) {
  if (!groups_.has(pool)) return no_such_pool;
  if (!groups_.at(pool).remove_quota(tenant)) return failure<Errc::not_found, "the tenant has no quota">;
  return {};
}

std::optional<std::uint64_t> Administration::tenant_blocks(TenantId tenant, Tier tier, PoolId pool) const {
  if (!groups_.has(pool) || !groups_.at(pool).residency().quotas().quota(tenant)) return std::nullopt;
  return groups_.at(pool).residency().tree().resident(tier, tenant);
}

void Administration::on_time() {
  use_clock_.note(state_.now, state_.last_stamp);
  for (auto next = pins_.begin(); next != pins_.end();) {
    if (const auto pin = next++; pin->second.until <= state_.now) end_pin(pin);
  }
  for (auto next = retentions_.begin(); next != retentions_.end();) {
    if (const auto retention = next++; retention->second.until <= state_.now) end_retention(retention);
  }
}

TimePoint Administration::next_deadline() const {
  TimePoint next = never;
  for (const auto& [id, pin] : pins_) next = std::min(next, pin.until);
  for (const auto& [id, retention] : retentions_) next = std::min(next, retention.until);
  return next;
}

}  // namespace terrace
