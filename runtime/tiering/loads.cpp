#include "runtime/tiering/loads.hpp"

#include "base/check.hpp"

#include <algorithm>

namespace terrace {

Loads::Loads(const ManagerConfig& config, Residency& residency, Departures& departures, HostRoom& host_room, Actions& actions,
             ManagerStats& stats)
    : instant_{config.instant_copies},
      exclusive_{config.relation == Relation::exclusive},
      residency_{residency},
      departures_{departures},
      host_room_{host_room},
      actions_{actions},
      stats_{stats} {}

Loads::LoadId Loads::new_load() {
  LoadId id = 0;
  if (free_.empty()) {
    id = static_cast<LoadId>(loads_.size());
    loads_.emplace_back();
  } else {
    id = free_.back();
    free_.pop_back();
  }
  TERRACE_CHECK(!loads_[id].in_use);
  loads_[id].in_use = true;
  ++open_;
  return id;
}

std::optional<Loads::LoadId> Loads::start(std::span<const LoadPart> parts, std::uint32_t waiter, Deadlines deadlines,
                                          bool by_layer) {
  TERRACE_CHECK(!parts.empty());
  const LoadId id = new_load();
  Load& load = loads_[id];
  for (std::uint32_t i = 0; i < parts.size(); ++i) {
    // A block that is no deeper than the one before it begins another path.
    if (i + 1 < parts.size() && parts[i + 1].block.depth > parts[i].block.depth) continue;
    const BlockRef last = parts[i].block;
    const Path path{last.node, last.depth + 1};
    residency_.tree().pin(path);
    load.stretches.push_back({path, i + 1, std::nullopt});
  }
  load.deadlines = deadlines;
  load.waiters.push_back(waiter);
  load.unfinished = load.unplanned = static_cast<std::uint32_t>(parts.size());
  load.by_layer = by_layer && !instant_;

  bool all_here = true;
  for (std::uint32_t i = 0; i < parts.size(); ++i) {
    const LoadPart& wanted = parts[i];
    Part part;
    part.block = wanted.block;
    part.device_slot = wanted.device_slot;
    part.source = wanted.source;
    residency_.begin_fill(wanted.block, Tier::device, wanted.device_slot);
    residency_.pool(Tier::device).set_job(wanted.device_slot, id, wanted.source);
    if (wanted.source == Tier::storage) {
      part.state = State::landing;
      landing_.push_back({id, i});
      ++load.unread;
      all_here = false;
    } else if (wanted.detached) {
      part.arena_slot = *wanted.detached;
      part.arena_slot_is_ours = true;
      landed_.push_back({id, i});
    } else {
      residency_.hold(wanted.block, Tier::host);
      part.arena_slot = residency_.copy(wanted.block, Tier::host).slot();
      landed_.push_back({id, i});
    }
    load.parts.push_back(part);
  }
  if (!instant_ || !all_here) return id;

  // Whoever executes the plan does so before anything else: the books run ahead of the bytes. The plan is made by flush().
  load.waiters.clear();
  return std::nullopt;
}

bool Loads::join(LoadId id, std::uint32_t waiter, bool by_layer) {
  loads_[id].by_layer |= by_layer && !instant_;
  auto& waiters = loads_[id].waiters;
  if (std::find(waiters.begin(), waiters.end(), waiter) != waiters.end()) return false;
  waiters.push_back(waiter);
  return true;
}

void Loads::leave(LoadId id, std::uint32_t waiter) {
  Load& load = loads_[id];
  if (std::erase(load.waiters, waiter) == 0 || !load.waiters.empty()) return;
  for (const Plan& plan : load.plans) actions_.cancels.push_back(plan.job);
}

std::uint32_t Loads::layers(LoadId id) const {
  const Load& load = loads_[id];
  if (load.unplanned > 0 || load.lost) return 0;
  std::uint32_t layers = all_layers;
  for (const Plan& plan : load.plans) layers = std::min(layers, plan.layers);
  return layers;
}

void Loads::set_layers(LoadId id, JobId job, std::uint32_t layers) {
  Load& load = loads_[id];
  const std::uint32_t before = this->layers(id);
  const auto plan = std::ranges::find(load.plans, job, &Plan::job);
  TERRACE_CHECK(plan != load.plans.end() && plan->layers <= layers);
  plan->layers = layers;
  if (!load.by_layer || this->layers(id) <= before) return;
  for (const std::uint32_t waiter : load.waiters) layers_(waiter, id);
}

bool Loads::on_layers(const TransferEvent& event) {
  const std::vector<PartRef>* const refs = plans_.find(event.job);
  if (refs == nullptr) return false;
  set_layers(refs->front().load, event.job, event.layers);
  return true;
}

Loads::LoadId Loads::load_of(BlockRef block) const {
  const SlotId slot = residency_.copy(block, Tier::device).slot();
  const LoadId id = residency_.pool(Tier::device).job(slot);
  TERRACE_CHECK(id < loads_.size() && loads_[id].in_use);
  return id;
}

bool Loads::pump() {
  bool changed = false;
  while (!landing_.empty()) {
    const PartRef ref = landing_.front();
    Part& part = loads_[ref.load].parts[ref.part];
    if (loads_[ref.load].waiters.empty()) {
      landing_.pop_front();
      --loads_[ref.load].unread;
      end_part(ref.load, ref.part, State::failed);
      changed = true;
      continue;
    }
    // A host copy serves the next swap-in too; where there is no room for one, staging does.
    std::optional<SlotId> slot;
    part.arena_slot_is_ours = true;
    if (lands_in_host() && !residency_.copy(part.block, Tier::host).present()) {
      slot = host_room_.take_for_landing(residency_.tree().name_space(part.block));
      if (slot) {
        residency_.begin_fill(part.block, Tier::host, *slot);
        part.arena_slot_is_ours = false;
      }
    }
    if (!slot) slot = residency_.take_staging();
    if (!slot) break;
    landing_.pop_front();
    part.arena_slot = *slot;
    part.state = State::reading;
    part.read = reads_.add({ref, part.block, *slot, part.arena_slot_is_ours});
    actions_.reads.push_back({part.read, residency_.tree().key(part.block), *slot});
    changed = true;
  }
  return changed;
}

void Loads::on_read(std::uint64_t token, ErrorCode error) {
  const Read read = reads_.take(token);
  if (!read.slot_is_ours) host_room_.has_landed();
  if (error) {
    if (read.slot_is_ours) {
      residency_.pool(Tier::host).put(read.slot);
    } else if (!read.abandoned) {
      residency_.fail_fill(read.block, Tier::host, FailedSlot::free);
    } else {
      // Its load let go of the path long ago: what came to stand on this copy meanwhile goes with it.
      const Path path{read.block.node, read.block.depth + 1};
      residency_.tree().pin(path);
      residency_.fail_fill(read.block, Tier::host, FailedSlot::free);
      residency_.unpin(path, read.block);
    }
  } else if (!read.slot_is_ours) {
    residency_.publish(read.block, Tier::host);
  }
  if (read.abandoned) {
    if (error) return;
    if (read.slot_is_ours) {
      residency_.pool(Tier::host).put(read.slot);
    } else {
      departures_.drop_unsupported(read.block, Tier::host);
    }
    return;
  }
  Part& part = loads_[read.part.load].parts[read.part.part];
  TERRACE_CHECK(part.state == State::reading);
  --loads_[read.part.load].unread;
  if (error) return end_part(read.part.load, read.part.part, State::failed);
  if (!read.slot_is_ours) residency_.hold(part.block, Tier::host);
  part.state = State::landed;
  landed_.push_back(read.part);
}

void Loads::on_time(TimePoint now) {
  for (LoadId id = 0; open_ > 0 && id < loads_.size(); ++id) {
    const Load& load = loads_[id];
    if (load.in_use && load.unread > 0 && load.deadlines.reads <= now) abandon_reads(id);
  }
}

TimePoint Loads::next_deadline() const {
  TimePoint next = never;
  for (LoadId id = 0; open_ > 0 && id < loads_.size(); ++id) {
    if (loads_[id].in_use && loads_[id].unread > 0) next = std::min(next, loads_[id].deadlines.reads);
  }
  return next;
}

/// The load ends without what storage has not given yet.
void Loads::abandon_reads(LoadId id) {
  Load& load = loads_[id];
  load.late = true;
  load.unread = 0;
  // Those that wait for a landing slot leave the line.
  for (std::size_t left = landing_.size(); left > 0; --left) {
    const PartRef ref = landing_.front();
    landing_.pop_front();
    if (ref.load != id) landing_.push_back(ref);
  }
  const auto parts = static_cast<std::uint32_t>(load.parts.size());
  for (std::uint32_t i = 0; i < parts; ++i) {
    Part& part = loads_[id].parts[i];
    if (part.state != State::landing && part.state != State::reading) continue;
    if (part.state == State::reading) reads_.at(part.read).abandoned = true;
    ++stats_.loads_late;
    // With the last one the load ends, and has no parts any more.
    if (const bool last = loads_[id].unfinished == 1; end_part(id, i, State::failed), last) return;
  }
}

void Loads::flush(std::uint64_t& last_plan, PoolId pool) {
  // One plan per load: a load's parts stand together.
  while (!landed_.empty()) {
    const LoadId id = landed_.front().load;
    TransferPlan plan;
    std::vector<PartRef> refs = spare_refs_.take();
    pairs_.clear();
    std::erase_if(landed_, [&](const PartRef& ref) {
      if (ref.load != id) return false;
      Part& part = loads_[id].parts[ref.part];
      part.state = State::crossing;
      refs.push_back(ref);
      pairs_.push_back({part.arena_slot, part.device_slot});
      plan.after = std::max(plan.after, residency_.pool(Tier::device).fence(part.device_slot));
      return true;
    });
    plan.pool = pool;
    plan.direction = Direction::swap_in;
    plan.urgency = Urgency::request;
    plan.deadline = loads_[id].deadlines.copies;
    plan.by_layer = loads_[id].by_layer;
    loads_[id].unplanned -= static_cast<std::uint32_t>(refs.size());
    plan.runs = actions_.spare_runs.take();
    coalesce(pairs_, plan.runs);
    const bool ends_now = instant_ && loads_[id].waiters.empty();
    if (!ends_now) crossing_ += static_cast<std::uint32_t>(refs.size());
    plan.job = plans_.add(last_plan, ends_now ? std::vector<PartRef>{} : std::move(refs));
    loads_[id].plans.push_back({plan.job});
    actions_.plans.push_back(std::move(plan));
    if (!ends_now) continue;
    for (const PartRef& ref : refs) end_part(ref.load, ref.part, State::arrived);
    spare_refs_.give(std::move(refs));
  }
}

bool Loads::on_event(const TransferEvent& event) {
  if (event.kind == TransferEvent::Kind::confirmed) return on_confirmed(event.job);
  if (event.kind == TransferEvent::Kind::layers) return on_layers(event);

  std::optional<std::vector<PartRef>> taken = plans_.take(event.job);
  if (!taken) return false;
  std::vector<PartRef>& refs = *taken;
  if (refs.empty()) return true;  // an instant load, long since ended
  crossing_ -= static_cast<std::uint32_t>(refs.size());
  TERRACE_CHECK(event.outcomes.size() == refs.size());
  const bool all_done = std::ranges::all_of(event.outcomes, [](BlockOutcome o) { return o == BlockOutcome::done; });
  const bool others_follow = loads_[refs.front().load].unfinished > refs.size();
  if (all_done && others_follow) set_layers(refs.front().load, event.job, all_layers);
  for (std::size_t i = 0; i < refs.size(); ++i) {
    Part& part = loads_[refs[i].load].parts[refs[i].part];
    TERRACE_CHECK(part.state == State::crossing);
    switch (event.outcomes[i]) {
      case BlockOutcome::done:
      case BlockOutcome::failed:
      case BlockOutcome::cancelled: {
        const bool arrived = event.outcomes[i] == BlockOutcome::done;
        end_part(refs[i].load, refs[i].part, arrived ? State::arrived : State::failed);
        break;
      }
      case BlockOutcome::unconfirmed:
        part.job = event.job;
        unconfirmed_[event.job].push_back(refs[i]);
        end_part(refs[i].load, refs[i].part, State::unconfirmed);
        break;
    }
  }
  spare_refs_.give(std::move(refs));
  return true;
}

/// No byte of the job's unconfirmed parts moves any more.
bool Loads::on_confirmed(JobId job) {
  if (const auto open = unconfirmed_.find(job); open != unconfirmed_.end()) {
    // Their load still waits for others; for these it is a failure like any other now.
    for (const PartRef ref : open->second) {
      Part& part = loads_[ref.load].parts[ref.part];
      TERRACE_CHECK(part.state == State::unconfirmed);
      part.state = State::failed;
      release_source(part);
    }
    unconfirmed_.erase(open);
    return true;
  }
  const auto closed = quarantined_.find(job);
  if (closed == quarantined_.end()) return false;
  for (const Part& part : closed->second) {
    residency_.pool(Tier::device).put(part.device_slot);
    release_source(part);
  }
  quarantined_.erase(closed);
  return true;
}

/// What the part was copied from is not needed any more. Not for parts whose transfer may still be under way.
void Loads::release_source(const Part& part) {
  if (part.arena_slot_is_ours) {
    residency_.pool(Tier::host).put(part.arena_slot);
  } else {
    departures_.reader_gone(part.block, Tier::host);
  }
}

void Loads::end_part(LoadId id, std::uint32_t index, State state) {
  Load& load = loads_[id];
  Part& part = load.parts[index];
  const bool crossed = part.state == State::crossing;
  part.state = state;
  if (crossed && state != State::unconfirmed) release_source(part);
  if (state != State::arrived) load.lost = true;
  TERRACE_CHECK(load.unfinished > 0);
  if (--load.unfinished == 0) finish(id);
}

void Loads::finish(LoadId id) {
  // Taken out first: the handlers may start other loads.
  Load load = std::exchange(loads_[id], {});
  --open_;

  auto stretch = load.stretches.begin();
  for (std::uint32_t i = 0; i < load.parts.size(); ++i) {
    const Part& part = load.parts[i];
    if (i == stretch->end) ++stretch;
    // (A block behind one that did not arrive has no ready parent.)
    if (part.state == State::arrived && residency_.supported(part.block, Tier::device)) {
      residency_.publish(part.block, Tier::device);
      if (exclusive_ && residency_.copy(part.block, Tier::host).state() == CopyState::ready) {
        residency_.drop(part.block, Tier::host);
      }
      continue;
    }
    if (!stretch->missing) stretch->missing = part.block;
    ++stats_.load_failures;
    if (part.state == State::unconfirmed) {
      unconfirmed_.erase(part.job);
      quarantined_[part.job].push_back(part);
    }
    residency_.fail_fill(part.block, Tier::device, part.state == State::unconfirmed ? FailedSlot::quarantine : FailedSlot::free);
  }
  for (const Stretch& each : load.stretches) {
    if (each.missing) failed_(*each.missing, load.late ? Late::yes : Late::no);
  }
  for (const std::uint32_t waiter : load.waiters) ended_(waiter, id);
  for (const Stretch& each : load.stretches) residency_.unpin(each.pin, each.missing);

  load.clear();
  loads_[id] = std::move(load);
  free_.push_back(id);
}

}  // namespace terrace
