// From "wanted" to "ready": what a request finds, the room it waits for, the loads it waits for, and planning again.

#include "base/check.hpp"
#include "runtime/cache_manager.hpp"

#include <algorithm>

namespace terrace {

/// Where each block of the longest prefix would come from, as far as that is `lowest` or above.
CacheManager::Available CacheManager::available(std::span<const BlockKey> keys, Tier lowest, std::vector<Tier>& found) const {
  const PrefixTree& tree = residency_.tree();
  Available there;
  const Path path = tree.find(keys);
  found.clear();
  const auto read = [&](Tier tier) -> std::vector<Copy>& {
    auto& row = copies_[index(tier)];
    row.resize(path.length);
    tree.read(path, Residency::plane(tier), 0, row);
    return row;
  };
  // Most of what is looked up often is all on the device: as far as that goes, nothing else is read.
  const std::vector<Copy>& on_device = read(Tier::device);
  std::uint32_t i = 0;
  while (i < path.length && on_device[i].usable()) there.leaving |= on_device[i++].state() == CopyState::leaving;
  found.assign(i, Tier::device);
  there.on_device = i;
  there.lower = tree.resident(Residency::plane(Tier::host)) + tree.resident(Residency::plane(Tier::storage)) > 0;
  if (there.lower) {
    const std::vector<Copy>& in_host = read(Tier::host);
    const std::vector<Copy>& in_storage = read(Tier::storage);
    for (; i < path.length; ++i) {
      const Copy copy = on_device[i];
      if (copy.usable()) {
        found.push_back(Tier::device);
        ++there.on_device;
        there.leaving |= copy.state() == CopyState::leaving;
      } else if (lowest == Tier::device) {
        break;
      } else if (copy.present()) {
        const Tier source = loads_.source_of({path.node, i});
        if (source > lowest) break;
        found.push_back(source);
        ++there.filling;
      } else if (in_host[i].usable()) {
        found.push_back(Tier::host);
      } else if (in_storage[i].usable() && lowest == Tier::storage) {
        found.push_back(Tier::storage);
      } else {
        break;
      }
    }
  }
  there.path = i == path.length ? path : tree.first(path, i);
  return there;
}

/// Pins what is there and takes or waits for the rest; nothing changed where it fails.
Result<void> CacheManager::plan(Index index, std::span<const BlockKey> keys) {
  Request& r = requests_[index];
  // A prefix that failed to load twice is computed rather than tried a third time.
  const Tier lowest = r.failures >= 2 ? Tier::device : r.lowest_tier;
  const std::span<const BlockKey> usable = keys.first(std::min<std::size_t>(keys.size(), r.hit_blocks_max));
  Available there = available(usable, lowest, found_);
  if (r.drop_last_hit && there.path.length > 0) there = available(usable.first(there.path.length - 1), lowest, found_);
  const std::uint32_t needed = r.blocks - there.on_device - there.filling;

  PrefixTree& tree = residency_.tree();
  tree.pin(there.path);
  if (!device_room_.can_promise(needed)) {
    tree.unpin(there.path);
    return Errc::no_room;
  }
  r.path = there.path;
  r.hits = there.path.length;
  r.joined = there.filling;
  stats_.joined += there.filling;
  // Planned again, blocks keep the tier they were first found in.
  const std::size_t known = std::min<std::size_t>(r.found.size(), r.hits);
  r.found.resize(known);
  r.found.insert(r.found.end(), found_.begin() + static_cast<std::ptrdiff_t>(known), found_.end());
  if (r.stamp == 0) {
    r.stamp = ++last_stamp_;
    // (What the device has of a path is its beginning.)
    device_room_.on_request(keys, there.on_device + there.filling);
  }
  tree.touch(r.path, r.stamp);
  rescue_path(index, there);
  if (config_.instant_copies && config_.relation == Relation::exclusive) detach_hits(r);

  if (needed > 0) device_room_.take_free(needed, std::nullopt, r.own);
  if (r.own.size() < needed) {
    r.state = State::waiting_for_room;
    device_room_.wait(index, needed - static_cast<std::uint32_t>(r.own.size()));
  } else {
    start_loads(index);
  }
  return {};
}

/// Copies of the path that were on their way out stay; storage hears what is in use above it.
void CacheManager::rescue_path(Index index, const Available& there) {
  const Request& r = requests_[index];
  if (there.leaving) {
    for (std::uint32_t i = 0; i < r.hits; ++i) {
      if (residency_.rescue({r.path.node, i}, Tier::device)) ++stats_.rescued;
    }
  }
  if (there.lower) {
    const auto& in_host = copies_[terrace::index(Tier::host)];
    const auto& in_storage = copies_[terrace::index(Tier::storage)];
    std::optional<BlockRef> deepest_stored;
    for (std::uint32_t i = 0; i < r.hits; ++i) {
      const BlockRef block{r.path.node, i};
      if (in_host[i].state() == CopyState::leaving && residency_.rescue(block, Tier::host)) ++stats_.rescued;
      if (in_storage[i].usable()) deepest_stored = block;
    }
    if (deepest_stored) actions_.touches.push_back(residency_.tree().key(*deepest_stored));
  }
  back_ups_.on_hits(r.path);
}

/// Reference order for exclusive: the host slots of the hits count as free before room is made. Their bytes are still to be
/// read, so a staging slot's place in the budget is taken for each, for the length of this call.
void CacheManager::detach_hits(Request& r) {
  for (std::uint32_t i = 0; i < r.hits && residency_.staging_free() > 0; ++i) {
    const BlockRef block{r.path.node, i};
    if (residency_.copy(block, Tier::device).present()) continue;
    if (residency_.copy(block, Tier::host).state() != CopyState::ready) continue;
    r.detached.emplace_back(i, residency_.detach(block, Tier::host));
  }
}

void CacheManager::on_served(Index index, std::span<const SlotId> slots, bool last) {
  Request& r = requests_[index];
  TERRACE_CHECK(r.state == State::waiting_for_room);
  r.own.insert(r.own.end(), slots.begin(), slots.end());
  if (last) start_loads(index);
}

/// All slots are there: each hit that is not on the device gets one and is loaded, or joins the load that brings it already.
void CacheManager::start_loads(Index index) {
  Request& r = requests_[index];
  r.state = State::loading;
  parts_.clear();
  std::size_t used = 0;
  std::size_t detached = 0;
  auto& row = copies_[terrace::index(Tier::device)];
  row.resize(r.hits);
  residency_.tree().read(r.path, Residency::plane(Tier::device), 0, row);
  for (std::uint32_t i = 0; i < r.hits; ++i) {
    const Copy on_device = row[i];
    if (on_device.usable()) continue;
    const BlockRef block{r.path.node, i};
    if (on_device.present()) {
      const Loads::LoadId load = loads_.load_of(block);
      if (loads_.join(load, index)) r.loads.push_back(load);
      continue;
    }
    LoadPart part;
    part.block = residency_.tree().at(r.path, i);
    if (detached < r.detached.size() && r.detached[detached].first == i) {
      part.detached = r.detached[detached++].second;
    } else if (residency_.usable(block, Tier::host)) {
      part.source = Tier::host;
    } else if (residency_.stored(block) && r.lowest_tier == Tier::storage) {
      part.source = Tier::storage;
    } else {
      // The tier it was in gave it up while the request waited for room.
      ++stats_.load_failures;
      for (const Loads::LoadId load : r.loads) loads_.leave(load, index);
      r.loads.clear();
      undo(index);
      to_replan_.push_back(index);
      return;
    }
    TERRACE_CHECK(used < r.own.size());
    part.device_slot = r.own[used++];
    parts_.push_back(part);
  }
  r.detached.clear();
  r.own.erase(r.own.begin(), r.own.begin() + static_cast<std::ptrdiff_t>(used));

  // Others may have loaded meanwhile what this request had planned to load itself.
  const std::size_t wanted = r.blocks - r.hits;
  TERRACE_CHECK(r.own.size() >= wanted);
  residency_.pool(Tier::device).put_all(std::span{r.own}.subspan(wanted));
  r.own.resize(wanted);

  if (!parts_.empty()) {
    if (const auto load = loads_.start(parts_, index, r.deadline)) r.loads.push_back(*load);
  }
  if (requests_[index].loads.empty()) become_ready(index);
}

void CacheManager::become_ready(Index index) {
  Request& r = requests_[index];
  r.table.clear();
  auto& row = copies_[terrace::index(Tier::device)];
  row.resize(r.hits);
  residency_.tree().read(r.path, Residency::plane(Tier::device), 0, row);
  for (const Copy copy : row) r.table.push_back(copy.slot());
  r.table.insert(r.table.end(), r.own.begin(), r.own.end());
  r.own.clear();
  r.state = State::ready;
  clear_deadline(index);
  if (r.announce) events_.push_back({r.id, {}});
}

/// A pending request lets go of everything.
void CacheManager::undo(Index index) {
  Request& r = requests_[index];
  for (const Loads::LoadId load : r.loads) loads_.leave(load, index);
  r.loads.clear();
  device_room_.leave(index);
  residency_.unpin(r.path);
  r.path = {};
  r.hits = 0;
  residency_.pool(Tier::device).put_all(r.own);
  r.own.clear();
  for (; !r.detached.empty(); r.detached.pop_back()) residency_.pool(Tier::host).put(r.detached.back().second);
}

void CacheManager::fail(Index index, ErrorCode error) {
  Request& r = requests_[index];
  clear_deadline(index);
  undo(index);
  std::erase(to_replan_, index);
  r.state = State::failed;
  events_.push_back({r.id, error});
}

/// Every pending request that counts on the block lets go of its path and plans again.
void CacheManager::on_load_failed(BlockRef missing) {
  for (Index index = 0; index < requests_.size(); ++index) {
    Request& r = requests_[index];
    if (r.state != State::waiting_for_room && r.state != State::loading) continue;
    if (r.hits <= missing.depth) continue;
    if (!residency_.tree().same({r.path.node, missing.depth}, missing)) continue;
    ++r.failures;
    undo(index);
    to_replan_.push_back(index);
  }
}

void CacheManager::on_load_ended(Index index, Loads::LoadId load) {
  Request& r = requests_[index];
  // A request that planned again, or was released, does not wait for this load any more.
  if (r.state != State::loading || std::erase(r.loads, load) == 0) return;
  if (r.loads.empty()) become_ready(index);
}

void CacheManager::replan_failed() {
  while (!to_replan_.empty()) {
    const Index index = to_replan_.back();
    to_replan_.pop_back();
    ++stats_.replans;
    if (const Result<void> planned = plan(index, requests_[index].keys); !planned) fail(index, planned.error());
  }
}

void CacheManager::clear_deadline(Index index) {
  const auto [first, last] = deadlines_.equal_range(requests_[index].deadline);
  for (auto at = first; at != last; ++at) {
    if (at->second != index) continue;
    deadlines_.erase(at);
    return;
  }
}

}  // namespace terrace
