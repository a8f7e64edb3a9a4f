// What a prompt finds, in each group and in all of them together.

#include "base/check.hpp"
#include "runtime/manager/cache_manager.hpp"

#include <algorithm>

namespace terrace {

/// The group's keys of the blocks from `from` on that `keys`, one a unit, make full. Good until the next call.
std::span<const BlockKey> CacheManager::keys_in(std::size_t group, std::span<const BlockKey> keys, std::uint32_t from) const {
  const GroupRule& rule = rules_[group];
  if (group == 0 && rule.units_per_block() == 1) return keys.subspan(from);
  group_keys_.clear();
  const std::uint32_t end = rule.full_blocks(static_cast<std::uint32_t>(keys.size()));
  for (std::uint32_t block = from; block < end; ++block) group_keys_.push_back(key_in(group, keys, block));
  return group_keys_;
}

/// A block's key is that of its last unit.
BlockKey CacheManager::key_in(std::size_t group, std::span<const BlockKey> keys, std::uint32_t block) const {
  return key_in_group(keys[std::size_t{block + 1} * rules_[group].units_per_block() - 1], id_of(group));
}

/// How many leading blocks can be had, at most keys.size(). hits_ says from where in each group, found_ from where in all.
/// Takes nothing
/// from tiers below `lowest`.
std::uint32_t CacheManager::look_up(std::span<const BlockKey> keys, Tier lowest) const {
  if (single_) {
    GroupHit& hit = hits_.front();
    hit.found = pools_.front()->find(keys, lowest, found_);
    hit.end = hit.found.prefix.length;
    return hit.end;
  }
  struct There {
    const CacheManager& manager;
    std::span<const BlockKey> keys;
    Tier lowest;

    std::uint32_t chain(std::size_t group, std::uint32_t blocks) const {
      // Once is enough: what the whole prompt finds, its beginning finds too.
      GroupHit& hit = manager.hits_[group];
      if (!hit.looked_up) hit.found = manager.pool_of(group).find(manager.keys_in(group, keys, 0), lowest, hit.tiers);
      hit.looked_up = true;
      return std::min(blocks, hit.found.prefix.length);
    }
    bool has(std::size_t group, std::uint32_t block) const {
      const BlockKey key = manager.key_in(group, keys, block);
      return manager.pool_of(group).find(std::span{&key, 1}, lowest, manager.hits_[group].tiers).prefix.length > 0;
    }
  };
  for (GroupHit& hit : hits_) hit.looked_up = false;
  const auto all = static_cast<std::uint32_t>(keys.size());
  const std::uint32_t hits = longest_common_hit(rules_, unit_tokens_, alignment_, all, There{*this, keys, lowest});
  for (std::size_t g = 0; g < rules_.size(); ++g) look_up_group(g, keys.first(hits), lowest);
  note_tiers(hits);
  return hits;
}

/// What the group contributes to a hit of all of `keys`.
void CacheManager::look_up_group(std::size_t group, std::span<const BlockKey> keys, Tier lowest) const {
  const GroupRule& rule = rules_[group];
  const TieredPool& pool = pool_of(group);
  const auto hits = static_cast<std::uint32_t>(keys.size());
  GroupHit& hit = hits_[group];
  hit.found = {};
  hit.unchained.clear();
  hit.tiers.clear();
  hit.first = hit.end = 0;
  hit.serves = true;
  if (!rule.cached()) return;
  hit.end = rule.full_blocks(hits);
  if (rule.chained()) {
    hit.found = pool.find(keys_in(group, keys, 0), lowest, hit.tiers);
    hit.serves = hit.found.prefix.length == hit.end;
  } else {
    hit.first = rule.first_needed(std::uint64_t{hits} * unit_tokens_);
    for (std::uint32_t block = hit.first; block < hit.end; ++block) {
      const BlockKey key = key_in(group, keys, block);
      const Found unchained_block = pool.find(std::span{&key, 1}, lowest, island_tier_);
      if (unchained_block.prefix.length == 0) {
        hit.serves = false;
        break;
      }
      hit.unchained.push_back(unchained_block);
      hit.tiers.push_back(island_tier_.front());
      hit.found.on_device += unchained_block.on_device;
      hit.found.filling += unchained_block.filling;
    }
  }
  // An optional group's last block may be but begun where the others' end.
  hit.serves &= hits % rule.units_per_block() == 0;
  TERRACE_CHECK(hit.serves || rule.config().optional);
  if (hit.serves) return;
  hit.found = {};
  hit.unchained.clear();
  hit.tiers.clear();
  hit.first = hit.end;
}

/// A block of the prompt is found in the lowest tier that any group wants it from.
void CacheManager::note_tiers(std::uint32_t hits) const {
  found_.assign(hits, Tier::device);
  for (std::size_t g = 0; g < rules_.size(); ++g) {
    const GroupHit& hit = hits_[g];
    const std::uint32_t units = rules_[g].units_per_block();
    for (std::size_t i = 0; i < hit.tiers.size(); ++i) {
      for (std::size_t unit = (hit.first + i) * units; unit < (hit.first + i + 1) * units; ++unit) {
        found_[unit] = std::max(found_[unit], hit.tiers[i]);
      }
    }
  }
}

/// How many leading blocks of the last look_up()'s hits are had sooner by loading than by computing them. Where nobody has stated
/// how fast the engine computes, only what comes from storage is measured; and as long as that is not learned, little is asked of
/// storage, and taken whatever it takes.
std::uint32_t CacheManager::worth_loading(std::uint32_t hits) const {
  if (!measures_loads()) return hits;
  const Tier measured_from = prefill_is_stated() ? Tier::host : Tier::storage;
  if (std::ranges::none_of(found_, [&](Tier tier) { return tier >= measured_from; })) return hits;
  unit_costs_.assign(hits, {});
  for (std::size_t g = 0; g < rules_.size(); ++g) add_costs(g);
  LoadQueues queues;
  for (const auto& pool : pools_) {
    const LoadCosts& costs = pool->load_costs();
    const std::uint64_t waiting = pool->loads().reads_waiting();
    queues.read_seconds += static_cast<double>(waiting) * costs.read_seconds;
    if (prefill_is_stated()) queues.link_seconds += static_cast<double>(pool->loads().links_waiting()) * costs.link_seconds;
    const auto more = static_cast<std::uint32_t>(costs.reads_max - std::min<std::uint64_t>(costs.reads_max, waiting));
    queues.reads_max = std::min(queues.reads_max, more);
  }
  constexpr double whatever_it_takes = 1e9;
  return units_worth_loading(unit_costs_, queues, unit_seconds() > 0 ? unit_seconds() : whatever_it_takes);
}

/// What the group's part of the hits costs, each block with the last of its units.
void CacheManager::add_costs(std::size_t group) const {
  const GroupHit& hit = hits_[group];
  const LoadCosts& costs = pool_of(group).load_costs();
  // (With one group, found_ says the tiers.)
  const std::span<const Tier> tiers = single_ ? std::span<const Tier>{found_} : std::span<const Tier>{hit.tiers};
  for (std::uint32_t i = 0; i < tiers.size(); ++i) {
    if (tiers[i] == Tier::device) continue;
    // What is on its way follows what the device has.
    const Found& found = hit.unchained.empty() ? hit.found : hit.unchained[i];
    const std::uint32_t place = hit.unchained.empty() ? i : 0;
    const bool joins = place >= found.on_device && place < found.on_device + found.filling;
    UnitCost& unit = unit_costs_[std::size_t{hit.first + i + 1} * rules_[group].units_per_block() - 1];
    if (joins) {
      (tiers[i] == Tier::storage ? unit.joins_read : unit.joins_link) = true;
      continue;
    }
    if (prefill_is_stated()) unit.link_seconds += costs.link_seconds;
    if (tiers[i] != Tier::storage) continue;
    unit.read_seconds += costs.read_seconds;
    ++unit.reads;
  }
}

/// Keeps what the last look_up() found, or lets it go again.
void CacheManager::hold_hits(Hold hold) {
  const auto change = [&](TieredPool& pool, Prefix prefix) { hold == Hold::pin ? pool.pin(prefix) : pool.unpin(prefix); };
  for (std::size_t g = 0; g < rules_.size(); ++g) {
    TieredPool& pool = pool_of(g);
    if (rules_[g].chained()) change(pool, hits_[g].found.prefix);
    for (const Found& unchained_block : hits_[g].unchained) change(pool, unchained_block.prefix);
  }
}

/// Slots for what the request computes in the group beyond its hits, which end at block `from`.
std::uint32_t CacheManager::new_blocks(std::size_t group, const Request& r, std::uint32_t from) const {
  const GroupRule& rule = rules_[group];
  if (!rule.cached()) return rule.encoder_blocks(r.encoder_tokens);
  const std::uint32_t to = std::max(rule.blocks_for(r.blocks_now), from);
  return to - rule.first_new(from, to, std::min(r.key_count, r.blocks_now));
}

/// By pool: slots that the request needs beside those that hold its hits already.
void CacheManager::sum_needs(const Request& r) const {
  std::ranges::fill(needs_, 0);
  for (std::size_t g = 0; g < rules_.size(); ++g) {
    const GroupHit& hit = hits_[g];
    const std::uint32_t to_load = hit.end - hit.first - hit.found.on_device - hit.found.filling;
    needs_[rules_[g].config().pool.value()] += to_load + new_blocks(g, r, hit.end);
  }
}

bool CacheManager::can_promise_all() const {
  for (std::size_t pool = 0; pool < pools_.size(); ++pool) {
    if (!pools_[pool]->device_slots().can_promise(needs_[pool])) return false;
  }
  return true;
}

/// Whether the pools, were they empty, could hold what the request has at once: with full attention all of it, in the end.
bool CacheManager::could_ever_fit(const Request& r) const {
  std::ranges::fill(needs_, 0);
  for (std::size_t g = 0; g < rules_.size(); ++g) {
    const GroupHit& hit = hits_[g];
    const bool all = rules_[g].chained() && hit.serves;
    needs_[rules_[g].config().pool.value()] +=
        all ? rules_[g].blocks_for(r.blocks) : hit.end - hit.first + new_blocks(g, r, hit.end);
  }
  for (std::size_t pool = 0; pool < pools_.size(); ++pool) {
    const SlotAllocator& device = pools_[pool]->residency().pool(Tier::device);
    if (needs_[pool] > device.capacity() - device.count(SlotState::null)) return false;
  }
  return true;
}

}  // namespace terrace
