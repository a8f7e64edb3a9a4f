// Calls for the cache as a whole: clear, drop, evict, resize, and write-back jobs.

#include "runtime/manager/administration.hpp"

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

/// Nothing of before a clear is left on the device and the host.
bool Administration::all_gone() const {
  return std::ranges::none_of(groups_.pools(), [](const auto& pool) { return pool->any_hidden(); });
}

bool Administration::erasing() const {
  return std::ranges::any_of(groups_.pools(), [](const auto& pool) { return pool->erasing(); });
}

void Administration::clear(const ClearOptions& options, std::span<const std::vector<BlockKey>> stored) {
  state_.epoch = Epoch{state_.epoch.value() + 1};
  requests_.fail_pending(Errc::cleared);
  prefetches_.cancel_all();
  while (!pins_.empty()) end_pin(pins_.begin());
  retentions_.clear();  // the tree ends them with their blocks
  retained_blocks_ = 0;
  for (std::size_t pool = 0; pool < groups_.pools().size(); ++pool) {
    groups_.pools()[pool]->clear(options.keep_storage,
                                 pool < stored.size() ? std::span{stored[pool]} : std::span<const BlockKey>{});
  }
  if (state_.config.shared.on && !options.keep_shared) turn_shared_off();
  if (state_.kv_events.on()) {
    KvEvent event;
    event.kind = KvEvent::Kind::cleared;
    state_.kv_events.add(event);
  }
  if (options.wait) state_.status = CacheStatus::clearing;
  requests_.settle();
}

/// It is not known whether the blocks in the shared store are for the weights of now on.
void Administration::turn_shared_off() {
  state_.shared_off = true;
  state_.shared_usable = false;
  for (const auto& pool : groups_.pools()) pool->set_shared_usable(false);
}

Result<void> Administration::resume() {
  if (state_.status == CacheStatus::clearing && !all_gone()) return Errc::paused;
  state_.status = CacheStatus::normal;
  return {};
}

Result<void> Administration::change(const CacheSettings& settings) {
  ManagerConfig wanted = state_.config;
  wanted.write_policy = settings.write_policy;
  wanted.selective_hits = settings.selective_hits;
  wanted.loads = settings.loads;
  wanted.device_reserve_max = settings.device_reserve_max;
  wanted.device_watermarks = settings.device_watermarks;
  wanted.host_watermarks = settings.host_watermarks;
  wanted.daily_write_bytes = settings.daily_write_bytes;
  if (wanted.write_policy != WritePolicy::none && !wanted.storage) return Errc::invalid_argument;
  const bool new_policy = settings.policy != wanted.policy_name();
  std::vector<Residency::Policies> policies;  // by pool
  try {
    validate(wanted);
    if (new_policy) {
      wanted.policy = policy_named(settings.policy);
      for (const auto& pool : groups_.pools()) policies.push_back(pool->residency().make_policies(wanted.policy));
    }
  } catch (const std::invalid_argument&) {
    return Errc::invalid_argument;
  } catch (const std::bad_alloc&) {
    return Errc::no_room;
  }
  for (std::size_t pool = 0; pool < policies.size(); ++pool) {
    const bool must_rank = !retentions_.empty() || groups_.pools()[pool]->residency().quotas().any();
    if (must_rank && !policies[pool].rank()) return Errc::in_use;
  }
  state_.config = std::move(wanted);
  state_.write_budget.limit(settings.daily_write_bytes);
  for (const auto& pool : groups_.pools()) pool->change(state_.config);
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
    if (!rule.cached()) continue;
    const PoolId pool = rule.config().pool;
    const PrefixTree& tree = groups_.at(pool).residency().tree();
    const std::uint32_t blocks = rule.full_blocks(static_cast<std::uint32_t>(keys.size()));
    if (rule.chained()) {
      const Prefix prefix = tree.find(groups_.keys_in(g, keys, 0));
      if (prefix.length < blocks && !rule.config().optional) return Errc::not_found;
      if (prefix.length == 0) continue;
      if (tree.pinned(prefix.last())) return Errc::in_use;
      prefixes.push_back({pool, prefix});
      continue;
    }
    for (std::uint32_t block = 0; block < blocks; ++block) {
      const BlockKey key = groups_.key_in(g, keys, block);
      const Prefix prefix = tree.find(std::span{&key, 1});
      if (prefix.length > 0 && !tree.pinned(prefix.last())) prefixes.push_back({pool, prefix});
    }
  }
  if (prefixes.empty()) return Errc::not_found;
  std::uint32_t freed = 0;
  for (const PoolPrefix& prefix : prefixes) freed += groups_.at(prefix.pool).drop(prefix.prefix);
  requests_.settle();
  return freed;
}

Result<EvictedBlocks> Administration::evict(std::span<const SlotId> slots, PoolId pool) {
  if (!groups_.has(pool)) return Errc::invalid_argument;
  const std::uint32_t end = groups_.at(pool).residency().pool(Tier::device).capacity();
  if (std::ranges::any_of(slots, [&](SlotId slot) { return slot.value() >= end; })) return Errc::invalid_argument;
  EvictedBlocks evicted = groups_.at(pool).evict(slots);
  requests_.settle();
  return evicted;
}

std::optional<BlockPlace> Administration::find_block(const BlockKey& key, GroupId group) const {
  if (group.value() >= groups_.size()) return std::nullopt;
  return groups_.pool_of(group.value()).find_block(key_in_group(key, group));
}

Result<void> Administration::resize(Tier tier, std::uint32_t blocks, PoolId pool, std::span<const SlotSpan> closing) {
  if (!groups_.has(pool)) return Errc::invalid_argument;
  const Result<void> resized = groups_.at(pool).resize(tier, blocks, closing);
  if (!resized) return resized;
  (tier == Tier::device ? state_.config.pool(pool).device_blocks : state_.config.pool(pool).host_blocks) = blocks;
  requests_.settle();
  return {};
}

void Administration::open_host(SlotSpan slots, PoolId pool) {
  groups_.at(pool).open_host(slots);
  requests_.settle();
}

Result<WriteBackId> Administration::start_write_back(const WriteBackOrder& order) {
  using Scope = WriteBackOrder::Scope;
  const bool shared = order.target == WriteBackOrder::Target::shared;
  if (shared ? !state_.config.shared.on : !state_.config.storage) return Errc::invalid_argument;
  if (state_.status != CacheStatus::normal) return Errc::paused;
  Result<WriteBackId> started = Errc::invalid_argument;
  switch (order.scope) {
    case Scope::request: {
      const Result<std::vector<PoolPrefix>> prefixes = requests_.pinned_prefixes(order.request);
      started = prefixes ? write_backs_.start(order, *prefixes, {}) : Result<WriteBackId>{prefixes.error()};
      break;
    }
    case Scope::prefix: started = write_back_prefix(order); break;
    case Scope::tenant:
    case Scope::all: started = write_backs_.start(order, std::numeric_limits<std::uint64_t>::max()); break;
    case Scope::idle: started = write_backs_.start(order, use_clock_.stamp_at(state_.now - order.unused_for)); break;
  }
  requests_.settle();
  return started;
}

Result<void> Administration::cancel_write_back(WriteBackId id) {
  const Result<void> cancelled = write_backs_.cancel(id);
  requests_.settle();
  return cancelled;
}

Result<WriteBackId> Administration::write_back_prefix(const WriteBackOrder& order) {
  std::vector<PoolPrefix> prefixes;
  std::vector<BlockKey> gone;
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    const GroupRule& rule = groups_.rules()[g];
    if (!rule.cached()) continue;
    const PoolId pool = rule.config().pool;
    const PrefixTree& tree = groups_.at(pool).residency().tree();
    const std::uint32_t blocks = rule.full_blocks(static_cast<std::uint32_t>(order.keys.size()));
    if (rule.chained()) {
      const Prefix prefix = tree.find(groups_.keys_in(g, order.keys, 0));
      if (prefix.length > 0) prefixes.push_back({pool, prefix});
      for (std::uint32_t block = prefix.length; block < blocks; ++block) gone.push_back(groups_.key_in(g, order.keys, block));
      continue;
    }
    // Groups of other kinds keep only a few blocks. The others count as neither wanted nor gone.
    for (std::uint32_t block = 0; block < blocks; ++block) {
      const BlockKey key = groups_.key_in(g, order.keys, block);
      const Prefix prefix = tree.find(std::span{&key, 1});
      if (prefix.length > 0) prefixes.push_back({pool, prefix});
    }
  }
  if (prefixes.empty()) return Errc::not_found;
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

}  // namespace terrace
