#include "runtime/cache/control/prefetches.hpp"

#include "base/check.hpp"
#include "base/failure.hpp"

#include <algorithm>
#include <utility>

namespace terrace {

Result<void> Prefetches::accepts(const PrefetchOrder& order) const {
  if (state_.status != CacheStatus::normal) return Errc::paused;
  if (order.keys.empty()) return failure<Errc::invalid_argument, "there are no keys: the prompt has no full block">;
  if (order.farthest_source <= Source::host) {
    return failure<Errc::invalid_argument, "blocks are prefetched from storage or the shared store: `farthest_source` is nearer">;
  }
  if (!state_.config.caching) return failure<Errc::invalid_argument, "caching is off">;
  for (const TieredPool* const pool : groups_.pools()) {
    if (pool->sizes().engine_blocks > 0) {
      return failure<Errc::invalid_argument, "the device slots are the engine's: order a load to the host tier instead">;
    }
    if (pool->sizes().host_blocks == 0) {
      return failure<Errc::invalid_argument, "blocks are prefetched to the host tier, and there is none">;
    }
  }
  if (running_.size() >= running_max) return Errc::refused;
  return {};
}

Result<PrefetchId> Prefetches::begin(const PrefetchOrder& order) {
  if (const Result<void> accepted = accepts(order); !accepted) {
    ++state_.prefetches.refused;
    return accepted.error();
  }
  ++state_.prefetches.orders;
  last_id_ = PrefetchId{last_id_.value() + 1};
  const std::size_t units_max = state_.config.request_units_max > 0 ? state_.config.request_units_max : order.keys.size();
  const std::span<const BlockKey> keys = order.keys.first(std::min(order.keys.size(), units_max));
  Prefetch it;
  it.keys.assign(keys.begin(), keys.end());
  it.farthest = std::min(order.farthest_source, all_sources.back());
  it.tenant = order.tenant;
  it.deadline = order.deadline;
  const Place place = running_.emplace(last_id_, std::move(it)).first;
  if (!ask(place)) load(place);
  return last_id_;
}

/// Asks the shared store for the units that no tier has, if an answer could make the prefetch longer. Returns true if it has
/// asked.
bool Prefetches::ask(Place place) {
  Prefetch& it = place->second;
  if (!state_.shared_usable || it.farthest < Source::shared) return false;
  planner_.find_hit(it.keys, it.farthest, hit_);
  const auto question = questions_.worth_asking(it.keys, hit_.units, hit_.units, it.farthest, it.answer);
  if (!question) return false;
  it.from = hit_.near_units();
  it.asking = true;
  questions_.ask({SharedQuestions::Asker::Kind::prefetch, place->first.value()}, *question, it.deadline);
  return true;
}

void Prefetches::on_answer(SharedQuestions::Answer& answer) {
  const Place place = running_.find(PrefetchId{answer.asker.number});
  TERRACE_CHECK(place != running_.end() && place->second.asking);
  Prefetch& it = place->second;
  it.asking = false;
  it.answered = true;
  it.answer.set(answer.end, std::move(answer.there));
  load(place);
}

/// Returns true if the device or the host tier has this block of the last look-up, or if a load is bringing it to the device.
bool Prefetches::is_near(std::size_t group, std::uint32_t block) const {
  const GroupHit& hit = hit_.groups[group];
  const Found& found = hit.unchained.empty() ? hit.found : hit.unchained[block];
  const std::uint32_t place = hit.unchained.empty() ? block : 0;
  return place < found.on_device + found.filling || hit.sources[block] <= Source::host;
}

std::uint32_t Prefetches::first_to_bring(std::size_t group) const {
  std::uint32_t first = hit_.groups[group].first;
  while (first < hit_.groups[group].end && is_near(group, first)) ++first;
  return first;
}

/// Counts the blocks that a prefetch of the last look-up would bring, by pool. Returns the number of blocks above the bound.
std::uint32_t Prefetches::over_bound(std::vector<std::uint32_t>& brings) const {
  brings.assign(groups_.pools().size(), 0);
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    const GroupHit& hit = hit_.groups[g];
    for (std::uint32_t i = 0; i < hit.end - hit.first; ++i) brings[groups_.rules()[g].config().pool.value()] += !is_near(g, i);
  }
  std::uint32_t over = 0;
  for (std::size_t pool = 0; pool < brings.size(); ++pool) {
    std::uint64_t all = brings[pool];
    for (const auto& [id, it] : running_) all += it.jobs.empty() ? 0 : it.brings[pool];
    const std::uint64_t most = std::max<std::uint32_t>(1, groups_.pools()[pool]->sizes().host_blocks / bound_share);
    over = std::max(over, static_cast<std::uint32_t>(all - std::min(all, most)));
  }
  return over;
}

void Prefetches::load(Place place) {
  Prefetch& it = place->second;
  look_up(it, it.keys.size());
  if (const std::uint32_t worth = planner_.worth_loading(hit_); worth < hit_.units) look_up(it, worth);
  bool cut = false;
  for (std::uint32_t over = over_bound(it.brings); over > 0 && hit_.units > 0; over = over_bound(it.brings)) {
    cut = true;
    const auto less = std::max(1U, over / static_cast<std::uint32_t>(groups_.size()));
    look_up(it, hit_.units - std::min(hit_.units, less));
  }
  if (cut) ++state_.prefetches.cut;
  it.from = hit_.near_units();
  it.keys.resize(hit_.units);
  start_jobs(place);
  // The jobs have pinned blocks on the device. The slots of these blocks may have been promised to requests.
  const auto keeps_promises = [](const auto& pool) { return pool->device_slots().can_promise(0); };
  if (!std::ranges::all_of(groups_.pools(), keeps_promises)) stop(place);
  else if (!it.jobs.empty()) cancel_evictions();
  if (it.jobs.empty()) end(place);
}

/// Cancels the evictions of the blocks of the last look-up that the device has, because the jobs have pinned these blocks.
void Prefetches::cancel_evictions() {
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    const GroupHit& hit = hit_.groups[g];
    if (groups_.rules()[g].chained() && hit.found.evicting) groups_.pool_of(g).cancel_evictions(hit.found.prefix);
  }
}

void Prefetches::start_jobs(Place place) {
  const std::span<const BlockKey> keys = place->second.keys;
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    const GroupHit& hit = hit_.groups[g];
    if (groups_.rules()[g].chained()) {
      const std::uint32_t first = first_to_bring(g);
      if (first < hit.end) start_job(place, g, groups_.keys_in(g, keys, 0).first(hit.end), first);
      continue;
    }
    for (std::uint32_t i = 0; i < hit.end - hit.first; ++i) {
      if (is_near(g, i)) continue;
      const BlockKey key = groups_.key_in(g, keys, hit.first + i);
      start_job(place, g, std::span{&key, 1}, 0);
    }
  }
}

void Prefetches::start_job(Place place, std::size_t group, std::span<const BlockKey> keys, std::uint32_t first) {
  Prefetch& it = place->second;
  const PoolId pool = groups_.rules()[group].config().pool;
  const TimePoint wanted_by = planner_.reads_wanted_by(hit_.sources());
  last_job_ = OffloadJobId{last_job_.value() + 1};
  it.jobs.push_back(last_job_);
  by_job_.emplace(last_job_, place->first);
  OffloadOrder order;
  order.id = last_job_;
  order.keys = keys;
  order.first = first;
  order.pool = pool;
  order.tenant = it.tenant;
  order.urgency = Urgency::make_room;  // no request waits for it yet
  order.deadline = std::min(it.deadline, wanted_by);
  const std::optional<TimePoint> shared_until = it.answered ? std::optional{wanted_by} : std::nullopt;
  state_.prefetches.blocks += order.keys.size() - order.first;
  groups_.at(pool).load_named(order, shared_until, state_.new_stamps(), ModelGroups::id_of(group));
}

bool Prefetches::rests() const {
  const auto has_events = [](const auto& pool) { return pool->named_copies().has_events(); };
  return resumed_.empty() && (by_job_.empty() || std::ranges::none_of(groups_.pools(), has_events));
}

bool Prefetches::pump() {
  if (by_job_.empty()) return false;
  events_.clear();
  for (TieredPool* const pool : groups_.pools()) pool->named_copies().take_events(events_);
  for (const OffloadEvent& event : events_) {
    const auto job = by_job_.find(event.job);
    TERRACE_CHECK(job != by_job_.end());
    const Place place = running_.find(job->second);
    Prefetch& it = place->second;
    if (event.kind == OffloadEvent::Kind::ended) {
      by_job_.erase(job);
      std::erase(it.jobs, event.job);
      if (it.jobs.empty()) end(place);
    } else if (event.error) {
      it.failed = true;
      ++(it.cancelled ? state_.prefetches.not_wanted : state_.prefetches.failed);
    } else if (event.source == Source::storage) {
      ++state_.prefetches.from_storage;
    } else if (event.source == Source::shared) {
      ++state_.prefetches.from_shared;
    } else {
      ++state_.prefetches.there;
    }
  }
  return !events_.empty();
}

Result<void> Prefetches::cancel(PrefetchId id) {
  const Place place = running_.find(id);
  if (place == running_.end()) return failure<Errc::not_found, "there is no such prefetch, or it has ended">;
  stop(place);
  if (place->second.jobs.empty()) end(place);
  return {};
}

void Prefetches::cancel_all() {
  for (Place place = running_.begin(); place != running_.end();) {
    const PrefetchId id = (place++)->first;
    TERRACE_CHECK(cancel(id).has_value());
  }
}

/// Cancels the look-up and the jobs of the prefetch. The jobs end in the next pump().
void Prefetches::stop(Place place) {
  Prefetch& it = place->second;
  if (it.asking) questions_.leave({SharedQuestions::Asker::Kind::prefetch, place->first.value()});
  it.asking = false;
  it.failed = true;
  if (!std::exchange(it.cancelled, true)) ++state_.prefetches.cancelled;
  for (const OffloadJobId job : it.jobs) {
    for (TieredPool* const pool : groups_.pools()) (void)pool->named_copies().cancel(job);
  }
}

void Prefetches::end(Place place) {
  Prefetch& it = place->second;
  // After a failed prefetch, a request does not try the shared store for these blocks again.
  if (it.failed) it.answer.clear();
  for (const std::uint32_t request : it.waiters) resumed_.push_back({request, it.answered, it.answer});
  running_.erase(place);
}

// ---- requests that wait for a prefetch

bool Prefetches::join(std::uint32_t request, std::span<const BlockKey> keys, std::uint32_t place, Source farthest) {
  for (auto& [id, it] : running_) {
    if (it.farthest > farthest || place < it.from || place >= it.keys.size() || it.keys[place] != keys[place]) continue;
    it.waiters.push_back(request);
    ++state_.prefetches.joined;
    return true;
  }
  return false;
}

void Prefetches::leave(std::uint32_t request) {
  for (auto& [id, it] : running_) std::erase(it.waiters, request);
  std::erase_if(resumed_, [request](const Resumed& resumed) { return resumed.request == request; });
}

bool Prefetches::waits(std::uint32_t request) const {
  const auto waits_for = [request](const auto& each) {
    return std::ranges::find(each.second.waiters, request) != each.second.waiters.end();
  };
  return std::ranges::any_of(running_, waits_for) || std::ranges::find(resumed_, request, &Resumed::request) != resumed_.end();
}

void Prefetches::check_invariants() const {
  std::size_t jobs = 0;
  for (const auto& [id, it] : running_) {
    TERRACE_CHECK(it.asking != !it.jobs.empty());
    TERRACE_CHECK(it.asking == questions_.asks({SharedQuestions::Asker::Kind::prefetch, id.value()}));
    for (const OffloadJobId job : it.jobs) TERRACE_CHECK(by_job_.at(job) == id);
    jobs += it.jobs.size();
  }
  TERRACE_CHECK(jobs == by_job_.size());
}

}  // namespace terrace
