// From "wanted" to "ready": what a request finds, the room it waits for, the loads it waits for, and planning again.

#include "base/check.hpp"
#include "runtime/cache_manager.hpp"

#include <algorithm>

namespace terrace {

/// The longest prefix whose every block has a copy somewhere, and where each would come from. `device_only`: take nothing that
/// has to be loaded.
std::uint32_t CacheManager::available(std::span<const BlockKey> keys, bool device_only, Path& path,
                                      std::vector<Tier>& found) const {
  path = residency_.tree().find(keys);
  found.clear();
  for (const Tier tier : all_tiers) {
    auto& row = copies_[index(tier)];
    row.resize(path.length);
    residency_.tree().read(path, Residency::plane(tier), 0, row);
  }
  for (std::uint32_t i = 0; i < path.length; ++i) {
    const Copy on_device = copies_[index(Tier::device)][i];
    if (on_device.usable()) {
      found.push_back(Tier::device);
    } else if (device_only) {
      break;
    } else if (on_device.present()) {
      found.push_back(loads_.source_of({path.node, i}));
    } else if (copies_[index(Tier::host)][i].usable()) {
      found.push_back(Tier::host);
    } else if (copies_[index(Tier::storage)][i].usable()) {
      found.push_back(Tier::storage);
    } else {
      break;
    }
  }
  path = residency_.tree().first(path, static_cast<std::uint32_t>(found.size()));
  return path.length;
}

/// Pins what is there and takes or waits for the rest; nothing changed where it fails.
Result<void> CacheManager::plan(Index index, std::span<const BlockKey> keys) {
  Request& r = requests_[index];
  // A prefix that failed to load twice is computed rather than tried a third time.
  const bool device_only = r.failures >= 2;
  Path path;
  const std::span<const BlockKey> usable = keys.first(std::min<std::size_t>(keys.size(), r.hit_blocks_max));
  const std::uint32_t hits = available(usable, device_only, path, found_);
  const auto& on_device = copies_[terrace::index(Tier::device)];
  std::uint32_t there = 0;
  std::uint32_t filling = 0;
  for (std::uint32_t i = 0; i < hits; ++i) {
    if (!on_device[i].present()) continue;
    ++there;
    if (!on_device[i].usable()) ++filling;
  }
  const std::uint32_t needed = r.blocks - there;

  PrefixTree& tree = residency_.tree();
  tree.pin(path);
  if (!device_room_.can_promise(needed)) {
    tree.unpin(path);
    return Errc::no_room;
  }
  r.path = path;
  r.hits = hits;
  r.joined = filling;
  stats_.joined += filling;
  // Planned again, blocks keep the tier they were first found in.
  for (std::uint32_t i = static_cast<std::uint32_t>(r.found.size()); i < hits; ++i) r.found.push_back(found_[i]);
  r.found.resize(hits);
  if (r.stamp == 0) {
    r.stamp = ++last_stamp_;
    // (What the device has of a path is its beginning.)
    device_room_.on_request(keys, there);
  }
  tree.touch(path, r.stamp);
  rescue_path(index);
  if (config_.instant_copies && config_.relation == Relation::exclusive) detach_hits(r);

  while (r.own.size() < needed) {
    const auto slot = device_room_.take_free(r.own.empty() ? std::nullopt : std::optional{r.own.back()});
    if (!slot) break;
    r.own.push_back(*slot);
  }
  if (r.own.size() < needed) {
    r.state = State::waiting_for_room;
    device_room_.wait(index, needed - static_cast<std::uint32_t>(r.own.size()));
  } else {
    start_loads(index);
  }
  return {};
}

/// Copies of the path that were on their way out stay; storage hears what is in use above it.
void CacheManager::rescue_path(Index index) {
  const Request& r = requests_[index];
  std::optional<BlockRef> deepest_stored;
  for (std::uint32_t i = 0; i < r.hits; ++i) {
    const BlockRef block{r.path.node, i};
    if (copies_[terrace::index(Tier::device)][i].state() == CopyState::leaving && residency_.rescue(block, Tier::device)) {
      ++stats_.rescued;
    }
    if (copies_[terrace::index(Tier::host)][i].state() == CopyState::leaving && residency_.rescue(block, Tier::host)) {
      ++stats_.rescued;
    }
    if (copies_[terrace::index(Tier::storage)][i].usable()) deepest_stored = block;
  }
  if (deepest_stored) actions_.touches.push_back(residency_.tree().key(*deepest_stored));
  if (config_.storage && config_.write_policy == WritePolicy::selective && r.hits > 0) {
    if (!residency_.copy(r.path.last(), Tier::storage).present()) persists_.begin(r.path.last());
  }
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

void CacheManager::on_served(Index index, SlotId slot, bool last) {
  Request& r = requests_[index];
  TERRACE_CHECK(r.state == State::waiting_for_room);
  r.own.push_back(slot);
  if (last) start_loads(index);
}

/// All slots are there: each hit that is not on the device gets one and is loaded, or joins the load that brings it already.
void CacheManager::start_loads(Index index) {
  Request& r = requests_[index];
  r.state = State::loading;
  parts_.clear();
  std::size_t used = 0;
  std::size_t detached = 0;
  for (std::uint32_t i = 0; i < r.hits; ++i) {
    const BlockRef block{r.path.node, i};
    const Copy on_device = residency_.copy(block, Tier::device);
    if (on_device.usable()) continue;
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
    } else if (residency_.stored(block)) {
      part.source = Tier::storage;
    } else {
      // Storage gave it up while the request waited for room.
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
  for (; r.own.size() > wanted; r.own.pop_back()) residency_.pool(Tier::device).put(r.own.back());

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
  // A block that was rescued may have outlived the one before it in its tier.
  std::optional<BlockRef> gap;
  for (std::uint32_t i = 1; i < r.hits && !gap; ++i) {
    const BlockRef block{r.path.node, i};
    for (const Tier tier : {Tier::device, Tier::host}) {
      if (residency_.copy(block, tier).present() && !residency_.supported(block, tier)) gap = residency_.tree().at(r.path, i - 1);
    }
  }
  if (gap) {
    residency_.unpin_at_gap(r.path, *gap);
  } else {
    residency_.tree().unpin(r.path);
  }
  r.path = {};
  r.hits = 0;
  for (; !r.own.empty(); r.own.pop_back()) residency_.pool(Tier::device).put(r.own.back());
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
    const std::vector<BlockKey> keys = requests_[index].keys;
    if (const Result<void> planned = plan(index, keys); !planned) fail(index, planned.error());
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
