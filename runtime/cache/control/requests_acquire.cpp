// The story of acquire, from the call to a ready request: how a request is planned, and what it may wait for (an answer of the
// shared store, a prefetch, slots, loads).

#include "base/check.hpp"
#include "base/failure.hpp"
#include "runtime/cache/control/requests.hpp"

#include <algorithm>
#include <utility>

namespace terrace {

// ---- acquire: accept, plan, take the hits and the slots

Result<Requests::Index> Requests::begin(const AcquireRequest& wanted) {
  const Result<Index> accepted = accept(wanted);
  if (accepted) return accepted;
  ManagerStats& stats = state_.stats;
  if (accepted.error() == Errc::no_room) ++stats.refused_no_room;
  else if (accepted.error() == Errc::never_fits) ++stats.refused_never_fits;
  else if (accepted.error() == Errc::paused) ++stats.refused_paused;
  else ++stats.refused_invalid;
  return accepted;
}

/// Does all of begin(), except that it does not count refusals. If it refuses, nothing has changed.
Result<Requests::Index> Requests::accept(const AcquireRequest& wanted) {
  const std::size_t needed = wanted.units == 0 ? wanted.keys.size() : wanted.units.value();
  if (needed == 0) return failure<Errc::invalid_argument, "the request has neither keys nor units, so it needs no block">;
  if (wanted.keys.size() > needed) {
    return failure<Errc::invalid_argument, "there are more keys than units: units counts all blocks of the request">;
  }
  if (needed > std::numeric_limits<std::uint32_t>::max()) return Errc::never_fits;
  if (by_id_.contains(wanted.id)) return failure<Errc::duplicate_request, "a lease of this request id is alive">;
  if (state_.status != CacheStatus::normal) return Errc::paused;
  if (quarantined_.size() >= quarantined_max) return Errc::no_room;
  // A request gets at most request_units_max units, which stands for the context length of the model. It is not refused if it
  // asks for more: the units beyond the maximum, and their keys, are ignored.
  const auto all = static_cast<std::uint32_t>(needed);
  const std::uint32_t units_max = state_.config.request_units_max > 0 ? state_.config.request_units_max : all;
  const std::span<const BlockKey> keys = wanted.keys.first(std::min<std::size_t>(wanted.keys.size(), units_max));

  const Index index = new_request();
  {
    Request& r = requests_[index];
    r.id = wanted.id;
    r.blocks = std::min(all, units_max);
    r.key_count = static_cast<std::uint32_t>(keys.size());
    r.hit_units_max = state_.config.caching ? wanted.hit_units_max.value() : 0;
    r.new_units_max = wanted.new_units_max.value();
    r.room_left = wanted.room_left;
    r.external_units = wanted.external_units.value();
    r.preempted = wanted.preempted;
    r.encoder_tokens = wanted.encoder_tokens;
    r.drop_last_hit = wanted.drop_last_hit;
    r.farthest = std::min(wanted.farthest_source, all_sources.back());
    r.may_look = state_.shared_usable && r.farthest >= Source::shared;
    r.tenant = wanted.tenant;
    r.deadline = wanted.deadline;
    r.phase_begun = state_.now;
    r.by_layer = wanted.by_layer;
    r.keys = keys;
    r.epoch = state_.epoch;
  }
  if (const Result<void> planned = plan(index, keys); !planned) {
    forget(index);
    return planned.error();
  }
  ++state_.stats.acquired;
  by_id_.emplace(wanted.id, index);
  if (requests_[index].state != State::ready) {
    Request& r = requests_[index];
    r.announce = true;
    if (r.deadline != never) deadlines_.set(index, r.deadline);
  }
  return index;
}

/// Pins the hits of the request, and takes slots for its other blocks or waits for them. If it fails, it changes nothing. Only a
/// new request fails with never_fits. A request that is planned again was accepted before, and its pool may have become smaller
/// since: it continues if there are slots for the blocks that it needs now.
Result<void> Requests::plan(Index index, std::span<const BlockKey> keys) {
  Request& r = requests_[index];
  // After two failed loads the request takes only hits on the device, and computes the rest.
  const Source farthest = r.failures >= 2 ? Source::device : r.farthest;
  const std::span<const BlockKey> usable = keys.first(std::min<std::size_t>(keys.size(), r.hit_units_max));
  const auto look_up = [&](std::size_t units) {
    if (farthest >= Source::shared) planner_.find_hit(usable.first(units), farthest, r.shared, hit_);
    else planner_.find_hit(usable.first(units), farthest, hit_);
  };
  look_up(usable.size());
  const std::uint32_t found = hit_.units;
  // If the keys are those of an earlier hit (recall_keys), the last hit was dropped then, and its key is not included.
  const bool was_dropped = r.keys_are_hits && found == usable.size();
  if (r.drop_last_hit && found > 0 && !was_dropped) look_up(found - 1);
  std::uint32_t turned_down = hit_.units;
  if (const std::uint32_t worth = planner_.worth_loading(hit_); worth < hit_.units) look_up(worth);
  const std::uint32_t hits = hit_.units;
  turned_down -= hits;
  r.blocks_now = hits + std::min(r.blocks - hits, r.new_units_max);
  const bool is_new = r.state == State::unused;
  if (is_new && !planner_.could_ever_fit(r, hit_)) {
    if (groups_.pools().front()->sizes().device_blocks > 0) return Errc::never_fits;
    return failure<Errc::never_fits,
                   "the cache has no device slots of its own: with engine_owns_slots, order loads and stores by an OffloadCache">;
  }
  if (is_new && prefetches_.running() > 0 && waits_for_prefetch(index, usable)) return {};
  // A request that does not take all hits of the tiers does not want blocks after them.
  std::optional<SharedQuestions::Question> question;
  if (std::exchange(r.may_look, false) && turned_down == 0) {
    question = questions_.worth_asking(usable, found, hits, r.farthest, r.shared);
  }

  planner_.sum_needs(r, hit_, needs_);
  planner_.pin_hit(hit_, usable, r.tenant);
  // The hits are pinned first, so that they do not count as evictable when slots are promised. A request for which there is no
  // room now fails before it asks the shared store.
  if (!planner_.can_promise(needs_, is_new ? r.room_left : 0)) {
    planner_.unpin_hit(hit_);
    return Errc::no_room;
  }
  if (question) {
    begin_look(index, *question);
    return {};
  }
  state_.stats.turned_down += turned_down;
  if (state_.misses.on() && r.failures == 0) note_misses(usable, hits, hits + turned_down);
  take_hits(r, keys);

  r.pools_waited_for = 0;
  for (std::size_t pool = 0; pool < groups_.pools().size(); ++pool) {
    if (!groups_.pools()[pool]->take_or_wait(index, needs_[pool], r.tenant, r.own[pool])) ++r.pools_waited_for;
  }
  if (r.pools_waited_for > 0) {
    r.state = State::waiting_for_slots;
    join_loads(index);
  } else {
    start_loads(index);
  }
  return {};
}

/// Makes hit_ the hit of the request. The request owns its pins from now on.
void Requests::take_hits(Request& r, std::span<const BlockKey> keys) {
  const std::uint32_t hits = hit_.units;
  r.hits = hits;
  r.joined = 0;
  // If the request is planned again, its blocks keep the source in which they were found first.
  const std::size_t known = std::min<std::size_t>(r.found.size(), hits);
  r.found.resize(hits, Source::device);
  const bool on_device = hit_.all_on_device();
  r.all_on_device = on_device && (known == 0 || r.all_on_device);
  if (!on_device) {
    std::ranges::copy(hit_.sources().subspan(known), r.found.begin() + static_cast<std::ptrdiff_t>(known));
  }
  const bool is_first = r.stamp == 0;
  if (is_first) {
    r.stamp = state_.new_stamps();
    for (const auto& pool : groups_.pools()) pool->sample().set_now(r.stamp);
  }
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    const GroupHit& hit = hit_.groups[g];
    GroupPart& part = r.parts[g];
    TieredPool& pool = groups_.pool_of(g);
    const bool samples = is_first && pool.sample().on();
    part.serves = hit.serves;
    part.on_device = groups_.rules()[g].chained() && hit.found.on_device == hit.found.prefix.length;
    part.first = hit.first;
    part.end = part.committed = hit.end;
    state_.stats.joined += hit.found.filling;
    r.joined = std::max(r.joined, hit.found.filling * groups_.rules()[g].units_per_block());
    if (groups_.rules()[g].chained()) {
      part.prefix = hit.found.prefix;
      if (samples) pool.sample().used(groups_.keys_in(g, keys, 0).first(part.prefix.length));
      pool.hit(hit.found, r.stamp);
    }
    for (std::uint32_t i = 0; i < hit.unchained.size(); ++i) {
      part.unchained.push_back({hit.first + i, hit.unchained[i].prefix});
      if (samples) pool.sample().used(std::span{&pool.residency().tree().key(hit.unchained[i].prefix.last()), 1});
      pool.hit(hit.unchained[i], r.stamp);
    }
  }
}

/// Counts the misses of the request: the units after its hits, which it computes. The units up to `found` were turned down: they
/// could have been loaded. Only the blocks of the first group are counted.
void Requests::note_misses(std::span<const BlockKey> usable, std::uint32_t hits, std::uint32_t found) {
  const std::uint32_t units = groups_.rules().front().units_per_block();
  std::uint32_t at = hits / units * units;
  for (const BlockKey& key : groups_.keys_in(0, usable, hits / units)) {
    if (at < found) state_.misses.turned_down(key, units);
    else state_.misses.missed(key, units);
    at += units;
  }
}

// ---- before the plan: the answer of the shared store, or the end of a prefetch

/// Asks the shared store. The hit is pinned, and the request owns these pins from now on. It holds nothing else until the answer
/// comes.
void Requests::begin_look(Index index, const SharedQuestions::Question& question) {
  Request& r = requests_[index];
  r.state = State::looking;
  r.looked = true;
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    const GroupHit& hit = hit_.groups[g];
    TieredPool& pool = groups_.pool_of(g);
    if (groups_.rules()[g].chained()) {
      r.parts[g].prefix = hit.found.prefix;
      if (hit.found.evicting) pool.cancel_evictions(hit.found.prefix);
    }
    for (std::uint32_t i = 0; i < hit.unchained.size(); ++i) {
      r.parts[g].unchained.push_back({hit.first + i, hit.unchained[i].prefix});
      if (hit.unchained[i].evicting) pool.cancel_evictions(hit.unchained[i].prefix);
    }
  }
  questions_.ask({SharedQuestions::Asker::Kind::request, index}, question, r.deadline);
}

void Requests::on_answer(SharedQuestions::Answer& answer) {
  const auto index = static_cast<Index>(answer.asker.number);
  Request& r = requests_[index];
  TERRACE_CHECK(r.state == State::looking);
  end_phase(r, r.waits.looking);
  r.shared.set(answer.end, std::move(answer.there));
  release_hits(index);
  if (const Result<void> planned = plan(index, r.keys); !planned) fail(index, planned.error());
}

/// For a new request, after the look-up of `usable`. If a prefetch is bringing the first block that neither the device nor the
/// host tier has, makes the request wait for it, and returns true. The request holds nothing until the prefetch has ended.
bool Requests::waits_for_prefetch(Index index, std::span<const BlockKey> usable) {
  const std::uint32_t near = hit_.near_units();
  Request& r = requests_[index];
  if (near == usable.size() || !prefetches_.join(index, usable, near, r.farthest)) return false;
  r.state = State::looking;
  return true;
}

void Requests::stop_looking(Index index) {
  questions_.leave({SharedQuestions::Asker::Kind::request, index});
  prefetches_.leave(index);
}

void Requests::resume_waiting() {
  prefetches_.take_resumed(resumed_);
  for (Prefetches::Resumed& resumed : resumed_) {
    Request& r = requests_[resumed.request];
    TERRACE_CHECK(r.state == State::looking);
    end_phase(r, r.waits.looking);
    r.may_look = r.may_look && state_.shared_usable && !resumed.asked;
    r.shared = std::move(resumed.answer);
    if (const Result<void> planned = plan(resumed.request, r.keys); !planned) fail(resumed.request, planned.error());
  }
}

// ---- slots and loads, until it is ready

void Requests::handle_events(TieredPool& pool) {
  // If a handler below makes a request leave a load, that may add events.
  while (pool.has_events()) {
    pool.device_slots().take_served(served_, served_slots_);
    std::span<const SlotId> slots{served_slots_};
    for (const DeviceSlotAllocator::Served& served : served_) {
      on_served(pool.id(), served, slots.first(served.slots));
      slots = slots.subspan(served.slots);
    }
    pool.loads().take_events(load_events_);
    for (const Loads::Event& event : load_events_) handle(pool, event);
  }
}

void Requests::handle(TieredPool& pool, const Loads::Event& event) {
  switch (event.kind) {
    case Loads::Event::Kind::layers:
      for (const Index index : pool.loads().waiters(event.load)) report_layers(index);
      break;
    case Loads::Event::Kind::missing: on_load_failed({pool.id(), event.load}, event); break;
    case Loads::Event::Kind::ended:
      for (const Index index : pool.loads().waiters(event.load)) on_load_ended(index, {pool.id(), event.load});
      pool.loads().close(event.load);
      break;
  }
}

void Requests::on_served(PoolId pool, const DeviceSlotAllocator::Served& served, std::span<const SlotId> slots) {
  Request& r = requests_[served.waiter];
  TERRACE_CHECK(r.state == State::waiting_for_slots);
  std::vector<SlotId>& own = r.own[pool.value()];
  own.insert(own.end(), slots.begin(), slots.end());
  if (!served.last || --r.pools_waited_for > 0) return;
  end_phase(r, r.waits.room);
  start_loads(served.waiter);
}

/// Reads the tier's copies of the part's hits into `row`.
void Requests::read_hits(const GroupPart& part, std::size_t group, Tier tier, std::vector<Copy>& row) const {
  const Residency& residency = groups_.pool_of(group).residency();
  row.resize(part.end - part.first);
  if (groups_.rules()[group].chained()) {
    residency.tree().read(part.prefix, tier, 0, row);
    return;
  }
  for (std::size_t i = 0; i < row.size(); ++i) row[i] = residency.copy(part.unchained[i].prefix.last(), tier);
}

/// Makes the request a waiter of the load that is bringing this block to the device, unless it is one already.
void Requests::join_load(Index index, PoolId pool, BlockRef block) {
  Request& r = requests_[index];
  const LoadRef load{pool, groups_.at(pool).loads().load_of(block)};
  if (waits_for(r, load)) return;
  groups_.at(pool).loads().join(load.load, index, load_deadlines(r), r.by_layer);
  r.loads.push_back(load);
}

/// For a request that has just been planned, and waits for slots. It has no slots for hits that loads are bringing to the device.
/// So it joins these loads, and they continue even if the requests that started them leave.
void Requests::join_loads(Index index) {
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    if (hit_.groups[g].found.filling == 0) continue;
    const GroupPart& part = requests_[index].parts[g];
    read_hits(part, g, Tier::device, row_);
    for (std::uint32_t i = part.first; i < part.end; ++i) {
      const bool filling = row_[i - part.first].state() == CopyState::filling;
      if (filling) join_load(index, groups_.rules()[g].config().pool, hit_block(part, g, i));
    }
  }
}

/// Looks at the group's hits that are not on the device. If a load is bringing a block already, joins that load. Otherwise adds
/// the block to planned_loads_, with a slot of the request and the source that has its bytes. Returns false if no source that the
/// request may use has a block any more.
bool Requests::collect_loads(Index index, std::size_t group) {
  Request& r = requests_[index];
  const GroupPart& part = r.parts[group];
  const PoolId pool = groups_.rules()[group].config().pool;
  const Residency& residency = groups_.at(pool).residency();
  PlannedLoad& planned = planned_loads_[group];
  planned.runs.clear();
  planned.slots.clear();
  if (part.on_device) return true;
  read_hits(part, group, Tier::device, row_);
  read_hits(part, group, Tier::host, host_row_);
  const bool chained = groups_.rules()[group].chained();
  Run node;  // chained: the blocks of the node that holds the hit
  std::uint32_t size = 0;
  std::uint32_t next = 0;
  for (std::uint32_t i = part.first; i < part.end; i = next) {
    next = i + 1;
    const Copy on_device = row_[i - part.first];
    if (on_device.usable()) continue;
    if (on_device.present()) {
      join_load(index, pool, hit_block(part, group, i));
      continue;
    }
    if (chained && i >= node.end) node = residency.tree().blocks_in(residency.tree().at(part.prefix, i).node).value();
    const BlockRef block = chained ? BlockRef{node.node, i} : hit_block(part, group, i);
    Source source = Source::host;
    if (host_row_[i - part.first].usable()) {
      const std::uint32_t end = chained ? std::min(node.end, part.end) : next;
      while (next < end && !row_[next - part.first].present() && host_row_[next - part.first].usable()) ++next;
    } else if (residency.stored(block) && r.farthest >= Source::storage) {
      source = Source::storage;
    } else if (r.farthest >= Source::shared && r.shared.has(group, i)) {
      source = Source::shared;
    } else {
      return false;  // the block was evicted while the request waited for slots
    }
    const Run run{block.node, block.depth, block.depth + (next - i)};
    size += run.size();
    LoadRun* const last = planned.runs.empty() ? nullptr : &planned.runs.back();
    const bool follows =
        last != nullptr && last->source == source && last->blocks.node == run.node && last->blocks.end == run.begin;
    if (follows) last->blocks.end = run.end;
    else planned.runs.push_back({run, source});
  }
  std::size_t& used = used_[pool.value()];
  const std::vector<SlotId>& own = r.own[pool.value()];
  TERRACE_CHECK(used + size <= own.size());
  const auto first = own.begin() + static_cast<std::ptrdiff_t>(used);
  planned.slots.assign(first, first + size);
  used += size;
  return true;
}

/// The request has all its slots: starts the loads of the hits that are not on the device.
void Requests::start_loads(Index index) {
  Request& r = requests_[index];
  r.state = State::loading;
  if (std::ranges::all_of(r.parts, &GroupPart::on_device)) return become_ready(index);  // there is nothing to load
  std::ranges::fill(used_, 0);
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    if (collect_loads(index, g)) continue;
    ++state_.stats.load_failures;
    recall_keys(r);
    undo(index);
    to_replan_.push_back(index);
    return;
  }

  // While this request waited for slots, other requests may have loaded some of these blocks. The slots for them are not needed,
  // and are freed.
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
    const PlannedLoad& planned = planned_loads_[g];
    if (planned.runs.empty()) continue;
    const PoolId pool = groups_.rules()[g].config().pool;
    r.loads.push_back({pool, groups_.at(pool).loads().start(planned.runs, planned.slots, index, load_deadlines(r), r.by_layer)});
  }
  if (requests_[index].loads.empty()) return become_ready(index);
  report_layers(index);  // a load that it has joined may have brought layers already
}

/// Makes the block tables: first null blocks, then the hits, then the slots that the request owns.
void Requests::make_tables(Request& r) {
  std::ranges::fill(used_, 0);
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    GroupPart& part = r.parts[g];
    part.table.resize(part.end);
    const bool is_prefix = part.end > 0 && part.prefix.length == part.end;  // a chained group that serves the hit
    const bool at_once = is_prefix && groups_.pool_of(g).residency().tree().read_slots(part.prefix, Tier::device, part.table);
    if (!at_once) {
      read_hits(part, g, Tier::device, row_);
      std::fill_n(part.table.begin(), part.first, groups_.null_of(g));
      std::ranges::transform(row_, part.table.begin() + part.first, &Copy::slot);
    }
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

void Requests::become_ready(Index index) {
  Request& r = requests_[index];
  // If layers were reported, the tables have been made then, with the same slots.
  if (r.layers == 0) make_tables(r);
  for (std::vector<SlotId>& own : r.own) own.clear();
  r.state = State::ready;
  tie_companions(r, Tie::all);
  deadlines_.erase(index);
  withdraw_layers(r);
  if (!r.quarantined_until) count_ready(r);
  if (r.announce) events_.push_back({r.id, {}});
}

void Requests::count_ready(const Request& r) {
  const RequestStats stats = stats_of(r);
  RequestTotals& totals = r.preempted ? state_.stats.preempted : state_.stats.requests;
  const auto add = [this](std::uint64_t& total, std::uint32_t blocks) { total += std::uint64_t{blocks} * groups_.unit_tokens(); };
  ++totals.requests;
  add(totals.asked, stats.units);
  for (const Source source : all_sources) add(totals.found[source], stats.found[source]);
  add(totals.external, stats.external);
  add(totals.miss, stats.miss);
}

/// If the request has nothing to wait for, it is ready by now. If it has failed by now, the answer is `pending`, too: the event
/// tells the error.
Acquired Requests::settled(Index index) {
  Request& r = requests_[index];
  if (r.state == State::ready) {
    // The result `ready` replaces the event.
    if (r.announce) std::erase_if(events_, [&](const RequestEvent& event) { return event.id == r.id; });
    r.announce = false;
    return Acquired::ready;
  }
  keep_keys(r);
  return Acquired::pending;
}

/// The request is pending, and the caller's keys are not valid after this call. While the request waits for slots or loads, it
/// pins its hits, and the tree has their keys (recall_keys). So no copy is made then: it would take as long as planning the loads
/// of a long prompt.
void Requests::keep_keys(Request& r) {
  if (groups_.single() && r.state != State::looking) {
    r.keys = {};
    return;
  }
  r.kept_keys.assign(r.keys.begin(), r.keys.end());
  r.keys = r.kept_keys;
}

/// Reports the number of leading layers that all loads of the request have brought, if it has grown since the last report.
void Requests::report_layers(Index index) {
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

/// The wait has ended: removes an event about layers that the owner has not taken yet.
void Requests::withdraw_layers(const Request& r) {
  if (r.layers == 0 || r.quarantined_until) return;
  std::erase_if(events_, [&](const RequestEvent& event) { return event.id == r.id && !event.ends_wait(); });
}

}  // namespace terrace
