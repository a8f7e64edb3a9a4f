// How requests end, how they are planned again after a failed load, and the queries about them. The other files of the class:
// requests_acquire.cpp (from the call to a ready request) and requests_blocks.cpp (the blocks of a ready request).

#include "runtime/cache/control/requests.hpp"

#include "base/check.hpp"
#include "base/failure.hpp"
#include "terrace/request.hpp"

#include <algorithm>
#include <limits>
#include <type_traits>

namespace terrace {

Requests::Requests(ManagerState& state, HitPlanner& planner, SharedQuestions& questions, Prefetches& prefetches)
    : state_{state}, groups_{state.groups}, planner_{planner}, questions_{questions}, prefetches_{prefetches} {
  needs_.resize(groups_.pools().size());
  used_.resize(groups_.pools().size());
  planned_loads_.resize(groups_.size());
}

MatchResult Requests::match(std::span<const BlockKey> keys, Source farthest) {
  MatchResult result;
  if (state_.status != CacheStatus::normal || !state_.config.caching) return result;
  planner_.find_hit(keys, farthest, hit_);
  if (hit_.all_on_device()) {
    result.found[Source::device] = hit_.units;
    return result;
  }
  // A block that a load is bringing to the device counts under the source that it is loaded from.
  for (const Source source : hit_.sources()) ++result.found[source];
  return result;
}

Result<void> Requests::release(RequestId id, Fence last_use) {
  const auto found = by_id_.find(id);
  if (found == by_id_.end()) return Errc::unknown_request;
  const Index index = found->second;
  by_id_.erase(found);
  if (pends(requests_[index])) ++state_.stats.aborted;
  // The caller must not get events of a request that has ended.
  if (requests_[index].announce) std::erase_if(events_, [&](const RequestEvent& event) { return event.id == id; });
  end(index, last_use);
  return {};
}

void Requests::set_output_tokens(RequestId id, std::uint64_t tokens) {
  if (const auto found = by_id_.find(id); found != by_id_.end()) requests_[found->second].output_tokens = tokens;
}

void Requests::expect_use(RequestId id, Duration in) {
  if (const auto found = by_id_.find(id); found != by_id_.end()) requests_[found->second].next_use = in;
}

void Requests::end(Index index, Fence last_use) {
  Request& r = requests_[index];
  if (r.output_tokens && r.stamp != 0) {
    for (const auto& pool : groups_.pools()) pool->end_request(r.stamp, *r.output_tokens);
  }
  if (r.state == State::ready) {
    for (std::size_t g = 0; r.next_use && g < groups_.size(); ++g) {
      if (r.parts[g].prefix.length > 0) state_.expect(groups_.pool_of(g), r.parts[g].prefix, *r.next_use);
    }
    tie_companions(r, Tie::useful_at_end);
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
  if (pends(r)) ++state_.stats.aborted;
  r.quarantined_until = until;
  quarantined_.push_back(*index);
  ++state_.stats.released_unfenced;
  if (r.announce) std::erase_if(events_, [&](const RequestEvent& event) { return event.id == id; });
  r.announce = r.by_layer = false;
  by_id_.erase(id);
  deadlines_.erase(*index);
  return {};
}

bool Requests::end_quarantines(Fence reached) {
  bool any = false;
  while (!quarantined_.empty() && requests_[quarantined_.front()].quarantined_until <= reached) {
    const Index index = quarantined_.front();
    quarantined_.pop_front();
    end(index, no_longer_used);
    any = true;
  }
  return any;
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
    if (pends(requests_[index])) fail(index, error);
  }
}

// ---- what fails, and is planned again

/// Takes back all that plan() and start_loads() did for a pending request.
void Requests::undo(Index index) {
  release_hits(index);
  release_slots(index);
}

void Requests::release_hits(Index index) {
  Request& r = requests_[index];
  for (const LoadRef load : r.loads) groups_.at(load.pool).loads().leave(load.load, index);
  r.loads.clear();
  r.hits = 0;
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    TieredPool& pool = groups_.pool_of(g);
    if (groups_.rules()[g].chained()) pool.unpin_incomplete(r.parts[g].prefix);
    for (const UnchainedBlock& unchained_block : r.parts[g].unchained) pool.unpin_incomplete(unchained_block.prefix);
    r.parts[g].clear();
  }
}

void Requests::release_slots(Index index) {
  Request& r = requests_[index];
  r.pools_waited_for = 0;
  for (std::size_t pool = 0; pool < groups_.pools().size(); ++pool) {
    groups_.pools()[pool]->device_slots().leave(index);
    groups_.pools()[pool]->free_slots(r.own[pool]);
    r.own[pool].clear();
  }
}

void Requests::fail(Index index, ErrorCode error) {
  Request& r = requests_[index];
  if (r.state == State::looking) stop_looking(index);
  deadlines_.erase(index);
  release_hits(index);
  // If layers were reported, the caller may have launched work that writes the new blocks. So the request keeps their slots until
  // it is released.
  if (r.layers == 0) release_slots(index);
  std::erase(to_replan_, index);
  withdraw_layers(r);
  r.state = State::failed;
  r.error = error;
  if (!r.quarantined_until) events_.push_back({r.id, error});
}

/// Each request that waits for the load and needs the block gives up its prefix and is planned again. But if layers were reported
/// for the request, it fails: its caller may already compute with blocks that will not arrive. A request that waits for slots,
/// and is not a waiter of the load, has its own slot for the block, so nothing changes for it.
void Requests::on_load_failed(LoadRef load, const Loads::Event& event) {
  const BlockRef missing = event.block;
  const PrefixTree& tree = groups_.at(load.pool).residency().tree();
  for (const Index index : groups_.at(load.pool).loads().waiters(load.load)) {
    Request& r = requests_[index];
    if (!waits_for(r, load)) continue;  // it has given up its prefix because of another missing block of this load
    const auto needs_it = [&](std::size_t g) {
      const GroupPart& part = r.parts[g];
      if (groups_.rules()[g].config().pool != load.pool) return false;
      if (groups_.rules()[g].chained()) return part.end > missing.depth && tree.same({part.prefix.node, missing.depth}, missing);
      return std::ranges::any_of(part.unchained, [&](const UnchainedBlock& i) { return tree.same(i.prefix.last(), missing); });
    };
    bool needed = false;
    for (std::size_t g = 0; g < groups_.size(); ++g) needed |= needs_it(g);
    if (!needed) continue;
    ++r.failures;
    end_phase(r, r.waits.loads[event.source]);
    // The request does not use a failed source again: not the shared store after any failure, and not storage after a late read.
    if (event.source == Source::shared) r.farthest = std::min(r.farthest, Source::storage);
    else if (event.late) r.farthest = std::min(r.farthest, Source::host);
    if (r.layers > 0) {
      release_hits(index);
    } else {
      recall_keys(r);
      undo(index);
    }
    to_replan_.push_back(index);
  }
}

void Requests::on_load_ended(Index index, LoadRef load) {
  Request& r = requests_[index];
  // A request that was planned again, or released, does not wait for this load any more. A request that still waits for slots
  // continues when it has them.
  if (std::erase(r.loads, load) == 0 || r.state != State::loading) return;
  for (const Source source : all_sources) {
    // A load that the request has joined may have brought blocks before.
    const TimePoint arrived = groups_.at(load.pool).loads().arrived(load.load, source);
    r.waits.loads[source] = std::max(r.waits.loads[source], arrived - std::min(arrived, r.phase_begun));
  }
  if (r.loads.empty()) become_ready(index);
  else report_layers(index);
}

/// The request will give up its hits and be planned again: takes the keys of the hits from the tree, unless it has kept keys. It
/// has no keys of the blocks after its hits, so it cannot find such blocks even if they have been cached since.
void Requests::recall_keys(Request& r) {
  if (!r.keys.empty()) return;
  const Prefix prefix = r.parts.front().prefix;
  const PrefixTree& tree = groups_.pool_of(0).residency().tree();
  r.kept_keys.clear();
  while (r.kept_keys.size() < prefix.length) {
    const auto depth = static_cast<std::uint32_t>(r.kept_keys.size());
    Run run = tree.blocks_in(tree.at(prefix, depth).node).value();
    run.end = std::min(run.end, prefix.length);
    const std::span<const BlockKey> keys = tree.keys(run);
    r.kept_keys.insert(r.kept_keys.end(), keys.begin(), keys.end());
  }
  r.keys = r.kept_keys;
  r.keys_are_hits = true;
}

bool Requests::replan_failed() {
  const bool any = !to_replan_.empty();
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
  return any;
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

Result<std::span<const TransferId>> Requests::transfers_for(RequestId id, std::uint32_t layers) {
  const Result<Index> index = find(id);
  if (!index) return index.error();
  const Request& r = requests_[*index];
  awaited_.clear();
  if (r.state == State::failed) return r.error;
  if (r.state == State::ready) return std::span<const TransferId>{};
  if (r.state != State::loading) return Errc::not_ready;
  for (const LoadRef load : r.loads) {
    if (!groups_.at(load.pool).loads().transfers_for(load.load, layers, awaited_)) return Errc::not_ready;
  }
  return std::span<const TransferId>{awaited_};
}

void Requests::expect_layers(RequestId id, std::uint32_t layers) {
  const Result<Index> index = find(id);
  TERRACE_CHECK(index.has_value());
  Request& r = requests_[*index];
  if (r.state != State::loading || layers <= r.layers) return;
  if (r.layers == 0) make_tables(r);
  r.layers = layers;
}

RequestState Requests::state(RequestId id) const {
  const Result<Index> index = find(id);
  if (!index) return RequestState::unknown;
  if (pends(requests_[*index])) return RequestState::waiting;
  return requests_[*index].state == State::ready ? RequestState::ready : RequestState::failed;
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

Result<std::uint32_t> Requests::units(RequestId id) const {
  const Result<Index> index = find_ready(id);
  if (!index) return index.error();
  return requests_[*index].blocks_now;
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
  stats.waits = r.waits;
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
  r.shared.clear();
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
    const bool looks = questions_.asks({SharedQuestions::Asker::Kind::request, index}) || prefetches_.waits(index);
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
  questions_.check_invariants();
  prefetches_.check_invariants();
}

}  // namespace terrace
