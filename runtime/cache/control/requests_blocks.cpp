// The blocks of a ready request: how it gets more of them, shares them, and gives them up.

#include "base/check.hpp"
#include "base/failure.hpp"
#include "runtime/cache/control/requests.hpp"

#include <algorithm>
#include <limits>

namespace terrace {

Result<void> Requests::advance(RequestId id, std::uint64_t tokens, Fence last_use) {
  const Result<Index> index = find_ready(id);
  if (!index) return index.error();
  Request& r = requests_[*index];
  if (tokens > std::uint64_t{r.blocks_now} * groups_.unit_tokens()) {
    return failure<Errc::invalid_argument, "the request has blocks for fewer tokens: extend() comes first">;
  }
  tie_companions(r, Tie::useful, tokens);
  for (std::size_t g = 0; g < groups_.size(); ++g)
    give_up_before(r.parts[g], g, groups_.rules()[g].first_needed(tokens), last_use);
  return {};
}

/// Ties unchained blocks of the request, or only those that it gives up when `computed` tokens are computed, to the blocks with
/// full attention at the same place. So the eviction policy decides about prefixes, and these blocks stay as long as the prefix
/// that they belong to. A block that is never tied is evicted before all others.
void Requests::tie_all_companions(Request& r, Tie which, std::optional<std::uint64_t> computed) {
  if (r.parts[*groups_.owners()].prefix.length == 0) return;
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    const std::uint32_t end = computed ? groups_.rules()[g].first_needed(*computed) : std::numeric_limits<std::uint32_t>::max();
    for (const UnchainedBlock& each : r.parts[g].unchained) {
      if (each.block >= end) break;
      tie_companion(r, g, each, which);
    }
  }
}

void Requests::tie_companion(Request& r, std::size_t group, const UnchainedBlock& each, Tie which) {
  const GroupRule& rule = groups_.rules()[group];
  TieredPool& pool = groups_.pool_of(group);
  const BlockRef block = each.prefix.last();
  const bool wanted = pool.residency().tree().companion(block, Tier::device) == Companion::wanted;
  if (!wanted && which != Tie::all && !useful(r, group, each.block, which == Tie::useful_at_end)) return;
  GroupPart& part = r.parts[group];
  if (each.block < part.tied_from || each.block > part.tied_to) part.tied_from = each.block;
  part.tied_to = each.block + 1;
  const std::uint32_t end = (each.block + 1) * rule.units_per_block();
  const std::uint32_t first = rule.first_needed(std::uint64_t{end} * groups_.unit_tokens());
  const bool ends_hit = part.tied_from <= first && !rule.config().optional;
  if (wanted && !ends_hit) return;
  const std::size_t owners = *groups_.owners();
  TieredPool& of_owners = groups_.pool_of(owners);
  const Prefix prefix = r.parts[owners].prefix;
  const std::uint32_t depth = std::min((end - 1) / groups_.rules()[owners].units_per_block(), prefix.length - 1);
  of_owners.tie(of_owners.residency().tree().at(prefix, depth), pool, block, ends_hit);
}

/// Returns true if a later request probably needs the block. A hit needs the blocks before its end, and it ends where the prompt
/// ends, where the prompt left what was cached before, or (`ends`) where the request has ended; or a little earlier, because the
/// next prompt may differ from there on.
bool Requests::useful(const Request& r, std::size_t group, std::uint32_t block, bool ends) const {
  constexpr std::uint32_t earlier = 2;  // possible ends of hits
  const GroupRule& rule = groups_.rules()[group];
  if (rule.config().kind == GroupKind::recurrent) return true;  // the caller chooses which states there are
  const std::size_t owners = *groups_.owners();
  const std::uint32_t shared = r.parts[owners].committed * groups_.rules()[owners].units_per_block();
  for (std::uint32_t end : {r.key_count, r.known, ends ? shared : 0}) {
    end -= end % groups_.alignment();
    const std::uint64_t least = end - std::min(end, earlier * groups_.alignment());
    if (block < rule.full_blocks(end) && block >= rule.first_needed(least * groups_.unit_tokens())) return true;
  }
  return false;
}

/// Gives up the part's blocks before `first`. Shared blocks are unpinned: they stay cached until they are evicted. The slots of
/// the other blocks become free.
void Requests::give_up_before(GroupPart& part, std::size_t group, std::uint32_t first, Fence last_use) {
  first = std::min(first, static_cast<std::uint32_t>(part.table.size()));
  if (first <= part.given_up) return;
  TieredPool& pool = groups_.pool_of(group);
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
    if (groups_.is_null(group, part.table[block])) continue;
    pool.raise_fences({&part.table[block], 1}, last_use);
    pool.free_slots({&part.table[block], 1});
  }
  std::fill_n(part.table.begin() + part.given_up, first - part.given_up, groups_.null_of(group));
  part.given_up = first;
}

Result<void> Requests::extend(RequestId id, std::uint32_t blocks) {
  const Result<Index> index = find_ready(id);
  if (!index) return index.error();
  Request& r = requests_[*index];
  if (blocks == 0) return failure<Errc::invalid_argument, "`units` is 0: there is nothing to add">;
  std::uint64_t all = std::uint64_t{r.blocks_now} + blocks;
  if (state_.config.request_units_max > 0) all = std::min<std::uint64_t>(all, state_.config.request_units_max);
  if (all == r.blocks_now) return {};
  if (all > std::numeric_limits<std::uint32_t>::max()) return Errc::never_fits;
  const auto now = static_cast<std::uint32_t>(all);

  std::ranges::fill(needs_, 0);
  const auto new_blocks = [&](std::size_t g) {
    const auto have = static_cast<std::uint32_t>(r.parts[g].table.size());
    const std::uint32_t want = groups_.rules()[g].cached() ? std::max(groups_.rules()[g].blocks_for(now), have) : have;
    return std::pair{groups_.rules()[g].first_new(have, want, std::min(r.key_count, now)), want};
  };
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    const auto [from, to] = new_blocks(g);
    needs_[groups_.rules()[g].config().pool.value()] += to - from;
  }
  if (!planner_.can_promise(needs_)) {
    // Adds the present blocks of the request that advance() cannot give up.
    for (std::size_t g = 0; g < groups_.size(); ++g) {
      const auto have = static_cast<std::uint32_t>(r.parts[g].table.size());
      const std::uint32_t first = groups_.rules()[g].first_needed(std::uint64_t{r.blocks_now} * groups_.unit_tokens());
      needs_[groups_.rules()[g].config().pool.value()] += have - std::clamp(first, r.parts[g].first, have);
    }
    return planner_.fit_in_empty_pools(needs_) ? Errc::no_room : Errc::never_fits;
  }

  // First takes free slots and chooses copies to drop, in every pool. The copies are dropped only if all pools have enough slots.
  // So a failed call changes nothing.
  bool enough = true;
  for (std::size_t g = 0; enough && g < groups_.size(); ++g) {
    GroupPart& part = r.parts[g];
    const auto [from, to] = new_blocks(g);
    // The request's blocks that are not shared yet count for the tenant's quota, too.
    const Quotas::Asker asker{r.tenant, to - from + part.table.size() - part.committed};
    const std::optional<SlotId> after = part.table.empty() ? std::nullopt : std::optional{part.table.back()};
    part.table.resize(from, groups_.null_of(g));
    TieredPool& pool = groups_.pool_of(g);
    if (to > from) pool.device_slots().take_free(to - from, after, part.table);
    enough = pool.device_slots().choose(to - static_cast<std::uint32_t>(part.table.size()), asker);
  }
  for (const auto& pool : groups_.pools()) enough ? pool->device_slots().give_up_chosen() : pool->device_slots().keep_chosen();
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    if (!groups_.rules()[g].cached()) continue;
    std::vector<SlotId>& table = r.parts[g].table;
    TieredPool& pool = groups_.pool_of(g);
    const std::uint32_t blocks_then = groups_.rules()[g].blocks_for(enough ? now : r.blocks_now);
    if (table.size() < blocks_then) {
      pool.take_given_up(blocks_then - static_cast<std::uint32_t>(table.size()), table);
      TERRACE_CHECK(table.size() == blocks_then);
    }
    for (; table.size() > blocks_then; table.pop_back()) {
      if (!groups_.is_null(g, table.back())) pool.free_slots({&table.back(), 1});
    }
  }
  if (!enough) return Errc::no_room;
  r.blocks_now = now;
  return {};
}

Result<std::span<const Duplicate>> Requests::commit(RequestId id, std::span<const BlockKey> keys, Fence written) {
  const Result<Index> index = find_ready(id);
  if (!index) return index.error();
  Request& r = requests_[*index];
  if (keys.size() > r.blocks_now) {
    return failure<Errc::invalid_argument, "there are more keys than the request has blocks: extend() comes first">;
  }
  duplicates_.clear();
  // Blocks that were computed in an older epoch are not shared.
  if (r.epoch != state_.epoch || !(state_.config.caching || state_.config.store_uncached)) return std::span<const Duplicate>{};
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    const GroupRule& rule = groups_.rules()[g];
    const bool grows = rule.full_blocks(static_cast<std::uint32_t>(keys.size())) > r.parts[g].committed;
    if (!grows || !rule.cached() || !r.parts[g].serves) continue;
    if (rule.chained()) {
      commit_chain(r, g, keys, written);
    } else {
      commit_unchained(r, g, keys, written);
    }
  }
  return std::span<const Duplicate>{duplicates_};
}

void Requests::commit_chain(Request& r, std::size_t group, std::span<const BlockKey> keys, Fence written) {
  GroupPart& part = r.parts[group];
  const std::uint32_t from = part.prefix.length;
  const std::span<const BlockKey> computed = groups_.keys_in(group, keys, from);
  const std::span<const SlotId> slots = std::span{part.table}.subspan(from, computed.size());
  const std::size_t known = duplicates_.size();
  part.prefix = groups_.pool_of(group).commit(
      {part.prefix, computed, slots, from, r.tenant, ModelGroups::id_of(group), written, r.stamp}, duplicates_);
  part.committed = part.prefix.length;
  for (std::size_t i = known; i < duplicates_.size(); ++i) part.redundant.push_back(duplicates_[i].own);
  if (duplicates_.size() > known && group == groups_.owners()) {
    r.known = (duplicates_.back().block + 1) * groups_.rules()[group].units_per_block();
  }
}

void Requests::commit_unchained(Request& r, std::size_t group, std::span<const BlockKey> keys, Fence written) {
  GroupPart& part = r.parts[group];
  const std::uint32_t end = groups_.rules()[group].full_blocks(static_cast<std::uint32_t>(keys.size()));
  for (; part.committed < end; ++part.committed) {
    const std::uint32_t block = part.committed;
    const SlotId own = part.table[block];
    if (groups_.is_null(group, own)) continue;
    const BlockKey key = groups_.key_in(group, keys, block);
    const std::size_t known = duplicates_.size();
    const Prefix prefix = groups_.pool_of(group).commit({.held = {},
                                                         .keys = {&key, 1},
                                                         .slots = {&own, 1},
                                                         .first_in_table = block,
                                                         .tenant = r.tenant,
                                                         .group = ModelGroups::id_of(group),
                                                         .written = written,
                                                         .stamp = r.stamp,
                                                         .companion = groups_.owners().has_value()},
                                                        duplicates_);
    if (prefix.length == 0) return;
    part.unchained.push_back({block, prefix, duplicates_.size() > known});
  }
}

/// Returns the device slots that the request owns. Slots of blocks in the tree are not included.
std::vector<std::pair<PoolId, SlotId>> Requests::own_slots(const Request& r) const {
  std::vector<std::pair<PoolId, SlotId>> slots;
  for (std::size_t pool = 0; pool < groups_.pools().size(); ++pool) {
    for (const SlotId slot : r.own[pool]) slots.emplace_back(groups_.pools()[pool]->id(), slot);
  }
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    const GroupPart& part = r.parts[g];
    const PoolId pool = groups_.rules()[g].config().pool;
    for (const SlotId slot : part.redundant) slots.emplace_back(pool, slot);
    if (r.state != State::ready) continue;
    for (const UnchainedBlock& unchained_block : part.unchained) {
      if (unchained_block.duplicate) slots.emplace_back(pool, part.table[unchained_block.block]);
    }
    for (std::size_t block = part.committed; block < part.table.size(); ++block) {
      if (!groups_.is_null(g, part.table[block])) slots.emplace_back(pool, part.table[block]);
    }
  }
  return slots;
}

void Requests::release_part(GroupPart& part, std::size_t group, Fence last_use) {
  TieredPool& pool = groups_.pool_of(group);
  if (groups_.rules()[group].chained() && part.serves) {
    pool.raise_fences(part.table, last_use);
    // For a duplicate block, compute may have used the shared slot instead of the request's own.
    for (std::uint32_t block = 0; !part.redundant.empty() && block < part.prefix.length; ++block) {
      const SlotId shared = pool.residency().copy({part.prefix.node, block}, Tier::device).slot();
      pool.raise_fences({&shared, 1}, last_use);
    }
    pool.let_go(part.prefix);
    if (part.table.size() > part.prefix.length) pool.free_slots(std::span{part.table}.subspan(part.prefix.length));
    if (!part.redundant.empty()) pool.free_slots(part.redundant);
    part.redundant.clear();
  } else {
    give_up_before(part, group, static_cast<std::uint32_t>(part.table.size()), last_use);
  }
}

/// Raises the fences of a request that is not ready, but for which an event has reported layers: compute that was launched up to
/// `last_use` may still read its hits and write its new blocks.
void Requests::fence_slots(const Request& r, Fence last_use) {
  for (std::size_t pool = 0; pool < groups_.pools().size(); ++pool) {
    groups_.pools()[pool]->raise_fences(r.own[pool], last_use);
  }
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    const GroupPart& part = r.parts[g];
    const std::size_t hits_end = std::min<std::size_t>(part.end, part.table.size());
    for (std::size_t block = part.first; block < hits_end; ++block) {
      groups_.pool_of(g).raise_fences({&part.table[block], 1}, last_use);
    }
  }
}

}  // namespace terrace
