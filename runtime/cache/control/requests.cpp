// Requests from acquire to release, and the queries about them. The other files of the class: requests_shared.cpp (waits before
// the plan), requests_plan.cpp (pending requests), requests_blocks.cpp (ready requests).

#include "runtime/cache/control/requests.hpp"

#include "base/check.hpp"
#include "base/failure.hpp"
#include "terrace/request.hpp"

#include <algorithm>
#include <limits>
#include <type_traits>

namespace terrace {

Requests::Requests(ManagerState& state, HitPlanner& planner, WriteBackJobs& write_backs, SharedLookUps& look_ups,
                   Prefetches& prefetches)
    : state_{state},
      groups_{state.groups},
      planner_{planner},
      write_backs_{write_backs},
      look_ups_{look_ups},
      prefetches_{prefetches} {
  needs_.resize(groups_.pools().size());
  used_.resize(groups_.pools().size());
  planned_loads_.resize(groups_.size());
}

MatchResult Requests::match(std::span<const BlockKey> keys, Source farthest) const {
  MatchResult result;
  if (state_.status != CacheStatus::normal || !state_.config.caching) return result;
  const std::uint32_t hits = planner_.look_up(keys, farthest);
  if (groups_.single() && planner_.hit(0).found.on_device == hits) {
    result.found[Source::device] = hits;
    return result;
  }
  // A block that a load is bringing to the device counts under the source that it is loaded from.
  for (const Source source : planner_.sources()) ++result.found[source];
  return result;
}

Result<Acquired> Requests::acquire(const AcquireRequest& wanted) {
  const Result<Acquired> acquired = accept(wanted);
  if (acquired) return acquired;
  ManagerStats& stats = state_.stats;
  if (acquired.error() == Errc::no_room) ++stats.refused_no_room;
  else if (acquired.error() == Errc::never_fits) ++stats.refused_never_fits;
  else if (acquired.error() == Errc::paused) ++stats.refused_paused;
  else ++stats.refused_invalid;
  return acquired;
}

/// Does all of acquire(), except that it does not count refusals. If it refuses, nothing has changed.
Result<Acquired> Requests::accept(const AcquireRequest& wanted) {
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
    r.external_units = wanted.external_units.value();
    r.preempted = wanted.preempted;
    r.encoder_tokens = wanted.encoder_tokens;
    r.drop_last_hit = wanted.drop_last_hit;
    r.farthest = std::min(wanted.farthest_source, all_sources.back());
    r.may_look = state_.shared_usable && r.farthest >= Source::shared;
    r.tenant = wanted.tenant;
    r.deadline = wanted.deadline;
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
  // If the request has nothing to wait for, it is ready after this call. If it fails in this call, the answer is `pending`, too:
  // the event tells the error.
  settle();
  Request& r = requests_[index];
  if (r.state == State::ready) {
    // The result `ready` replaces the event.
    if (r.announce) std::erase_if(events_, [&](const RequestEvent& event) { return event.id == wanted.id; });
    r.announce = false;
    return Acquired::ready;
  }
  keep_keys(r);
  return Acquired::pending;
}

Result<void> Requests::release(RequestId id, Fence last_use) {
  const auto found = by_id_.find(id);
  if (found == by_id_.end()) return Errc::unknown_request;
  const Index index = found->second;
  by_id_.erase(found);
  note_end(requests_[index]);
  // The caller must not get events of a request that has ended.
  if (requests_[index].announce) std::erase_if(events_, [&](const RequestEvent& event) { return event.id == id; });
  end(index, last_use);
  settle();
  return {};
}

void Requests::note_end(const Request& r) {
  const bool pending = r.state == State::waiting_for_slots || r.state == State::loading || r.state == State::looking;
  if (pending) ++state_.stats.aborted;
}

void Requests::end(Index index, Fence last_use) {
  Request& r = requests_[index];
  if (r.state == State::ready) {
    for (std::size_t g = 0; g < groups_.size(); ++g) release_part(r.parts[g], g, last_use);
  } else {
    if (r.state == State::looking) stop_looking(index);
    if (r.layers > 0) fence_slots(r, last_use);
    undo(index);
  }
  std::erase(to_replan_, index);
  deadlines_.erase(index);
  forget(index);
}

/// The record of the request stays, with its slots and pins. Its loads continue, without events.
Result<void> Requests::quarantine(RequestId id, Fence until) {
  const Result<Index> index = find(id);
  if (!index) return index.error();
  Request& r = requests_[*index];
  if (!r.table_was_read) return release(id, no_longer_used);
  TERRACE_CHECK(quarantined_.empty() || requests_[quarantined_.back()].quarantined_until <= until);
  for (const auto& [pool, slot] : own_slots(r)) {
    groups_.at(pool).quarantine(slot);
    ++state_.stats.quarantined_unfenced;
  }
  note_end(r);
  r.quarantined_until = until;
  quarantined_.push_back(*index);
  ++state_.stats.released_unfenced;
  if (r.announce) std::erase_if(events_, [&](const RequestEvent& event) { return event.id == id; });
  r.announce = r.by_layer = false;
  by_id_.erase(id);
  deadlines_.erase(*index);
  return {};
}

void Requests::end_quarantines(Fence reached) {
  if (quarantined_.empty() || requests_[quarantined_.front()].quarantined_until > reached) return;
  while (!quarantined_.empty() && requests_[quarantined_.front()].quarantined_until <= reached) {
    const Index index = quarantined_.front();
    quarantined_.pop_front();
    end(index, no_longer_used);
  }
  settle();
}

std::optional<RequestEvent> Requests::take_end(RequestId id) {
  const auto is_end = [id](const RequestEvent& event) { return event.id == id && event.ends_wait(); };
  const auto found = std::ranges::find_if(events_, is_end);
  if (found == events_.end()) return std::nullopt;
  const RequestEvent taken = *found;
  events_.erase(found);
  return taken;
}

void Requests::on_time() {
  while (!deadlines_.empty() && deadlines_.top().priority <= state_.now) {
    fail(deadlines_.top().handle, Errc::deadline_exceeded);
  }
}

void Requests::fail_pending(ErrorCode error) {
  for (Index index = 0; index < requests_.size(); ++index) {
    const State state = requests_[index].state;
    if (state == State::looking || state == State::waiting_for_slots || state == State::loading) fail(index, error);
  }
}

void Requests::settle() {
  const bool rest = to_replan_.empty() && write_backs_.idle() && prefetches_.rests() &&
                    std::ranges::all_of(groups_.pools(), [](const auto& pool) { return pool->rests(); });
  if (rest) {
    for (const auto& pool : groups_.pools()) pool->on_slots_taken();
    return;
  }
  continue_all();
  start_transfers();
}

void Requests::settle_and_reclaim() {
  continue_all();
  bool any = false;
  for (const auto& pool : groups_.pools()) any |= pool->reclaim();
  if (any) continue_all();
  start_transfers();
}

/// Continues everything that can continue now. First come the requests that are planned again, so that they are in line before
/// the pools give out slots. Then each pool gives out slots, and the requests that got them start their loads. Then the requests
/// continue whose prefetch has ended. Write-back jobs come last, because no request waits for them. Each step can make work for
/// an earlier one, so the steps are repeated until none of them changes anything. That happens soon: copies, reads and writes are
/// only ordered here, and none of them ends during the loop. So the steps use up the free slots, victims and events that there
/// are.
void Requests::continue_all() {
  for (bool again = true; again;) {
    again = !to_replan_.empty() || !prefetches_.rests();
    replan_failed();
    for (const auto& pool : groups_.pools()) {
      again |= pool->pump();
      handle_events(*pool);
    }
    again |= prefetches_.pump();
    resume_waiting();
    again |= write_backs_.pump();
  }
}

void Requests::start_transfers() {
  for (const auto& pool : groups_.pools()) pool->start_transfers(last_transfer_);
}

// ---- queries -----------------------------------------------------------------------------------------------------------------

Result<std::span<const SlotId>> Requests::block_table(RequestId id, GroupId group) const {
  const Result<Index> index = find_with_table(id);
  if (!index) return index.error();
  if (group.value() >= groups_.size()) return failure<Errc::invalid_argument, "there is no such group">;
  requests_[*index].table_was_read = true;
  return std::span<const SlotId>{requests_[*index].parts[group.value()].table};
}

Result<std::span<const SlotId>> Requests::unkeyed_blocks(RequestId id, GroupId group) const {
  const Result<std::span<const SlotId>> table = block_table(id, group);
  if (!table) return table.error();
  const GroupPart& part = requests_[*find(id)].parts[group.value()];
  const bool shares = groups_.rules()[group.value()].cached() && part.serves;
  return table->subspan(shares ? part.committed : 0);
}

RequestState Requests::state(RequestId id) const {
  const Result<Index> index = find(id);
  if (!index) return RequestState::unknown;
  switch (requests_[*index].state) {
    case State::unused: return RequestState::unknown;
    case State::looking:
    case State::waiting_for_slots:
    case State::loading: return RequestState::waiting;
    case State::ready: return RequestState::ready;
    case State::failed: return RequestState::failed;
  }
  return RequestState::unknown;
}

ErrorCode Requests::error(RequestId id) const {
  const Result<Index> index = find(id);
  return index ? requests_[*index].error : index.error();
}

GroupState Requests::group_state(RequestId id, GroupId group) const {
  const Result<Index> index = find_with_table(id);
  if (!index || group.value() >= groups_.size()) return GroupState::unknown;
  return requests_[*index].parts[group.value()].serves ? GroupState::serves : GroupState::does_not_serve;
}

Result<std::span<const Source>> Requests::hit_sources(RequestId id) const {
  const Result<Index> index = find(id);
  if (!index) return index.error();
  const Request& r = requests_[*index];
  return std::span<const Source>{r.found}.first(r.hits);
}

Result<std::uint32_t> Requests::committed_units(RequestId id) const {
  const Result<Index> index = find_ready(id);
  if (!index) return index.error();
  std::uint32_t committed = requests_[*index].blocks_now;
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    const GroupPart& part = requests_[*index].parts[g];
    if (!groups_.rules()[g].cached() || groups_.rules()[g].config().optional) continue;
    committed = std::min(committed, part.committed * groups_.rules()[g].units_per_block());
  }
  return committed;
}

std::uint32_t Requests::prompt_left(RequestId id) const {
  const Result<std::uint32_t> committed = committed_units(id);
  if (!committed) return 0;
  const std::uint32_t prompt = requests_[*find(id)].key_count;
  return prompt - std::min(prompt, *committed);
}

Result<RequestStats> Requests::request_stats(RequestId id) const {
  const Result<Index> index = find(id);
  if (!index) return index.error();
  return stats_of(requests_[*index]);
}

RequestStats Requests::stats_of(const Request& r) const {
  RequestStats stats;
  stats.units = r.key_count;
  if (r.all_on_device) {
    stats.found[Source::device] = r.hits;
  } else {
    for (std::uint32_t i = 0; i < r.hits; ++i) ++stats.found[r.found[i]];
  }
  stats.external = std::min(r.external_units, r.key_count - r.hits);
  stats.miss = r.key_count - r.hits - stats.external;
  stats.joined = r.joined;
  stats.preempted = r.preempted;
  stats.looked = r.looked;
  return stats;
}

std::uint32_t Requests::common_prefix(GroupId group) const {
  const std::size_t g = group.value();
  if (g >= groups_.size() || !groups_.rules()[g].chained()) return 0;
  std::optional<Prefix> common;
  for (const Request& r : requests_) {
    if (r.state != State::ready || r.quarantined_until) continue;
    if (!common) {
      common = r.parts[g].prefix;
    } else {
      const std::uint32_t length = groups_.pool_of(g).residency().tree().common(*common, r.parts[g].prefix);
      common = Prefix{common->node, length};
    }
  }
  return common ? common->length : 0;
}

Result<std::vector<PoolPrefix>> Requests::pinned_prefixes(RequestId id) const {
  const Result<Index> index = find_ready(id);
  if (!index) return index.error();
  const Request& r = requests_[*index];
  if (r.epoch != state_.epoch) return Errc::cleared;
  std::vector<PoolPrefix> prefixes;
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    const GroupRule& rule = groups_.rules()[g];
    if (!rule.cached()) continue;
    if (rule.chained() && r.parts[g].prefix.length > 0) prefixes.push_back({rule.config().pool, r.parts[g].prefix});
    for (const UnchainedBlock& unchained_block : r.parts[g].unchained) {
      prefixes.push_back({rule.config().pool, unchained_block.prefix});
    }
  }
  return prefixes;
}

// ---- the table ---------------------------------------------------------------------------------------------------------------

Result<Requests::Index> Requests::find(RequestId id) const {
  const auto found = by_id_.find(id);
  if (found == by_id_.end()) return failure<Errc::unknown_request, "this cache has no request of the lease: another one made it">;
  return found->second;
}

Result<Requests::Index> Requests::find_ready(RequestId id) const {
  const Result<Index> index = find(id);
  if (index && requests_[*index].state != State::ready) return Errc::not_ready;
  return index;
}

Result<Requests::Index> Requests::find_with_table(RequestId id) const {
  const Result<Index> index = find(id);
  if (!index) return index.error();
  const Request& r = requests_[*index];
  const bool has_table = r.state == State::ready || (r.state == State::loading && r.layers > 0);
  if (!has_table) return Errc::not_ready;
  return index;
}

Requests::Index Requests::new_request() {
  if (free_requests_.empty()) {
    // When the vector grows, it must move its elements: a copy of `keys` would still point into the old `kept_keys`.
    static_assert(std::is_nothrow_move_constructible_v<Request>);
    Request& r = requests_.emplace_back();
    r.parts.resize(groups_.size());
    r.own.resize(groups_.pools().size());
    return static_cast<Index>(requests_.size() - 1);
  }
  const Index index = free_requests_.back();
  free_requests_.pop_back();
  return index;
}

/// Empties the record, but keeps the memory of its vectors for the next request.
void Requests::forget(Index index) {
  Request& r = requests_[index];
  for (const auto& own : r.own) TERRACE_CHECK(own.empty());
  for (const GroupPart& part : r.parts) TERRACE_CHECK(part.redundant.empty());
  TERRACE_CHECK(r.loads.empty());
  static_cast<RequestFields&>(r) = {};
  for (GroupPart& part : r.parts) part.clear();
  r.found.clear();
  r.kept_keys.clear();
  free_requests_.push_back(index);
}

/// Checks that a pending request is a waiter of its loads. Each block that is not on the device must be in one of these loads, or
/// the request must have a slot, or the promise of a slot, for it.
void Requests::check_slots(Index index) const {
  const Request& r = requests_[index];
  for (const LoadRef load : r.loads) {
    TERRACE_CHECK(std::ranges::count(groups_.at(load.pool).loads().waiters(load.load), index) == 1);
  }
  std::vector<std::uint64_t> needs(groups_.pools().size());
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    const GroupPart& part = r.parts[g];
    const PoolId id = groups_.rules()[g].config().pool;
    const TieredPool& pool = groups_.at(id);
    needs[id.value()] += planner_.new_blocks(g, r, part.end);
    for (std::uint32_t i = part.first; i < part.end; ++i) {
      const BlockRef block = hit_block(part, g, i);
      const Copy copy = pool.residency().copy(block, Tier::device);
      const bool comes = copy.state() == CopyState::filling && waits_for(r, {id, pool.loads().load_of(block)});
      if (!copy.usable() && !comes) ++needs[id.value()];
    }
  }
  for (std::size_t pool = 0; pool < needs.size(); ++pool) {
    TERRACE_CHECK(needs[pool] <= r.own[pool].size() + groups_.pools()[pool]->device_slots().promised_to(index));
  }
}

void Requests::check_invariants(std::span<std::uint64_t> held) const {
  std::uint64_t live = 0;
  for (Index index = 0; index < requests_.size(); ++index) {
    const Request& r = requests_[index];
    if (r.state == State::unused) continue;
    ++live;
    const bool pending = r.state == State::waiting_for_slots || r.state == State::loading;
    if (pending && std::ranges::find(to_replan_, index) == to_replan_.end()) check_slots(index);
    const bool looks = look_ups_.asks({SharedLookUps::Asker::Kind::request, index}) || prefetches_.waits(index);
    TERRACE_CHECK(looks == (r.state == State::looking));
    const SlotState state = r.quarantined_until ? SlotState::quarantined : SlotState::held;
    for (const auto& [pool, slot] : own_slots(r)) {
      TERRACE_CHECK(groups_.at(pool).residency().slots_of(Tier::device).state(slot) == state);
      if (!r.quarantined_until) ++held[pool.value()];
    }
    for (std::size_t g = 0; g < groups_.size(); ++g) {
      const GroupPart& part = r.parts[g];
      const TieredPool& pool = groups_.pool_of(g);
      if (r.state == State::failed) TERRACE_CHECK(part.prefix.length == 0 && part.unchained.empty());
      const bool has_layers = r.state == State::loading && r.layers > 0;
      for (std::uint32_t i = part.first; has_layers && i < part.end; ++i) {
        TERRACE_CHECK(pool.residency().copy(hit_block(part, g, i), Tier::device).slot() == part.table[i]);
      }
      if (r.state != State::ready) continue;
      TERRACE_CHECK(part.prefix.length <= part.table.size());
      for (std::uint32_t i = 0; i < part.prefix.length; ++i) {
        TERRACE_CHECK(pool.residency().copy({part.prefix.node, i}, Tier::device).usable());
      }
      for (const UnchainedBlock& unchained_block : part.unchained) {
        const Copy copy = pool.residency().copy(unchained_block.prefix.last(), Tier::device);
        TERRACE_CHECK(copy.usable());
        TERRACE_CHECK(unchained_block.duplicate || copy.slot() == part.table[unchained_block.block]);
      }
    }
    // After an event has reported layers, compute may be writing the new blocks. So in this case even a failed request keeps its
    // slots.
    const bool may_have_slots = (r.state != State::failed && r.state != State::looking) || r.layers > 0;
    if (!may_have_slots) TERRACE_CHECK(std::ranges::all_of(r.own, [](const auto& own) { return own.empty(); }));
  }
  TERRACE_CHECK(live == by_id_.size() + quarantined_.size());
  look_ups_.check_invariants();
  prefetches_.check_invariants();
}

}  // namespace terrace
