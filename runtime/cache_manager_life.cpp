// The cache as a whole: clearing, resuming, dropping and pinning by hand.

#include "base/check.hpp"
#include "runtime/cache_manager.hpp"

#include <algorithm>

namespace terrace {

void CacheManager::clear(const ClearOptions& options) {
  epoch_ = Epoch{epoch_.value() + 1};
  for (Index index = 0; index < requests_.size(); ++index) {
    const State state = requests_[index].state;
    if (state == State::waiting_for_room || state == State::loading) fail(index, Errc::cleared);
  }
  while (!pins_.empty()) end_pin(pins_.begin());
  persists_.doom_all();
  PrefixTree& tree = residency_.tree();
  tree.hide_all();
  residency_.record_cleared();

  gone_.clear();
  tree.for_each_hidden([&](BlockRef block) {
    if (residency_.copy(block, Tier::storage).present()) gone_.emplace_back(block, Tier::storage);
  });
  for (auto at = gone_.rbegin(); at != gone_.rend(); ++at) {
    // What is being written is removed when that ends; else its key would bring back what was cleared.
    if (options.storage) actions_.removes.push_back(tree.key(at->first));
    if (residency_.stored(at->first)) residency_.forget_stored(at->first);
  }
  if (options.wait) status_ = CacheStatus::clearing;
  settle();
}

/// What was hidden goes as soon as nobody holds or reads it. What a transfer brings there later goes with the next call. True
/// where anything went.
bool CacheManager::sweep_hidden() {
  PrefixTree& tree = residency_.tree();
  gone_.clear();
  if (tree.any_hidden()) {
    tree.for_each_hidden([&](BlockRef block) {
      if (residency_.stored(block)) gone_.emplace_back(block, Tier::storage);
      if (tree.pinned(block)) return;
      for (const Tier tier : {Tier::device, Tier::host}) {
        if (residency_.copy(block, tier).state() == CopyState::ready) gone_.emplace_back(block, tier);
      }
    });
    // Children first; each has a copy until its turn comes, and so is still in the tree.
    for (auto at = gone_.rbegin(); at != gone_.rend(); ++at) {
      if (at->second == Tier::storage) {
        residency_.forget_stored(at->first);
      } else {
        residency_.drop(at->first, at->second);
        ++stats_.cleared;
      }
    }
  }
  if (status_ == CacheStatus::clearing && !tree.any_hidden()) status_ = CacheStatus::cleared;
  return !gone_.empty();
}

Result<void> CacheManager::reset(const ClearOptions& options) {
  if (!by_id_.empty()) return Errc::in_use;
  clear(options);
  return {};
}

Result<void> CacheManager::resume() {
  if (status_ == CacheStatus::clearing) return Errc::paused;
  status_ = CacheStatus::normal;
  return {};
}

Result<std::uint32_t> CacheManager::drop(std::span<const BlockKey> keys) {
  PrefixTree& tree = residency_.tree();
  const Path path = tree.find(keys);
  if (keys.empty() || path.length < keys.size()) return Errc::not_found;
  if (tree.pinned(path.last())) return Errc::in_use;
  const std::uint32_t from = tree.unshared_from(path);
  std::uint32_t freed = 0;
  tree.pin(path);  // so that it stays a path until all is done
  for (std::uint32_t depth = path.length; depth-- > from;) {
    const BlockRef block{path.node, depth};
    // What stands before a copy that a transfer reads stays with it.
    const auto settled = [&](Tier tier) {
      const CopyState state = residency_.copy(block, tier).state();
      return state == CopyState::absent || state == CopyState::ready;
    };
    if (!settled(Tier::device) || !settled(Tier::host)) break;
    for (const Tier tier : {Tier::device, Tier::host}) {
      if (residency_.copy(block, tier).state() != CopyState::ready) continue;
      residency_.drop(block, tier);
      ++stats_.dropped_by_call;
      if (tier == Tier::device) ++freed;
    }
  }
  tree.unpin(path);
  settle();
  return freed;
}

Result<PinId> CacheManager::pin(std::span<const BlockKey> keys, TimePoint until) {
  if (status_ != CacheStatus::normal) return Errc::paused;
  const Path path = available(keys, Tier::storage, found_).path;
  if (path.length == 0) return Errc::not_found;
  const std::uint64_t most = config_.pinned_blocks_max > 0 ? config_.pinned_blocks_max : config_.device_blocks / 2;
  if (pinned_blocks_ + path.length > most) return Errc::no_room;
  // A pin takes slots out of what can be promised: those that are promised already stay so.
  residency_.tree().pin(path);
  if (!device_room_.can_promise(0)) {
    residency_.tree().unpin(path);
    return Errc::no_room;
  }
  // Else one of them might stay, being pinned when its copy ends, and outlive the one before it.
  for (std::uint32_t i = 0; i < path.length; ++i) {
    for (const Tier tier : {Tier::device, Tier::host}) {
      if (residency_.rescue({path.node, i}, tier)) ++stats_.rescued;
    }
  }
  last_pin_ = PinId{last_pin_.value() + 1};
  pins_.emplace(last_pin_, Pin{path, until});
  pinned_blocks_ += path.length;
  return last_pin_;
}

Result<void> CacheManager::unpin(PinId pin) {
  const auto found = pins_.find(pin);
  if (found == pins_.end()) return Errc::not_found;
  end_pin(found);
  settle();
  return {};
}

void CacheManager::end_pin(std::map<PinId, Pin>::iterator pin) {
  pinned_blocks_ -= pin->second.path.length;
  const Path path = pin->second.path;
  pins_.erase(pin);
  residency_.unpin(path);
}

std::uint32_t CacheManager::common_prefix() const {
  std::optional<Path> common;
  for (const Request& r : requests_) {
    if (r.state != State::ready) continue;
    if (!common) {
      common = r.path;
    } else {
      const std::uint32_t length = residency_.tree().common(*common, r.path);
      common = Path{common->node, length};
    }
  }
  return common ? common->length : 0;
}

Result<void> CacheManager::resize(Tier tier, std::uint32_t blocks) {
  if (config_.instant_copies) return Errc::invalid_argument;
  const Result<void> resized = resizing_.resize(tier, blocks);
  if (!resized) return resized;
  (tier == Tier::device ? config_.device_blocks : config_.host_blocks) = blocks;
  settle();
  return {};
}

}  // namespace terrace
