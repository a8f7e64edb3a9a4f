#include "runtime/cache/control/hit_planner.hpp"

#include "base/check.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

namespace terrace {

HitPlanner::HitPlanner(ManagerState& state) : state_{state}, groups_{state.groups} {
  hits_.resize(groups_.size());
  needs_.resize(groups_.pools().size());
}

std::uint32_t HitPlanner::look_up(std::span<const BlockKey> keys, Source farthest) const {
  if (groups_.single()) {
    GroupHit& hit = hits_.front();
    const TieredPool& pool = *groups_.pools().front();
    // An engine asks for a prompt's hits, and acquires the prompt right after that, so the result is reused. Keys are chained: if
    // the last keys are equal, the prompts are equal.
    const std::uint64_t changes = pool.residency().tree().changes();
    const bool known = !keys.empty() && asked_.changes == changes && asked_.keys == keys.size() && asked_.farthest == farthest &&
                       asked_.last == keys.back();
    if (known) return hit.end;
    hit.found = pool.find(keys, farthest, found_);
    hit.end = hit.found.prefix.length;
    asked_ = {.changes = changes, .keys = keys.size(), .farthest = farthest, .last = keys.empty() ? BlockKey{} : keys.back()};
    return hit.end;
  }
  return look_up_groups(keys, farthest, {});
}

std::uint32_t HitPlanner::look_up_with(const SharedAnswer& answer, std::span<const BlockKey> keys, Source farthest) const {
  return look_up_groups(keys, farthest, {.answer = &answer});
}

std::uint32_t HitPlanner::look_up_groups(std::span<const BlockKey> keys, Source farthest, Elsewhere elsewhere) const {
  struct There {
    const HitPlanner& planner;
    std::span<const BlockKey> keys;
    Source farthest;
    Elsewhere elsewhere;

    std::uint32_t chain(std::size_t group, std::uint32_t blocks) const {
      // One look-up for the whole prompt is enough: a shorter prefix of the prompt finds the same blocks.
      GroupHit& hit = planner.hits_[group];
      if (!hit.looked_up) {
        const std::span<const BlockKey> all = planner.groups_.keys_in(group, keys, 0);
        hit.reach = planner.groups_.pool_of(group).find(all, farthest, hit.sources).prefix.length;
        while (hit.reach < all.size() && elsewhere.has(group, hit.reach)) ++hit.reach;
      }
      hit.looked_up = true;
      return std::min(blocks, hit.reach);
    }
    bool has(std::size_t group, std::uint32_t block) const {
      return planner.in_tiers(group, keys, block, farthest) || elsewhere.has(group, block);
    }
  };
  for (GroupHit& hit : hits_) hit.looked_up = false;
  const auto all = static_cast<std::uint32_t>(keys.size());
  const std::uint32_t hits = longest_common_hit(groups_.rules(), groups_.unit_tokens(), groups_.alignment(), all,
                                                There{*this, keys, farthest, elsewhere});
  for (std::size_t g = 0; g < groups_.size(); ++g) look_up_group(g, keys.first(hits), farthest, elsewhere);
  note_sources(hits);
  return hits;
}

/// Returns true if `farthest` or a nearer tier has this unchained block of the group.
bool HitPlanner::in_tiers(std::size_t group, std::span<const BlockKey> keys, std::uint32_t block, Source farthest) const {
  const BlockKey key = groups_.key_in(group, keys, block);
  return groups_.pool_of(group).find(std::span{&key, 1}, farthest, unchained_source_).prefix.length > 0;
}

/// Sets hits_[group] to the contribution of the group to a hit of all of `keys`.
void HitPlanner::look_up_group(std::size_t group, std::span<const BlockKey> keys, Source farthest, Elsewhere elsewhere) const {
  const GroupRule& rule = groups_.rules()[group];
  const TieredPool& pool = groups_.pool_of(group);
  const auto hits = static_cast<std::uint32_t>(keys.size());
  GroupHit& hit = hits_[group];
  hit.found = {};
  hit.unchained.clear();
  hit.sources.clear();
  hit.first = hit.end = 0;
  hit.serves = true;
  if (!rule.cached()) return;
  hit.end = rule.full_blocks(hits);
  if (rule.chained()) {
    hit.found = pool.find(groups_.keys_in(group, keys, 0), farthest, hit.sources);
    while (hit.sources.size() < hit.end && elsewhere.has(group, static_cast<std::uint32_t>(hit.sources.size()))) {
      hit.sources.push_back(Source::shared);
    }
    hit.serves = hit.sources.size() == hit.end;
  } else {
    hit.first = rule.first_needed(std::uint64_t{hits} * groups_.unit_tokens());
    for (std::uint32_t block = hit.first; block < hit.end; ++block) {
      const BlockKey key = groups_.key_in(group, keys, block);
      const Found unchained_block = pool.find(std::span{&key, 1}, farthest, unchained_source_);
      const bool is_here = unchained_block.prefix.length > 0;
      if (!is_here && !elsewhere.has(group, block)) {
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

/// Sets found_: for each hash unit, the farthest source from which a group takes it.
void HitPlanner::note_sources(std::uint32_t hits) const {
  found_.assign(hits, Source::device);
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    const GroupHit& hit = hits_[g];
    const std::uint32_t units = groups_.rules()[g].units_per_block();
    for (std::size_t i = 0; i < hit.sources.size(); ++i) {
      for (std::size_t unit = (hit.first + i) * units; unit < (hit.first + i + 1) * units; ++unit) {
        found_[unit] = std::max(found_[unit], hit.sources[i]);
      }
    }
  }
}

std::uint32_t HitPlanner::add_shared(std::uint32_t units) const {
  TERRACE_CHECK(groups_.single());
  asked_.keys = 0;  // hits_ and found_ are no longer the result of look_up()
  hits_.front().end = units;
  found_.resize(units, Source::shared);
  return units;
}

bool HitPlanner::shared_would_pay(std::uint32_t all, std::uint32_t hits) const {
  (void)add_shared(all);
  const bool pays = worth_loading(all) > hits;
  hits_.front().end = hits;
  found_.resize(hits);
  return pays;
}

bool HitPlanner::shared_would_pay(std::span<const BlockKey> keys, std::uint32_t hits, Source farthest) const {
  const std::uint32_t all = look_up_groups(keys, farthest, {.everything = true});
  const bool pays = worth_loading(all) > hits;
  TERRACE_CHECK(look_up(keys.first(hits), farthest) == hits);
  return pays;
}

/// A chained group needs all blocks after those that the tiers have. For any other group, the question has every block that a
/// longer hit may need, for each place where it may end. look_up_with() chooses the end when the answer is there.
HitPlanner::Question HitPlanner::ask(std::span<const BlockKey> keys, std::uint32_t found, Source farthest,
                                     SharedAnswer& answer) const {
  asked_keys_.clear();
  asked_groups_.clear();
  first_missing_.clear();
  answer.clear();
  const auto units = static_cast<std::uint32_t>(keys.size());
  const std::uint32_t all = units - units % groups_.alignment();
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    const GroupRule& rule = groups_.rules()[g];
    std::uint32_t first = 0;
    const std::uint32_t end = rule.cached() && all > found ? rule.full_blocks(all) : 0;
    if (end > 0 && rule.chained()) {
      const std::span<const BlockKey> its = groups_.keys_in(g, keys, 0).first(end);
      first = groups_.pool_of(g).find(its, farthest, unchained_source_).prefix.length;
      if (first < end && !rule.config().optional) first_missing_.push_back(its[first]);
    } else if (end > 0) {
      first = rule.first_needed(std::uint64_t{found + groups_.alignment()} * groups_.unit_tokens());
    }
    first = std::min(first, end);
    answer.add(first, end - first);
    for (std::uint32_t block = first; block < end; ++block) {
      asked_keys_.push_back(groups_.key_in(g, keys, block));
      asked_groups_.push_back(ModelGroups::id_of(g));
    }
  }
  return {asked_keys_, asked_groups_, first_missing_};
}

std::span<const BlockKey> HitPlanner::not_there(std::span<const BlockKey> keys, const SharedAnswer& answer) const {
  first_missing_.clear();
  for (std::size_t g = 0; g < answer.parts().size(); ++g) {
    const auto& [first, blocks, begin] = answer.parts()[g];
    const GroupRule& rule = groups_.rules()[g];
    if (blocks == 0 || !rule.chained() || rule.config().optional || answer.has(g, first)) continue;
    first_missing_.push_back(groups_.key_in(g, keys, first));
  }
  return first_missing_;
}

std::uint32_t HitPlanner::near_units() const {
  const auto is_far = [](Source source) { return source >= Source::storage; };
  return static_cast<std::uint32_t>(std::ranges::find_if(found_, is_far) - found_.begin());
}

void HitPlanner::pin_hits(std::span<const BlockKey> keys, TenantId tenant) {
  if (groups_.single()) {
    GroupHit& hit = hits_.front();
    TieredPool& pool = groups_.pool_of(0);
    const std::uint32_t local = hit.found.prefix.length;
    if (hit.end == local) return pool.pin(hit.found.prefix);
    hit.found.prefix = pool.extend_pinned(hit.found.prefix, keys.first(hit.end).subspan(local), tenant, GroupId{});
    return;
  }
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    TieredPool& pool = groups_.pool_of(g);
    const GroupId id = ModelGroups::id_of(g);
    GroupHit& hit = hits_[g];
    Prefix& prefix = hit.found.prefix;
    if (groups_.rules()[g].chained() && hit.serves && hit.end > prefix.length) {
      const std::span<const BlockKey> more = groups_.keys_in(g, keys, prefix.length).first(hit.end - prefix.length);
      prefix = pool.extend_pinned(prefix, more, tenant, id);
    } else if (groups_.rules()[g].chained()) {
      pool.pin(prefix);
    }
    for (std::uint32_t i = 0; i < hit.unchained.size(); ++i) {
      Prefix& block = hit.unchained[i].prefix;
      if (block.length > 0) {
        pool.pin(block);
        continue;
      }
      const BlockKey key = groups_.key_in(g, keys, hit.first + i);
      block = pool.extend_pinned({}, {&key, 1}, tenant, id);
    }
  }
}

void HitPlanner::unpin_hits() {
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    TieredPool& pool = groups_.pool_of(g);
    if (groups_.rules()[g].chained()) pool.unpin(hits_[g].found.prefix);
    for (const Found& unchained_block : hits_[g].unchained) pool.unpin(unchained_block.prefix);
  }
}

std::uint32_t HitPlanner::worth_loading(std::uint32_t hits) const {
  // While copies to the device fail, only hits that are on the device already are of use.
  if (!state_.link.allows()) {
    const auto first_below = std::ranges::find_if(found_, [](Source source) { return source != Source::device; });
    return std::min(hits, static_cast<std::uint32_t>(first_below - found_.begin()));
  }
  if (!measures_loads()) return hits;
  // Without a stated prefill speed, hits in the host are always loaded: a learned speed decides only about storage and the shared
  // store.
  const Source measured_from = prefill_is_stated() ? Source::host : Source::storage;
  if (std::ranges::none_of(found_, [&](Source source) { return source >= measured_from; })) return hits;
  unit_costs_.assign(hits, {});
  for (std::size_t g = 0; g < groups_.size(); ++g) add_costs(g);
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
void HitPlanner::add_costs(std::size_t group) const {
  const GroupHit& hit = hits_[group];
  const LoadCosts& costs = groups_.pool_of(group).load_costs();
  // With a single group, look_up() writes the sources to found_ only.
  const std::span<const Source> sources = groups_.single() ? std::span{std::as_const(found_)} : std::span{hit.sources};
  for (std::uint32_t i = 0; i < sources.size(); ++i) {
    if (sources[i] == Source::device) continue;
    // In the prefix of a group, the blocks that a load is bringing follow those that the device has.
    const Found& found = hit.unchained.empty() ? hit.found : hit.unchained[i];
    const std::uint32_t place = hit.unchained.empty() ? i : 0;
    const bool joins = place >= found.on_device && place < found.on_device + found.filling;
    UnitCost& unit = unit_costs_[std::size_t{hit.first + i + 1} * groups_.rules()[group].units_per_block() - 1];
    if (joins) {
      (sources[i] == Source::shared    ? unit.joins_shared
       : sources[i] == Source::storage ? unit.joins_read
                                       : unit.joins_link) = true;
      continue;
    }
    if (prefill_is_stated()) unit.link_seconds += costs.link_seconds;
    if (sources[i] == Source::storage) {
      unit.read_seconds += costs.read_seconds;
      ++unit.reads;
    } else if (sources[i] == Source::shared) {
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

void HitPlanner::sum_needs(const RequestSize& r, std::span<std::uint32_t> needs) const {
  if (groups_.single()) {
    const Found& found = hits_.front().found;
    needs.front() = std::max(r.blocks_now, found.prefix.length) - found.on_device - found.filling;
    return;
  }
  std::ranges::fill(needs, 0);
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    const GroupHit& hit = hits_[g];
    const std::uint32_t to_load = hit.end - hit.first - hit.found.on_device - hit.found.filling;
    needs[groups_.rules()[g].config().pool.value()] += to_load + new_blocks(g, r, hit.end);
  }
}

bool HitPlanner::can_promise(std::span<const std::uint32_t> needs) const {
  for (std::size_t pool = 0; pool < groups_.pools().size(); ++pool) {
    if (!groups_.pools()[pool]->device_slots().can_promise(needs[pool])) return false;
  }
  return true;
}

bool HitPlanner::could_ever_fit(const RequestSize& r) const {
  if (groups_.single()) {
    needs_.front() = r.blocks;
    return fit_in_empty_pools(needs_);
  }
  std::ranges::fill(needs_, 0);
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    const GroupHit& hit = hits_[g];
    const bool all = groups_.rules()[g].chained() && hit.serves;
    needs_[groups_.rules()[g].config().pool.value()] +=
        all ? groups_.rules()[g].blocks_for(r.blocks) : hit.end - hit.first + new_blocks(g, r, hit.end);
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
