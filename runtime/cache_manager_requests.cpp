// The calls of a request's life.

#include "base/check.hpp"
#include "runtime/cache_manager.hpp"

#include <algorithm>
#include <type_traits>

namespace terrace {

MatchResult CacheManager::match(std::span<const BlockKey> keys, Tier lowest_tier) const {
  MatchResult result;
  if (status_ != CacheStatus::normal || !config_.caching) return result;
  const Available there = available(keys, lowest_tier, found_);
  if (there.on_device == there.path.length) {
    result.device = there.on_device;
    return result;
  }
  // A block on its way up counts under where it comes from: that is what its bytes wait for.
  for (const Tier tier : found_) ++(tier == Tier::device ? result.device : tier == Tier::host ? result.host : result.storage);
  return result;
}

Result<Acquired> CacheManager::acquire(const AcquireRequest& wanted) {
  if (wanted.blocks == 0 || wanted.keys.size() > wanted.blocks) return Errc::invalid_argument;
  const SlotPool& device = residency_.pool(Tier::device);
  const bool too_long = config_.request_blocks_max > 0 && wanted.blocks > config_.request_blocks_max;
  if (too_long || wanted.blocks > device.capacity() - device.count(SlotState::null)) return Errc::never_fits;
  if (by_id_.contains(wanted.id)) return Errc::duplicate_request;
  if (status_ != CacheStatus::normal) return Errc::paused;

  const Index index = new_request();
  {
    Request& r = requests_[index];
    r.id = wanted.id;
    r.blocks = wanted.blocks;
    r.key_count = static_cast<std::uint32_t>(wanted.keys.size());
    r.hit_blocks_max = config_.caching ? wanted.hit_blocks_max : 0;
    r.drop_last_hit = wanted.drop_last_hit;
    r.lowest_tier = wanted.lowest_tier;
    r.name_space = wanted.name_space;
    r.deadline = wanted.deadline;
    r.keys = wanted.keys;
    r.epoch = epoch_;
  }
  if (const Result<void> planned = plan(index, wanted.keys); !planned) {
    ++stats_.refused_no_room;
    forget(index);
    return planned.error();
  }
  ++stats_.acquired;
  by_id_.emplace(wanted.id, index);
  if (requests_[index].state != State::ready) {
    Request& r = requests_[index];
    r.announce = true;
    if (r.deadline != never) deadlines_.emplace(r.deadline, index);
  }
  // With nothing to wait for, as with instant copies, this call ends what it began.
  settle();
  Request& r = requests_[index];
  if (r.state == State::ready) {
    if (r.announce) std::erase_if(events_, [&](const RequestEvent& event) { return event.id == wanted.id; });
    r.announce = false;
    return Acquired::ready;
  }
  r.kept_keys.assign(wanted.keys.begin(), wanted.keys.end());
  r.keys = r.kept_keys;
  return Acquired::pending;
}

Result<void> CacheManager::extend(RequestId id, std::uint32_t blocks) {
  const Result<Index> index = find_ready(id);
  if (!index) return index.error();
  Request& r = requests_[*index];
  if (blocks == 0) return Errc::invalid_argument;
  if (config_.request_blocks_max > 0 && r.table.size() + blocks > config_.request_blocks_max) return Errc::never_fits;
  if (!device_room_.can_promise(blocks)) return Errc::no_room;
  const std::size_t before = r.table.size();
  device_room_.take_free(blocks, r.table.back(), r.table);
  while (r.table.size() < before + blocks) {
    const std::optional<SlotId> slot = device_room_.take_by_dropping();
    if (!slot) {
      // What could be dropped is being copied just now.
      residency_.pool(Tier::device).put_all(std::span{r.table}.subspan(before));
      r.table.resize(before);
      settle();
      return Errc::no_room;
    }
    r.table.push_back(*slot);
  }
  settle();
  return {};
}

Result<std::span<const Duplicate>> CacheManager::commit(RequestId id, std::span<const BlockKey> keys, Fence written) {
  const Result<Index> index = find_ready(id);
  if (!index) return index.error();
  Request& r = requests_[*index];
  if (keys.size() > r.table.size()) return Errc::invalid_argument;
  duplicates_.clear();
  const std::uint32_t from = r.path.length;
  // What an older epoch computed is nobody else's.
  if (keys.size() <= from || r.epoch != epoch_ || !config_.caching) return std::span<const Duplicate>{};

  PrefixTree& tree = residency_.tree();
  const Path whole = tree.extend(r.path, keys.subspan(from), r.name_space);
  tree.pin(whole);
  // First what was in the tree before, block by block; then what is new to it, at once.
  const std::uint32_t known = whole.length - tree.added();
  std::uint32_t end = from;
  while (end < known && commit_over(r, {whole.node, end}, written)) ++end;
  Path path = whole;
  if (end == known) {
    const std::span<const SlotId> slots = std::span{r.table}.first(whole.length).subspan(known);
    residency_.pool(Tier::device).raise_fences(slots, written);
    residency_.adopt_added(whole, slots);
  } else {
    path = tree.first(whole, end);
    tree.pin(path);
    tree.unpin(whole);
  }
  tree.unpin(r.path);
  r.path = path;
  tree.touch(path, r.stamp);
  copy_down(from, path);
  settle();
  return std::span<const Duplicate>{duplicates_};
}

/// Commits a block that was in the tree before: its device copy may be there already, or on its way (false: not now).
bool CacheManager::commit_over(Request& r, BlockRef block, Fence written) {
  const SlotId own = r.table[block.depth];
  const Copy there = residency_.copy(block, Tier::device);
  if (there.state() == CopyState::filling) return false;
  residency_.rescue(block, Tier::host);
  if (there.present()) {
    if (residency_.rescue(block, Tier::device)) ++stats_.rescued;
    ++stats_.duplicates;
    duplicates_.push_back({block.depth, own, there.slot()});
    r.redundant.push_back(own);
    return true;
  }
  residency_.pool(Tier::device).raise_fence(own, written);
  residency_.adopt(block, Tier::device, own);
  if (config_.relation == Relation::exclusive && residency_.copy(block, Tier::host).state() == CopyState::ready) {
    residency_.drop(block, Tier::host);
  }
  return true;
}

/// What the relation and the write policy want done with blocks as they become shared.
void CacheManager::copy_down(std::uint32_t from, Path path) {
  if (path.length == from) return;
  if (config_.relation == Relation::inclusive && config_.host_blocks > 0) {
    for (std::uint32_t i = from; i < path.length; ++i) {
      const BlockRef block = residency_.tree().at(path, i);
      if (residency_.copy(block, Tier::host).present()) continue;
      // No room in the host tier: then the block has no copy there, as if the host had given it up again.
      (void)host_room_.swap_out(block, SwapOutPurpose::duplicate);
    }
  }
  if (config_.storage && config_.write_policy == WritePolicy::write_through) persists_.begin(path.last());
}

Result<void> CacheManager::release(RequestId id, Fence last_use) {
  const Result<Index> found = find(id);
  if (!found) return found.error();
  const Index index = *found;
  Request& r = requests_[index];
  if (r.state == State::ready) {
    SlotPool& device = residency_.pool(Tier::device);
    device.raise_fences(r.table, last_use);
    residency_.tree().unpin(r.path);
    device.put_all(std::span{r.table}.subspan(r.path.length));
    device.put_all(r.redundant);
    r.redundant.clear();
  } else {
    undo(index);
  }
  std::erase(to_replan_, index);
  // What was still to be told of it interests nobody now.
  if (r.announce) std::erase_if(events_, [&](const RequestEvent& event) { return event.id == id; });
  by_id_.erase(id);
  clear_deadline(index);
  forget(index);
  settle();
  return {};
}

Result<std::span<const SlotId>> CacheManager::block_table(RequestId id) const {
  const Result<Index> index = find_ready(id);
  if (!index) return index.error();
  return std::span<const SlotId>{requests_[*index].table};
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
  return requests_[*index].path.length;
}

Result<RequestStats> CacheManager::request_stats(RequestId id) const {
  const Result<Index> index = find(id);
  if (!index) return index.error();
  const Request& r = requests_[*index];
  RequestStats stats;
  stats.blocks = r.key_count;
  for (std::uint32_t i = 0; i < r.hits; ++i) {
    ++(r.found[i] == Tier::device ? stats.device : r.found[i] == Tier::host ? stats.host : stats.storage);
  }
  stats.miss = r.key_count - r.hits;
  stats.joined = r.joined;
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

CacheManager::Index CacheManager::new_request() {
  if (free_requests_.empty()) {
    // Moved, not copied, when the vector grows: `keys` may look into `kept_keys`.
    static_assert(std::is_nothrow_move_constructible_v<Request>);
    requests_.emplace_back();
    return static_cast<Index>(requests_.size() - 1);
  }
  const Index index = free_requests_.back();
  free_requests_.pop_back();
  return index;
}

/// Empties the record, but keeps its vectors' memory for the next request.
void CacheManager::forget(Index index) {
  Request& r = requests_[index];
  TERRACE_CHECK(r.own.empty() && r.redundant.empty() && r.loads.empty() && r.detached.empty());
  Request empty;
  std::swap(empty.table, r.table);
  std::swap(empty.own, r.own);
  std::swap(empty.redundant, r.redundant);
  std::swap(empty.found, r.found);
  std::swap(empty.loads, r.loads);
  std::swap(empty.detached, r.detached);
  std::swap(empty.kept_keys, r.kept_keys);
  empty.table.clear();
  empty.found.clear();
  empty.kept_keys.clear();
  r = std::move(empty);
  free_requests_.push_back(index);
}

}  // namespace terrace
