// The cache as a whole: clearing, resuming, dropping and pinning by hand.

#include "base/check.hpp"
#include "runtime/manager/cache_manager.hpp"

#include <algorithm>

namespace terrace {

void CacheManager::clear(const ClearOptions& options) {
  epoch_ = Epoch{epoch_.value() + 1};
  for (Index index = 0; index < requests_.size(); ++index) {
    const State state = requests_[index].state;
    if (state == State::waiting_for_room || state == State::loading) fail(index, Errc::cleared);
  }
  while (!pins_.empty()) end_pin(pins_.begin());
  retentions_.clear();  // they end with their blocks
  retained_blocks_ = 0;
  for (const auto& pool : pools_) pool->clear(options.storage);
  if (kv_events_.on()) {
    KvEvent event;
    event.kind = KvEvent::Kind::cleared;
    kv_events_.add(event);
  }
  if (options.wait) status_ = CacheStatus::clearing;
  settle();
}

Result<void> CacheManager::reset(const ClearOptions& options) {
  if (!by_id_.empty() || !quarantined_.empty()) return Errc::in_use;
  clear(options);
  return {};
}

Result<void> CacheManager::resume() {
  if (status_ == CacheStatus::clearing) return Errc::paused;
  status_ = CacheStatus::normal;
  return {};
}

Result<std::uint32_t> CacheManager::drop(std::span<const BlockKey> keys) {
  if (keys.empty()) return Errc::not_found;
  std::vector<PinnedPrefix> prefixes;
  for (std::size_t g = 0; g < rules_.size(); ++g) {
    const GroupRule& rule = rules_[g];
    if (!rule.cached()) continue;
    const PoolId pool = rule.config().pool;
    const PrefixTree& tree = residency(pool).tree();
    const std::uint32_t blocks = rule.full_blocks(static_cast<std::uint32_t>(keys.size()));
    if (rule.chained()) {
      const Prefix prefix = tree.find(keys_in(g, keys, 0));
      if (prefix.length < blocks && !rule.config().optional) return Errc::not_found;
      if (prefix.length == 0) continue;
      if (tree.pinned(prefix.last())) return Errc::in_use;
      prefixes.push_back({pool, prefix});
      continue;
    }
    for (std::uint32_t block = 0; block < blocks; ++block) {
      const BlockKey key = key_in(g, keys, block);
      const Prefix prefix = tree.find(std::span{&key, 1});
      if (prefix.length > 0 && !tree.pinned(prefix.last())) prefixes.push_back({pool, prefix});
    }
  }
  if (prefixes.empty()) return Errc::not_found;
  std::uint32_t freed = 0;
  for (const PinnedPrefix& prefix : prefixes) freed += at(prefix.pool).drop(prefix.prefix);
  settle();
  return freed;
}

Result<EvictedBlocks> CacheManager::evict(std::span<const SlotId> slots, PoolId pool) {
  const std::uint32_t end = residency(pool).pool(Tier::device).capacity();
  if (std::ranges::any_of(slots, [&](SlotId slot) { return slot.value() >= end; })) return Errc::invalid_argument;
  EvictedBlocks evicted = at(pool).evict(slots);
  settle();
  return evicted;
}

std::optional<BlockPlace> CacheManager::find_block(const BlockKey& key, GroupId group) const {
  if (group.value() >= rules_.size()) return std::nullopt;
  return pool_of(group.value()).find_block(key_in_group(key, group));
}

Result<PinId> CacheManager::pin(std::span<const BlockKey> keys, TimePoint until) {
  if (status_ != CacheStatus::normal) return Errc::paused;
  if (!config_.caching) return Errc::not_found;
  const std::uint32_t hits = look_up(keys, Tier::storage);
  if (hits == 0) return Errc::not_found;
  // A pin takes slots out of what can be promised: those that are promised already stay so.
  std::vector<std::uint64_t> wanted = pinned_;
  for (std::size_t g = 0; g < rules_.size(); ++g) wanted[rules_[g].config().pool.value()] += hits_[g].end - hits_[g].first;
  hold_hits(Hold::pin);
  for (std::size_t pool = 0; pool < pools_.size(); ++pool) {
    const std::uint64_t half = pools_[pool]->config().device_blocks / 2;
    const std::uint64_t most = config_.pinned_blocks_max > 0 ? config_.pinned_blocks_max : half;
    if (wanted[pool] <= most && pools_[pool]->device_slots().can_promise(0)) continue;
    hold_hits(Hold::unpin);
    return Errc::no_room;
  }
  Pin pin;
  pin.until = until;
  for (std::size_t g = 0; g < rules_.size(); ++g) {
    const PoolId pool = rules_[g].config().pool;
    if (hits_[g].found.prefix.length > 0) pin.prefixes.push_back({pool, hits_[g].found.prefix});
    for (const Found& unchained_block : hits_[g].unchained) pin.prefixes.push_back({pool, unchained_block.prefix});
  }
  // Else one of them might stay, being pinned when its copy ends, and outlive the one before it.
  for (const PinnedPrefix& pinned : pin.prefixes) at(pinned.pool).cancel_evictions(pinned.prefix);
  pinned_ = wanted;
  last_pin_ = PinId{last_pin_.value() + 1};
  pins_.emplace(last_pin_, std::move(pin));
  return last_pin_;
}

Result<void> CacheManager::unpin(PinId pin) {
  const auto found = pins_.find(pin);
  if (found == pins_.end()) return Errc::not_found;
  end_pin(found);
  settle();
  return {};
}

void CacheManager::end_pin(std::map<PinId, Pin>::iterator pin) {
  const std::vector<PinnedPrefix> prefixes = std::move(pin->second.prefixes);
  pins_.erase(pin);
  for (const PinnedPrefix& pinned : prefixes) {
    pinned_[pinned.pool.value()] -= pinned.prefix.length;
    at(pinned.pool).unpin_incomplete(pinned.prefix);
  }
}

Result<void> CacheManager::resize(Tier tier, std::uint32_t blocks, PoolId pool, std::span<const SlotSpan> closing) {
  const Result<void> resized = at(pool).resize(tier, blocks, closing);
  if (!resized) return resized;
  (tier == Tier::device ? config_.pool(pool).device_blocks : config_.pool(pool).host_blocks) = blocks;
  settle();
  return {};
}

void CacheManager::open_host(SlotSpan slots, PoolId pool) {
  at(pool).open_host(slots);
  settle();
}

std::uint32_t CacheManager::common_prefix(GroupId group) const {
  const std::size_t g = group.value();
  if (g >= rules_.size() || !rules_[g].chained()) return 0;
  std::optional<Prefix> common;
  for (const Request& r : requests_) {
    if (r.state != State::ready || r.quarantined_until) continue;
    if (!common) {
      common = r.parts[g].prefix;
    } else {
      const std::uint32_t length = pool_of(g).residency().tree().common(*common, r.parts[g].prefix);
      common = Prefix{common->node, length};
    }
  }
  return common ? common->length : 0;
}

}  // namespace terrace
