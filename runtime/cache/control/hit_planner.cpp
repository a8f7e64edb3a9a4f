#include "runtime/cache/control/hit_planner.hpp"

#include "base/check.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

namespace terrace {

std::uint32_t Hit::near_units() const {
  const auto is_far = [](Source source) { return source >= Source::storage; };
  return static_cast<std::uint32_t>(std::ranges::find_if(sources(), is_far) - sources().begin());
}

HitPlanner::HitPlanner(ManagerState& state) : state_{state}, groups_{state.groups} { needs_.resize(groups_.pools().size()); }

void HitPlanner::find_hit(std::span<const BlockKey> keys, Source farthest, const SharedAnswer& shared, Hit& hit) {
  hit.groups.resize(groups_.size());
  if (!groups_.single()) return find_hit_of_groups(keys, farthest, shared, hit);
  // An engine asks for a prompt's hits, and acquires the prompt right after that, so the answer is used again. Keys are chained:
  // if the last keys are equal, the prompts are equal.
  GroupHit& only = hit.groups.front();
  const TieredPool& pool = groups_.pool_of(0);
  const std::uint64_t changes = pool.residency().tree().changes();
  const bool known = !keys.empty() && hit.asked.changes == changes && hit.asked.keys == keys.size() &&
                     hit.asked.farthest == farthest && hit.asked.last == keys.back();
  if (!known) {
    only.found = pool.find(keys, farthest, only.sources);
    hit.units = only.end = only.found.prefix.length;
    hit.asked = {.changes = changes, .keys = keys.size(), .farthest = farthest, .last = keys.empty() ? BlockKey{} : keys.back()};
  }
  const auto units = static_cast<std::uint32_t>(keys.size());
  if (hit.units == units || !shared.has(0, hit.units)) return;
  while (hit.units < units && shared.has(0, hit.units)) ++hit.units;
  only.end = hit.units;
  only.sources.resize(hit.units, Source::shared);
  hit.asked = {};  // it is no longer the answer of the tiers alone
}

void HitPlanner::find_hit_of_groups(std::span<const BlockKey> keys, Source farthest, const SharedAnswer& shared, Hit& hit) {
  struct There {
    HitPlanner& planner;
    std::span<const BlockKey> keys;
    Source farthest;
    const SharedAnswer& shared;
    Hit& hit;

    std::uint32_t chain(std::size_t group, std::uint32_t blocks) const {
      // One look-up for the whole prompt is enough: a shorter prefix of the prompt finds the same blocks.
      GroupHit& in_group = hit.groups[group];
      if (!in_group.looked_up) {
        const std::span<const BlockKey> all = planner.groups_.keys_in(group, keys, 0);
        in_group.reach = planner.groups_.pool_of(group).find(all, farthest, in_group.sources).prefix.length;
        while (in_group.reach < all.size() && shared.has(group, in_group.reach)) ++in_group.reach;
      }
      in_group.looked_up = true;
      return std::min(blocks, in_group.reach);
    }
    bool has(std::size_t group, std::uint32_t block) const {
      const BlockKey key = planner.groups_.key_in(group, keys, block);
      const TieredPool& pool = planner.groups_.pool_of(group);
      return pool.find(std::span{&key, 1}, farthest, planner.unchained_source_).prefix.length > 0 || shared.has(group, block);
    }
  };
  for (GroupHit& in_group : hit.groups) in_group.looked_up = false;
  const auto all = static_cast<std::uint32_t>(keys.size());
  hit.units = longest_common_hit(groups_.rules(), groups_.unit_tokens(), groups_.alignment(), all,
                                 There{*this, keys, farthest, shared, hit});
  for (std::size_t g = 0; g < groups_.size(); ++g) find_hit_of_group(g, keys.first(hit.units), farthest, shared, hit.groups[g]);
  note_sources(hit);
}

/// Sets `hit` to the contribution of the group to a hit of all of `keys`.
void HitPlanner::find_hit_of_group(std::size_t group, std::span<const BlockKey> keys, Source farthest, const SharedAnswer& shared,
                                   GroupHit& hit) {
  const GroupRule& rule = groups_.rules()[group];
  const TieredPool& pool = groups_.pool_of(group);
  const auto hits = static_cast<std::uint32_t>(keys.size());
  hit.found = {};
  hit.unchained.clear();
  hit.sources.clear();
  hit.first = hit.end = 0;
  hit.serves = true;
  if (!rule.cached()) return;
  hit.end = rule.full_blocks(hits);
  if (rule.chained()) {
    hit.found = pool.find(groups_.keys_in(group, keys, 0), farthest, hit.sources);
    while (hit.sources.size() < hit.end && shared.has(group, static_cast<std::uint32_t>(hit.sources.size()))) {
      hit.sources.push_back(Source::shared);
    }
    hit.serves = hit.sources.size() == hit.end;
  } else {
    hit.first = rule.first_needed(std::uint64_t{hits} * groups_.unit_tokens());
    for (std::uint32_t block = hit.first; block < hit.end; ++block) {
      const BlockKey key = groups_.key_in(group, keys, block);
      const Found unchained_block = pool.find(std::span{&key, 1}, farthest, unchained_source_);
      const bool is_here = unchained_block.prefix.length > 0;
      if (!is_here && !shared.has(group, block)) {
        hit.serves = false;
        break;
      }
      hit.unchained.push_back(unchained_block);
      hit.sources.push_back(is_here ? unchained_source_.front() : Source::shared);
      hit.found.on_device += unchained_block.on_device;
      hit.found.filling += unchained_block.filling;
    }
  }
  // The hit may end within a block of an optional group. Such a group does not serve it.
  hit.serves &= hits % rule.units_per_block() == 0;
  TERRACE_CHECK(hit.serves || rule.config().optional);
  if (hit.serves) return;
  hit.found = {};
  hit.unchained.clear();
  hit.sources.clear();
  hit.first = hit.end;
}

/// Sets the sources of the units from those of the groups' blocks.
void HitPlanner::note_sources(Hit& hit) const {
  hit.unit_sources.assign(hit.units, Source::device);
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    const GroupHit& in_group = hit.groups[g];
    const std::uint32_t units = groups_.rules()[g].units_per_block();
    for (std::size_t i = 0; i < in_group.sources.size(); ++i) {
      for (std::size_t unit = (in_group.first + i) * units; unit < (in_group.first + i + 1) * units; ++unit) {
        hit.unit_sources[unit] = std::max(hit.unit_sources[unit], in_group.sources[i]);
      }
    }
  }
}

bool HitPlanner::shared_would_pay(std::span<const BlockKey> keys, std::uint32_t hits, Source farthest) {
  find_hit(keys, farthest, SharedAnswer::everything(), if_shared_);
  return worth_loading(if_shared_) > hits;
}

void HitPlanner::pin_hit(Hit& hit, std::span<const BlockKey> keys, TenantId tenant) {
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    TieredPool& pool = groups_.pool_of(g);
    const GroupId id = ModelGroups::id_of(g);
    GroupHit& in_group = hit.groups[g];
    Prefix& prefix = in_group.found.prefix;
    if (groups_.rules()[g].chained() && in_group.serves && in_group.end > prefix.length) {
      const std::span<const BlockKey> more = groups_.keys_in(g, keys, prefix.length).first(in_group.end - prefix.length);
      prefix = pool.extend_pinned(prefix, more, tenant, id);
    } else if (groups_.rules()[g].chained()) {
      pool.pin(prefix);
    }
    for (std::uint32_t i = 0; i < in_group.unchained.size(); ++i) {
      Prefix& block = in_group.unchained[i].prefix;
      if (block.length > 0) {
        pool.pin(block);
        continue;
      }
      const BlockKey key = groups_.key_in(g, keys, in_group.first + i);
      block = pool.extend_pinned({}, {&key, 1}, tenant, id);
    }
  }
}

void HitPlanner::unpin_hit(const Hit& hit) {
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    TieredPool& pool = groups_.pool_of(g);
    if (groups_.rules()[g].chained()) pool.unpin(hit.groups[g].found.prefix);
    for (const Found& unchained_block : hit.groups[g].unchained) pool.unpin(unchained_block.prefix);
  }
}

std::uint32_t HitPlanner::worth_loading(const Hit& hit) {
  const std::span<const Source> sources = hit.sources();
  // While copies to the device fail, only hits that are on the device already are of use.
  if (!state_.link.allows()) {
    const auto first_below = std::ranges::find_if(sources, [](Source source) { return source != Source::device; });
    return static_cast<std::uint32_t>(first_below - sources.begin());
  }
  if (!measures_loads()) return hit.units;
  // Without a stated prefill speed, hits in the host are always loaded: a learned speed decides only about storage and the shared
  // store.
  const Source measured_from = prefill_is_stated() ? Source::host : Source::storage;
  if (std::ranges::none_of(sources, [&](Source source) { return source >= measured_from; })) return hit.units;
  unit_costs_.assign(hit.units, {});
  for (std::size_t g = 0; g < groups_.size(); ++g) add_costs(g, hit.groups[g]);
  LoadQueues queues;
  double round_trip = 0;  // one probe asks for the blocks of all pools
  for (const auto& pool : groups_.pools()) {
    const LoadCosts& costs = pool->load_costs();
    const std::uint64_t waiting = pool->stored_reads().size(Source::storage);
    queues.read_seconds += static_cast<double>(waiting) * costs.read_seconds;
    if (prefill_is_stated()) queues.link_seconds += static_cast<double>(pool->loads().links_waiting()) * costs.link_seconds;
    const auto more = static_cast<std::uint32_t>(costs.reads_max - std::min<std::uint64_t>(costs.reads_max, waiting));
    queues.reads_max = std::min(queues.reads_max, more);
    if (!state_.config.shared.on) continue;
    const std::uint64_t asked = pool->stored_reads().size(Source::shared);
    round_trip = std::max(round_trip, costs.shared_round_trip);
    queues.shared_seconds += static_cast<double>(asked) * costs.shared_seconds;
    const auto more_shared = static_cast<std::uint32_t>(costs.shared_max - std::min<std::uint64_t>(costs.shared_max, asked));
    queues.shared_max = std::min(queues.shared_max, more_shared);
  }
  queues.shared_seconds += round_trip;
  // With an unknown prefill speed, time does not count: only reads_max and shared_max limit the loads.
  constexpr double unknown_speed_seconds = 1e9;
  return units_worth_loading(unit_costs_, queues, unit_seconds() > 0 ? unit_seconds() : unknown_speed_seconds);
}

/// Adds the cost of the group's blocks to unit_costs_. The cost of a block is counted in the last unit of the block.
void HitPlanner::add_costs(std::size_t group, const GroupHit& hit) {
  const LoadCosts& costs = groups_.pool_of(group).load_costs();
  for (std::uint32_t i = 0; i < hit.sources.size(); ++i) {
    const Source source = hit.sources[i];
    if (source == Source::device) continue;
    // In the prefix of a group, the blocks that a load is bringing follow those that the device has.
    const Found& found = hit.unchained.empty() ? hit.found : hit.unchained[i];
    const std::uint32_t place = hit.unchained.empty() ? i : 0;
    const bool joins = place >= found.on_device && place < found.on_device + found.filling;
    UnitCost& unit = unit_costs_[std::size_t{hit.first + i + 1} * groups_.rules()[group].units_per_block() - 1];
    if (joins) {
      (source == Source::shared ? unit.joins_shared : source == Source::storage ? unit.joins_read : unit.joins_link) = true;
      continue;
    }
    if (prefill_is_stated()) unit.link_seconds += costs.link_seconds;
    if (source == Source::storage) {
      unit.read_seconds += costs.read_seconds;
      ++unit.reads;
    } else if (source == Source::shared) {
      unit.shared_seconds += costs.shared_seconds;
      ++unit.shared;
    }
  }
}

TimePoint HitPlanner::reads_wanted_by(std::span<const Source> found) const {
  if (!measures_loads()) {
    const bool asks = std::ranges::find(found, Source::shared) != found.end();
    return asks ? state_.now + state_.config.shared.read_timeout : never;
  }
  constexpr double least = 0.020;
  constexpr double unknown = 0.100;
  const auto first_read = std::ranges::find_if(found, [](Source source) { return source >= Source::storage; });
  const auto computed_instead = static_cast<double>(found.end() - first_read);
  const double seconds = unit_seconds() > 0 ? least + 2 * computed_instead * unit_seconds() : unknown;
  return state_.now + std::chrono::duration_cast<Duration>(std::chrono::duration<double>{seconds});
}

std::uint32_t HitPlanner::new_blocks(std::size_t group, const RequestSize& r, std::uint32_t from) const {
  const GroupRule& rule = groups_.rules()[group];
  if (!rule.cached()) return rule.encoder_blocks(r.encoder_tokens);
  const std::uint32_t to = std::max(rule.blocks_for(r.blocks_now), from);
  return to - rule.first_new(from, to, std::min(r.key_count, r.blocks_now));
}

void HitPlanner::sum_needs(const RequestSize& r, const Hit& hit, std::span<std::uint32_t> needs) const {
  std::ranges::fill(needs, 0);
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    const GroupHit& in_group = hit.groups[g];
    const std::uint32_t to_load = in_group.end - in_group.first - in_group.found.on_device - in_group.found.filling;
    needs[groups_.rules()[g].config().pool.value()] += to_load + new_blocks(g, r, in_group.end);
  }
}

bool HitPlanner::can_promise(std::span<const std::uint32_t> needs, std::uint64_t left) const {
  for (std::size_t pool = 0; pool < groups_.pools().size(); ++pool) {
    if (!groups_.pools()[pool]->device_slots().can_promise(needs[pool] + left)) return false;
  }
  return true;
}

bool HitPlanner::could_ever_fit(const RequestSize& r, const Hit& hit) {
  std::ranges::fill(needs_, 0);
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    const GroupHit& in_group = hit.groups[g];
    const bool all = groups_.rules()[g].chained() && in_group.serves;
    needs_[groups_.rules()[g].config().pool.value()] +=
        all ? groups_.rules()[g].blocks_for(r.blocks) : in_group.end - in_group.first + new_blocks(g, r, in_group.end);
  }
  return fit_in_empty_pools(needs_);
}

bool HitPlanner::fit_in_empty_pools(std::span<const std::uint32_t> needs) const {
  for (std::size_t pool = 0; pool < groups_.pools().size(); ++pool) {
    const SlotAllocator& device = groups_.pools()[pool]->residency().slots_of(Tier::device);
    if (needs[pool] > device.capacity() - device.count(SlotState::null)) return false;
  }
  return true;
}

}  // namespace terrace
