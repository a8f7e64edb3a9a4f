// The calls of a request's life.

#include "base/check.hpp"
#include "runtime/manager/cache_manager.hpp"
#include "runtime/types/lease.hpp"

#include <algorithm>
#include <type_traits>

namespace terrace {

MatchResult CacheManager::match(std::span<const BlockKey> keys, Tier lowest_tier) const {
  MatchResult result;
  if (status_ != CacheStatus::normal || !config_.caching) return result;
  const std::uint32_t hits = look_up(keys, lowest_tier);
  if (single_ && hits_.front().found.on_device == hits) {
    result.device = hits;
    return result;
  }
  // A block on its way up counts under where it comes from: that is what its bytes wait for.
  for (const Tier tier : found_) ++(tier == Tier::device ? result.device : tier == Tier::host ? result.host : result.storage);
  return result;
}

Result<Acquired> CacheManager::acquire(const AcquireRequest& wanted) {
  if (wanted.blocks == 0 || wanted.keys.size() > wanted.blocks) return Errc::invalid_argument;
  if (by_id_.contains(wanted.id)) return Errc::duplicate_request;
  if (status_ != CacheStatus::normal) return Errc::paused;
  if (quarantined_.size() >= quarantined_max) {
    ++stats_.refused_no_room;
    return Errc::no_room;
  }
  // No request is longer than the model.
  const std::uint32_t blocks_max = config_.request_blocks_max > 0 ? config_.request_blocks_max : wanted.blocks;
  const std::span<const BlockKey> keys = wanted.keys.first(std::min<std::size_t>(wanted.keys.size(), blocks_max));

  const Index index = new_request();
  {
    Request& r = requests_[index];
    r.id = wanted.id;
    r.blocks = std::min(wanted.blocks, blocks_max);
    r.key_count = static_cast<std::uint32_t>(keys.size());
    r.hit_blocks_max = config_.caching ? wanted.hit_blocks_max : 0;
    r.new_blocks_max = wanted.new_blocks_max;
    r.external_blocks = wanted.external_blocks;
    r.preempted = wanted.preempted;
    r.encoder_tokens = wanted.encoder_tokens;
    r.drop_last_hit = wanted.drop_last_hit;
    r.lowest_tier = wanted.lowest_tier;
    r.tenant = wanted.tenant;
    r.deadline = wanted.deadline;
    r.by_layer = wanted.by_layer;
    r.keys = keys;
    r.epoch = epoch_;
  }
  if (const Result<void> planned = plan(index, keys); !planned) {
    if (planned.error() == Errc::no_room) ++stats_.refused_no_room;
    forget(index);
    return planned.error();
  }
  ++stats_.acquired;
  by_id_.emplace(wanted.id, index);
  if (requests_[index].state != State::ready) {
    Request& r = requests_[index];
    r.announce = true;
    if (r.deadline != never) deadlines_.set(index, r.deadline);
  }
  // With nothing to wait for, this call ends what it began.
  settle();
  Request& r = requests_[index];
  if (r.state == State::ready) {
    if (r.announce) std::erase_if(events_, [&](const RequestEvent& event) { return event.id == wanted.id; });
    r.announce = false;
    return Acquired::ready;
  }
  r.kept_keys.assign(keys.begin(), keys.end());
  r.keys = r.kept_keys;
  return Acquired::pending;
}

Result<void> CacheManager::advance(RequestId id, std::uint64_t tokens, Fence last_use) {
  const Result<Index> index = find_ready(id);
  if (!index) return index.error();
  Request& r = requests_[*index];
  if (tokens > std::uint64_t{r.blocks_now} * unit_tokens_) return Errc::invalid_argument;
  if (single_) return {};
  for (std::size_t g = 0; g < rules_.size(); ++g) give_up_before(r.parts[g], g, rules_[g].first_needed(tokens), last_use);
  settle();
  return {};
}

/// Blocks that no later token needs: what was shared stays cached as long as there is room; what was not is free.
void CacheManager::give_up_before(GroupPart& part, std::size_t group, std::uint32_t first, Fence last_use) {
  first = std::min(first, static_cast<std::uint32_t>(part.table.size()));
  if (first <= part.given_up) return;
  TieredPool& pool = pool_of(group);
  const auto kept =
      std::ranges::find_if(part.unchained, [&](const UnchainedBlock& unchained_block) { return unchained_block.block >= first; });
  for (auto unchained_block = part.unchained.begin(); unchained_block != kept; ++unchained_block) {
    const SlotId slot = part.table[unchained_block->block];
    pool.raise_fences({&slot, 1}, last_use);
    if (unchained_block->duplicate) {
      const SlotId shared = pool.residency().copy(unchained_block->prefix.last(), Tier::device).slot();
      pool.raise_fences({&shared, 1}, last_use);
      pool.free_slots({&slot, 1});
    }
    pool.let_go(unchained_block->prefix);
  }
  part.unchained.erase(part.unchained.begin(), kept);
  for (std::uint32_t block = std::max(part.committed, part.given_up); block < first; ++block) {
    if (is_null(group, part.table[block])) continue;
    pool.raise_fences({&part.table[block], 1}, last_use);
    pool.free_slots({&part.table[block], 1});
  }
  std::fill_n(part.table.begin() + part.given_up, first - part.given_up, null_of(group));
  part.given_up = first;
}

Result<void> CacheManager::extend(RequestId id, std::uint32_t blocks) {
  const Result<Index> index = find_ready(id);
  if (!index) return index.error();
  Request& r = requests_[*index];
  if (blocks == 0) return Errc::invalid_argument;
  std::uint64_t all = std::uint64_t{r.blocks_now} + blocks;
  if (config_.request_blocks_max > 0) all = std::min<std::uint64_t>(all, config_.request_blocks_max);
  if (all == r.blocks_now) return {};
  if (all > std::numeric_limits<std::uint32_t>::max()) return Errc::never_fits;
  const auto now = static_cast<std::uint32_t>(all);

  std::ranges::fill(needs_, 0);
  const auto new_blocks = [&](std::size_t g) {
    const auto have = static_cast<std::uint32_t>(r.parts[g].table.size());
    const std::uint32_t want = rules_[g].cached() ? std::max(rules_[g].blocks_for(now), have) : have;
    return std::pair{rules_[g].first_new(have, want, std::min(r.key_count, now)), want};
  };
  for (std::size_t g = 0; g < rules_.size(); ++g) {
    const auto [from, to] = new_blocks(g);
    needs_[rules_[g].config().pool.value()] += to - from;
  }
  if (!can_promise_all()) return Errc::no_room;

  // First what is free and what could be given up, everywhere; only if that is enough does anything go.
  bool enough = true;
  for (std::size_t g = 0; enough && g < rules_.size(); ++g) {
    GroupPart& part = r.parts[g];
    const auto [from, to] = new_blocks(g);
    // Its blocks that are not shared yet are the tenant's as well.
    const Quotas::Asker asker{r.tenant, to - from + part.table.size() - part.committed};
    const std::optional<SlotId> after = part.table.empty() ? std::nullopt : std::optional{part.table.back()};
    part.table.resize(from, null_of(g));
    TieredPool& pool = pool_of(g);
    if (to > from) pool.take_free(to - from, after, part.table);
    enough = pool.choose(to - static_cast<std::uint32_t>(part.table.size()), asker);
  }
  for (const auto& pool : pools_) enough ? pool->give_up_chosen() : pool->keep_chosen();
  for (std::size_t g = 0; g < rules_.size(); ++g) {
    if (!rules_[g].cached()) continue;
    std::vector<SlotId>& table = r.parts[g].table;
    TieredPool& pool = pool_of(g);
    const std::uint32_t blocks_then = rules_[g].blocks_for(enough ? now : r.blocks_now);
    if (table.size() < blocks_then) {
      pool.take_given_up(blocks_then - static_cast<std::uint32_t>(table.size()), table);
      TERRACE_CHECK(table.size() == blocks_then);
    }
    for (; table.size() > blocks_then; table.pop_back()) {
      if (!is_null(g, table.back())) pool.free_slots({&table.back(), 1});
    }
  }
  if (enough) r.blocks_now = now;
  settle();
  if (!enough) return Errc::no_room;
  return {};
}

Result<std::span<const Duplicate>> CacheManager::commit(RequestId id, std::span<const BlockKey> keys, Fence written) {
  const Result<Index> index = find_ready(id);
  if (!index) return index.error();
  Request& r = requests_[*index];
  if (keys.size() > r.blocks_now) return Errc::invalid_argument;
  duplicates_.clear();
  // What an older epoch computed is nobody else's.
  if (r.epoch != epoch_ || !(config_.caching || config_.store_uncached)) return std::span<const Duplicate>{};
  bool any = false;
  for (std::size_t g = 0; g < rules_.size(); ++g) {
    const GroupRule& rule = rules_[g];
    const bool grows = rule.full_blocks(static_cast<std::uint32_t>(keys.size())) > r.parts[g].committed;
    if (!grows || !rule.cached() || !r.parts[g].serves) continue;
    any = true;
    if (rule.chained()) {
      commit_chain(r, g, keys, written);
    } else {
      commit_unchained(r, g, keys, written);
    }
  }
  if (any) settle();
  return std::span<const Duplicate>{duplicates_};
}

void CacheManager::commit_chain(Request& r, std::size_t group, std::span<const BlockKey> keys, Fence written) {
  GroupPart& part = r.parts[group];
  const std::uint32_t from = part.prefix.length;
  const std::span<const BlockKey> computed = keys_in(group, keys, from);
  const std::span<const SlotId> slots = std::span{part.table}.subspan(from, computed.size());
  const std::size_t known = duplicates_.size();
  part.prefix =
      pool_of(group).commit({part.prefix, computed, slots, from, r.tenant, id_of(group), written, r.stamp}, duplicates_);
  part.committed = part.prefix.length;
  for (std::size_t i = known; i < duplicates_.size(); ++i) part.redundant.push_back(duplicates_[i].own);
}

void CacheManager::commit_unchained(Request& r, std::size_t group, std::span<const BlockKey> keys, Fence written) {
  GroupPart& part = r.parts[group];
  const std::uint32_t end = rules_[group].full_blocks(static_cast<std::uint32_t>(keys.size()));
  for (; part.committed < end; ++part.committed) {
    const std::uint32_t block = part.committed;
    const SlotId own = part.table[block];
    if (is_null(group, own)) continue;
    const BlockKey key = key_in(group, keys, block);
    const std::size_t known = duplicates_.size();
    const Prefix prefix =
        pool_of(group).commit({{}, {&key, 1}, {&own, 1}, block, r.tenant, id_of(group), written, r.stamp}, duplicates_);
    if (prefix.length == 0) return;
    part.unchained.push_back({block, prefix, duplicates_.size() > known});
  }
}

Result<void> CacheManager::release(RequestId id, Fence last_use) {
  const Result<Index> index = find(id);
  if (!index) return index.error();
  // What was still to be told of it interests nobody now.
  if (requests_[*index].announce) std::erase_if(events_, [&](const RequestEvent& event) { return event.id == id; });
  by_id_.erase(id);
  end(*index, last_use);
  settle();
  return {};
}

void CacheManager::end(Index index, Fence last_use) {
  Request& r = requests_[index];
  if (r.state == State::ready) {
    for (std::size_t g = 0; g < rules_.size(); ++g) release_part(r.parts[g], g, last_use);
  } else {
    if (r.layers > 0) fence_slots(r, last_use);
    undo(index);
  }
  std::erase(to_replan_, index);
  deadlines_.erase(index);
  forget(index);
}

/// The record lives on, with all that it holds: its loads, if any, go on as well, and tell nobody.
Result<void> CacheManager::quarantine(RequestId id, Fence until) {
  const Result<Index> index = find(id);
  if (!index) return index.error();
  Request& r = requests_[*index];
  if (!r.table_told) return release(id, no_longer_used);
  TERRACE_CHECK(quarantined_.empty() || requests_[quarantined_.back()].quarantined_until <= until);
  for (const auto& [pool, slot] : own_slots(r)) at(pool).quarantine(slot);
  r.quarantined_until = until;
  quarantined_.push_back(*index);
  ++stats_.released_unfenced;
  if (r.announce) std::erase_if(events_, [&](const RequestEvent& event) { return event.id == id; });
  r.announce = r.by_layer = false;
  by_id_.erase(id);
  deadlines_.erase(*index);
  return {};
}

void CacheManager::end_quarantines(Fence reached) {
  if (quarantined_.empty() || requests_[quarantined_.front()].quarantined_until > reached) return;
  while (!quarantined_.empty() && requests_[quarantined_.front()].quarantined_until <= reached) {
    const Index index = quarantined_.front();
    quarantined_.pop_front();
    end(index, no_longer_used);
  }
  settle();
}

/// Device slots that are the request's alone: not those of blocks in the tree.
std::vector<std::pair<PoolId, SlotId>> CacheManager::own_slots(const Request& r) const {
  std::vector<std::pair<PoolId, SlotId>> slots;
  for (std::size_t pool = 0; pool < pools_.size(); ++pool) {
    for (const SlotId slot : r.own[pool]) slots.emplace_back(pools_[pool]->id(), slot);
  }
  for (std::size_t g = 0; g < rules_.size(); ++g) {
    const GroupPart& part = r.parts[g];
    const PoolId pool = rules_[g].config().pool;
    for (const SlotId slot : part.redundant) slots.emplace_back(pool, slot);
    if (r.state != State::ready) continue;
    for (const UnchainedBlock& unchained_block : part.unchained) {
      if (unchained_block.duplicate) slots.emplace_back(pool, part.table[unchained_block.block]);
    }
    for (std::size_t block = part.committed; block < part.table.size(); ++block) {
      if (!is_null(g, part.table[block])) slots.emplace_back(pool, part.table[block]);
    }
  }
  return slots;
}

void CacheManager::release_part(GroupPart& part, std::size_t group, Fence last_use) {
  TieredPool& pool = pool_of(group);
  if (rules_[group].chained() && part.serves) {
    pool.raise_fences(part.table, last_use);
    // Compute may have gone over to the shared slots.
    for (std::uint32_t block = 0; !part.redundant.empty() && block < part.prefix.length; ++block) {
      const SlotId shared = pool.residency().copy({part.prefix.node, block}, Tier::device).slot();
      pool.raise_fences({&shared, 1}, last_use);
    }
    pool.let_go(part.prefix);
    pool.free_slots(std::span{part.table}.subspan(part.prefix.length));
    pool.free_slots(part.redundant);
    part.redundant.clear();
  } else {
    give_up_before(part, group, static_cast<std::uint32_t>(part.table.size()), last_use);
  }
}

/// Of a request that is not ready, but was told of layers: what compute may still read or write.
void CacheManager::fence_slots(const Request& r, Fence last_use) {
  for (std::size_t pool = 0; pool < pools_.size(); ++pool) {
    pools_[pool]->raise_fences(r.own[pool], last_use);
  }
  for (std::size_t g = 0; g < rules_.size(); ++g) {
    const GroupPart& part = r.parts[g];
    const std::size_t hits_end = std::min<std::size_t>(part.end, part.table.size());
    for (std::size_t block = part.first; block < hits_end; ++block) {
      pool_of(g).raise_fences({&part.table[block], 1}, last_use);
    }
  }
}

Result<std::span<const SlotId>> CacheManager::block_table(RequestId id, GroupId group) const {
  const Result<Index> index = find_with_table(id);
  if (!index) return index.error();
  if (group.value() >= rules_.size()) return Errc::invalid_argument;
  requests_[*index].table_told = true;
  return std::span<const SlotId>{requests_[*index].parts[group.value()].table};
}

Result<std::span<const SlotId>> CacheManager::unkeyed_blocks(RequestId id, GroupId group) const {
  const Result<std::span<const SlotId>> table = block_table(id, group);
  if (!table) return table.error();
  const GroupPart& part = requests_[*find(id)].parts[group.value()];
  const bool shares = rules_[group.value()].cached() && part.serves;
  return table->subspan(shares ? part.committed : 0);
}

RequestState CacheManager::state(RequestId id) const {
  const Result<Index> index = find(id);
  if (!index) return RequestState::unknown;
  switch (requests_[*index].state) {
    case State::unused: return RequestState::unknown;
    case State::waiting_for_room:
    case State::loading: return RequestState::waiting;
    case State::ready: return RequestState::ready;
    case State::failed: return RequestState::failed;
  }
  return RequestState::unknown;
}

GroupState CacheManager::group_state(RequestId id, GroupId group) const {
  const Result<Index> index = find_with_table(id);
  if (!index || group.value() >= rules_.size()) return GroupState::unknown;
  return requests_[*index].parts[group.value()].serves ? GroupState::serves : GroupState::does_not_serve;
}

Result<std::span<const Tier>> CacheManager::hit_tiers(RequestId id) const {
  const Result<Index> index = find(id);
  if (!index) return index.error();
  const Request& r = requests_[*index];
  return std::span<const Tier>{r.found}.first(r.hits);
}

Result<std::uint32_t> CacheManager::committed_blocks(RequestId id) const {
  const Result<Index> index = find_ready(id);
  if (!index) return index.error();
  std::uint32_t committed = std::numeric_limits<std::uint32_t>::max();
  for (std::size_t g = 0; g < rules_.size(); ++g) {
    const GroupPart& part = requests_[*index].parts[g];
    if (!rules_[g].cached() || rules_[g].config().optional) continue;
    committed = std::min(committed, part.committed * rules_[g].units_per_block());
  }
  return committed;
}

std::uint32_t CacheManager::prompt_left(RequestId id) const {
  const Result<std::uint32_t> committed = committed_blocks(id);
  if (!committed) return 0;
  const std::uint32_t prompt = requests_[*find(id)].key_count;
  return prompt - std::min(prompt, *committed);
}

Result<RequestStats> CacheManager::request_stats(RequestId id) const {
  const Result<Index> index = find(id);
  if (!index) return index.error();
  return stats_of(requests_[*index]);
}

RequestStats CacheManager::stats_of(const Request& r) const {
  RequestStats stats;
  stats.blocks = r.key_count;
  for (std::uint32_t i = 0; i < r.hits; ++i) {
    ++(r.found[i] == Tier::device ? stats.device : r.found[i] == Tier::host ? stats.host : stats.storage);
  }
  stats.external = std::min(r.external_blocks, r.key_count - r.hits);
  stats.miss = r.key_count - r.hits - stats.external;
  stats.joined = r.joined;
  stats.preempted = r.preempted;
  return stats;
}

Result<CacheManager::Index> CacheManager::find(RequestId id) const {
  const auto found = by_id_.find(id);
  if (found == by_id_.end()) return Errc::unknown_request;
  return found->second;
}

Result<CacheManager::Index> CacheManager::find_ready(RequestId id) const {
  const Result<Index> index = find(id);
  if (index && requests_[*index].state != State::ready) return Errc::not_ready;
  return index;
}

Result<CacheManager::Index> CacheManager::find_with_table(RequestId id) const {
  const Result<Index> index = find(id);
  if (!index) return index.error();
  const Request& r = requests_[*index];
  const bool has_table = r.state == State::ready || (r.state == State::loading && r.layers > 0);
  if (!has_table) return Errc::not_ready;
  return index;
}

CacheManager::Index CacheManager::new_request() {
  if (free_requests_.empty()) {
    // Moved, not copied, when the vector grows: `keys` may look into `kept_keys`.
    static_assert(std::is_nothrow_move_constructible_v<Request>);
    Request& r = requests_.emplace_back();
    r.parts.resize(rules_.size());
    r.own.resize(pools_.size());
    return static_cast<Index>(requests_.size() - 1);
  }
  const Index index = free_requests_.back();
  free_requests_.pop_back();
  return index;
}

/// Empties the record, but keeps its vectors' memory for the next request.
void CacheManager::forget(Index index) {
  Request& r = requests_[index];
  for (const auto& own : r.own) TERRACE_CHECK(own.empty());
  for (const GroupPart& part : r.parts) TERRACE_CHECK(part.redundant.empty());
  TERRACE_CHECK(r.loads.empty());
  Request empty;
  std::swap(empty.parts, r.parts);
  std::swap(empty.own, r.own);
  std::swap(empty.found, r.found);
  std::swap(empty.loads, r.loads);
  std::swap(empty.kept_keys, r.kept_keys);
  for (GroupPart& part : empty.parts) part.clear();
  empty.found.clear();
  empty.kept_keys.clear();
  r = std::move(empty);
  free_requests_.push_back(index);
}

}  // namespace terrace
