// From "wanted" to "ready": the slots and the loads that a request waits for, and planning again.

#include "base/check.hpp"
#include "runtime/manager/requests.hpp"

#include <algorithm>

namespace terrace {

/// Pins what is there and takes or waits for the rest; nothing changed where it fails.
Result<void> Requests::plan(Index index, std::span<const BlockKey> keys) {
  Request& r = requests_[index];
  // A prefix that failed to load twice is computed rather than tried a third time.
  const Tier lowest = r.failures >= 2 ? Tier::device : r.lowest_tier;
  const std::span<const BlockKey> usable = keys.first(std::min<std::size_t>(keys.size(), r.hit_blocks_max));
  std::uint32_t hits = planner_.look_up(usable, lowest);
  if (r.drop_last_hit && hits > 0) hits = planner_.look_up(usable.first(hits - 1), lowest);
  std::uint32_t turned_down = hits;
  if (const std::uint32_t worth = planner_.worth_loading(hits); worth < hits)
    hits = planner_.look_up(usable.first(worth), lowest);
  turned_down -= hits;
  r.blocks_now = hits + std::min(r.blocks - hits, r.new_blocks_max);
  if (!planner_.could_ever_fit(r)) return Errc::never_fits;

  planner_.sum_needs(r, needs_);
  planner_.pin_hits();
  if (!planner_.can_promise(needs_)) {
    planner_.unpin_hits();
    return Errc::no_room;
  }
  state_.stats.turned_down += turned_down;
  take_hits(r, keys, hits);

  r.rooms_waited_for = 0;
  for (std::size_t pool = 0; pool < groups_.pools().size(); ++pool) {
    if (!groups_.pools()[pool]->take_or_wait(index, needs_[pool], r.tenant, r.own[pool])) ++r.rooms_waited_for;
  }
  if (r.rooms_waited_for > 0) {
    r.state = State::waiting_for_room;
  } else {
    start_loads(index);
  }
  return {};
}

/// What the last planner_.look_up() found, and holds, is the request's.
void Requests::take_hits(Request& r, std::span<const BlockKey> keys, std::uint32_t hits) {
  r.hits = hits;
  r.joined = 0;
  // Planned again, blocks keep the tier they were first found in.
  const std::size_t known = std::min<std::size_t>(r.found.size(), hits);
  r.found.resize(known);
  r.found.insert(r.found.end(), planner_.tiers().begin() + static_cast<std::ptrdiff_t>(known), planner_.tiers().begin() + hits);
  const bool is_first = r.stamp == 0;
  if (is_first) {
    r.stamp = ++state_.last_stamp;
    for (const auto& pool : groups_.pools()) pool->set_sample_time(r.stamp);
  }
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    const GroupHit& hit = planner_.hit(g);
    GroupPart& part = r.parts[g];
    TieredPool& pool = groups_.pool_of(g);
    part.serves = hit.serves;
    part.first = hit.first;
    part.end = part.committed = hit.end;
    state_.stats.joined += hit.found.filling;
    r.joined = std::max(r.joined, hit.found.filling * groups_.rules()[g].units_per_block());
    if (groups_.rules()[g].chained()) {
      part.prefix = hit.found.prefix;
      if (is_first) pool.sample_uses(groups_.keys_in(g, keys, 0).first(part.prefix.length));
      pool.hit(hit.found, r.stamp);
    }
    for (std::uint32_t i = 0; i < hit.unchained.size(); ++i) {
      part.unchained.push_back({hit.first + i, hit.unchained[i].prefix});
      if (is_first) pool.sample_uses(std::span{&pool.residency().tree().key(hit.unchained[i].prefix.last()), 1});
      pool.hit(hit.unchained[i], r.stamp);
    }
  }
}

/// What has happened in the pool, to the requests that wait for it.
void Requests::handle_events(TieredPool& pool) {
  if (!pool.has_events()) return;
  pool.take_served(served_);
  for (const DeviceSlotAllocator::Served& served : served_) on_served(pool.id(), served);
  pool.take_load_events(load_events_);
  for (const Loads::Event& event : load_events_) {
    switch (event.kind) {
      case Loads::Event::Kind::layers:
        for (const Index index : pool.loads().waiters(event.load)) tell_layers(index);
        break;
      case Loads::Event::Kind::missing: on_load_failed(pool.id(), event.block, event.late); break;
      case Loads::Event::Kind::ended:
        for (const Index index : pool.loads().waiters(event.load)) on_load_ended(index, {pool.id(), event.load});
        pool.close_load(event.load);
        break;
    }
  }
  TERRACE_CHECK(!pool.has_events());
}

void Requests::on_served(PoolId pool, const DeviceSlotAllocator::Served& served) {
  Request& r = requests_[served.waiter];
  TERRACE_CHECK(r.state == State::waiting_for_room);
  r.own[pool.value()].push_back(served.slot);
  if (served.last && --r.rooms_waited_for == 0) start_loads(served.waiter);
}

/// A hit, while the request waits for it.
BlockRef Requests::hit_block(const GroupPart& part, std::size_t group, std::uint32_t block) const {
  return groups_.rules()[group].chained() ? BlockRef{part.prefix.node, block} : part.unchained[block - part.first].prefix.last();
}

/// The device copies of the part's hits, to row_.
void Requests::read_hits(const GroupPart& part, std::size_t group) {
  const Residency& residency = groups_.pool_of(group).residency();
  row_.resize(part.end - part.first);
  if (groups_.rules()[group].chained()) {
    residency.tree().read(part.prefix, Tier::device, 0, row_);
    return;
  }
  for (std::size_t i = 0; i < row_.size(); ++i) row_[i] = residency.copy(part.unchained[i].prefix.last(), Tier::device);
}

/// Gives each of the group's hits that is not on the device a slot and notes where its bytes are; joins the load that brings it
/// already. False where one is gone.
bool Requests::collect_loads(Index index, std::size_t group) {
  Request& r = requests_[index];
  const GroupPart& part = r.parts[group];
  const PoolId pool_id = groups_.rules()[group].config().pool;
  TieredPool& pool = groups_.at(pool_id);
  std::vector<LoadPart>& parts = load_parts_[group];
  parts.clear();
  read_hits(part, group);
  for (std::uint32_t i = part.first; i < part.end; ++i) {
    const Copy on_device = row_[i - part.first];
    if (on_device.usable()) continue;
    const BlockRef block = hit_block(part, group, i);
    if (on_device.present()) {
      const LoadRef load{pool_id, pool.loads().load_of(block)};
      if (pool.join_load(load.load, index, r.by_layer)) r.loads.push_back(load);
      continue;
    }
    LoadPart wanted;
    wanted.block = groups_.rules()[group].chained() ? pool.residency().tree().at(part.prefix, i) : block;
    if (pool.residency().usable(block, Tier::host)) {
      wanted.source = Tier::host;
    } else if (pool.residency().stored(block) && r.lowest_tier == Tier::storage) {
      wanted.source = Tier::storage;
    } else {
      return false;  // the tier it was in gave it up while the request waited for room
    }
    std::size_t& used = used_[pool_id.value()];
    TERRACE_CHECK(used < r.own[pool_id.value()].size());
    wanted.device_slot = r.own[pool_id.value()][used++];
    parts.push_back(wanted);
  }
  return true;
}

/// All slots are there: what is not on the device is loaded.
void Requests::start_loads(Index index) {
  Request& r = requests_[index];
  r.state = State::loading;
  std::ranges::fill(used_, 0);
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    if (collect_loads(index, g)) continue;
    ++state_.stats.load_failures;
    undo(index);
    to_replan_.push_back(index);
    return;
  }

  // Others may have loaded meanwhile what this request had planned to load itself.
  std::ranges::fill(needs_, 0);
  for (std::size_t g = 0; g < groups_.size(); ++g)
    needs_[groups_.rules()[g].config().pool.value()] += planner_.new_blocks(g, r, r.parts[g].end);
  for (std::size_t pool = 0; pool < groups_.pools().size(); ++pool) {
    std::vector<SlotId>& own = r.own[pool];
    own.erase(own.begin(), own.begin() + static_cast<std::ptrdiff_t>(used_[pool]));
    TERRACE_CHECK(own.size() >= needs_[pool]);
    groups_.pools()[pool]->free_slots(std::span{own}.subspan(needs_[pool]));
    own.resize(needs_[pool]);
  }
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    if (load_parts_[g].empty()) continue;
    const PoolId pool = groups_.rules()[g].config().pool;
    r.loads.push_back(
        {pool, groups_.at(pool).start_load(load_parts_[g], index, {r.deadline, planner_.reads_wanted_by(r.found)}, r.by_layer)});
  }
  if (requests_[index].loads.empty()) return become_ready(index);
  tell_layers(index);  // it may have joined a load that is well on its way
}

void Requests::make_tables(Request& r) {
  std::ranges::fill(used_, 0);
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    GroupPart& part = r.parts[g];
    part.table.assign(part.first, groups_.null_of(g));
    read_hits(part, g);
    for (const Copy copy : row_) part.table.push_back(copy.slot());
    const std::uint32_t count = planner_.new_blocks(g, r, part.end);
    if (groups_.rules()[g].cached()) {
      const std::uint32_t to = std::max(groups_.rules()[g].blocks_for(r.blocks_now), part.end);
      part.table.resize(to - count, groups_.null_of(g));
    }
    const std::size_t pool = groups_.rules()[g].config().pool.value();
    const auto from = r.own[pool].begin() + static_cast<std::ptrdiff_t>(used_[pool]);
    part.table.insert(part.table.end(), from, from + count);
    used_[pool] += count;
    part.given_up = part.first;
  }
}

/// Once told of layers, the request has its tables, of the same slots.
void Requests::become_ready(Index index) {
  Request& r = requests_[index];
  if (r.layers == 0) make_tables(r);
  for (std::vector<SlotId>& own : r.own) own.clear();
  r.state = State::ready;
  deadlines_.erase(index);
  withdraw_layers(r);
  if (!r.quarantined_until) count_ready(r);
  if (r.announce) events_.push_back({r.id, {}});
}

void Requests::count_ready(const Request& r) {
  const RequestStats found = stats_of(r);
  RequestTotals& totals = r.preempted ? state_.stats.preempted : state_.stats.requests;
  const auto add = [this](std::uint64_t& total, std::uint32_t blocks) { total += std::uint64_t{blocks} * groups_.unit_tokens(); };
  ++totals.requests;
  add(totals.asked, found.blocks);
  add(totals.device, found.device);
  add(totals.host, found.host);
  add(totals.storage, found.storage);
  add(totals.external, found.external);
  add(totals.miss, found.miss);
}

/// What all of the request's loads have by now, where that is more than it was told of.
void Requests::tell_layers(Index index) {
  Request& r = requests_[index];
  if (!r.by_layer || r.state != State::loading) return;
  std::uint32_t layers = Loads::all_layers;
  for (const LoadRef load : r.loads) layers = std::min(layers, groups_.at(load.pool).loads().layers(load.load));
  if (layers <= r.layers || layers == Loads::all_layers) return;
  if (r.layers == 0) make_tables(r);
  r.layers = layers;
  const bool has_event = !events_.empty() && events_.back().id == r.id && !events_.back().ends_wait();
  if (!has_event) events_.push_back({r.id, {}});
  events_.back().layers = layers;
}

/// The wait has ended: layers of which nobody has heard yet are no news any more.
void Requests::withdraw_layers(const Request& r) {
  if (r.layers == 0 || r.quarantined_until) return;
  std::erase_if(events_, [&](const RequestEvent& event) { return event.id == r.id && !event.ends_wait(); });
}

/// A pending request lets go of everything.
void Requests::undo(Index index) {
  let_go_of_hits(index);
  let_go_of_room(index);
}

void Requests::let_go_of_hits(Index index) {
  Request& r = requests_[index];
  for (const LoadRef load : r.loads) groups_.at(load.pool).leave_load(load.load, index);
  r.loads.clear();
  r.hits = 0;
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    TieredPool& pool = groups_.pool_of(g);
    if (groups_.rules()[g].chained()) pool.unpin_incomplete(r.parts[g].prefix);
    for (const UnchainedBlock& unchained_block : r.parts[g].unchained) pool.unpin_incomplete(unchained_block.prefix);
    r.parts[g].clear();
  }
}

void Requests::let_go_of_room(Index index) {
  Request& r = requests_[index];
  r.rooms_waited_for = 0;
  for (std::size_t pool = 0; pool < groups_.pools().size(); ++pool) {
    groups_.pools()[pool]->stop_waiting(index);
    groups_.pools()[pool]->free_slots(r.own[pool]);
    r.own[pool].clear();
  }
}

void Requests::fail(Index index, ErrorCode error) {
  Request& r = requests_[index];
  deadlines_.erase(index);
  let_go_of_hits(index);
  // Told of layers, its caller may have launched what writes the new blocks: they are nobody else's before it is released.
  if (r.layers == 0) let_go_of_room(index);
  std::erase(to_replan_, index);
  withdraw_layers(r);
  r.state = State::failed;
  if (!r.quarantined_until) events_.push_back({r.id, error});
}

/// Every pending request that counts on the block lets go of its prefix and plans again; one that was told of layers fails, since
/// its caller has begun to compute with what is not coming.
void Requests::on_load_failed(PoolId pool, BlockRef missing, Loads::Late late) {
  const PrefixTree& tree = groups_.at(pool).residency().tree();
  for (Index index = 0; index < requests_.size(); ++index) {
    Request& r = requests_[index];
    if (r.state != State::waiting_for_room && r.state != State::loading) continue;
    const auto counts_on_it = [&](std::size_t g) {
      const GroupPart& part = r.parts[g];
      if (groups_.rules()[g].config().pool != pool) return false;
      if (groups_.rules()[g].chained()) return part.end > missing.depth && tree.same({part.prefix.node, missing.depth}, missing);
      return std::ranges::any_of(part.unchained, [&](const UnchainedBlock& i) { return tree.same(i.prefix.last(), missing); });
    };
    bool counts = false;
    for (std::size_t g = 0; g < groups_.size(); ++g) counts |= counts_on_it(g);
    if (!counts) continue;
    ++r.failures;
    if (late == Loads::Late::yes) r.lowest_tier = std::min(r.lowest_tier, Tier::host);  // storage is not tried again
    if (r.layers > 0) {
      let_go_of_hits(index);
    } else {
      undo(index);
    }
    to_replan_.push_back(index);
  }
}

void Requests::on_load_ended(Index index, LoadRef load) {
  Request& r = requests_[index];
  // A request that planned again, or was released, does not wait for this load any more.
  if (r.state != State::loading || std::erase(r.loads, load) == 0) return;
  if (r.loads.empty()) become_ready(index);
  else tell_layers(index);
}

void Requests::replan_failed() {
  while (!to_replan_.empty()) {
    const Index index = to_replan_.front();
    to_replan_.erase(to_replan_.begin());
    if (requests_[index].layers > 0) {
      fail(index, Errc::load_failed);
      continue;
    }
    ++state_.stats.replans;
    if (const Result<void> planned = plan(index, requests_[index].keys); !planned) fail(index, planned.error());
  }
}

}  // namespace terrace
