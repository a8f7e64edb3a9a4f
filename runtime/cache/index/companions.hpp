#pragma once

#include "terrace/types.hpp"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <memory_resource>
#include <unordered_map>

namespace terrace {

class Residency;

/// The companions of the owners in one Residency: blocks that stand alone and are of use only together with a block of a prefix,
/// their *owner*. Examples are the blocks of a sliding window, or the states of a recurrent layer, at one place of a prompt.
///
/// Names only: a companion may have left its tree. An owner forgets its companions when its last copy in memory goes. Threads:
/// the manager's.
class Companions {
 public:
  /// `in` has the companion, and outlives this object.
  struct Block {
    Residency* in = nullptr;
    BlockKey key;
    bool ends_hit = false;  ///< a hit can end after the owner: the companions that it needs are there
  };

  [[nodiscard]] bool empty() const { return by_owner_.empty(); }
  /// If the owner has this companion already, only `ends_hit` can become true.
  void add(const BlockKey& owner, const Block& companion) {
    const auto [begin, end] = by_owner_.equal_range(owner);
    const auto same = [&](const auto& each) { return each.second.in == companion.in && each.second.key == companion.key; };
    if (const auto known = std::find_if(begin, end, same); known != end) known->second.ends_hit |= companion.ends_hit;
    else by_owner_.emplace(owner, companion);
  }
  [[nodiscard]] bool ends_hit(const BlockKey& owner) const {
    const auto [begin, end] = by_owner_.equal_range(owner);
    return std::any_of(begin, end, [](const auto& each) { return each.second.ends_hit; });
  }
  /// Calls `visit(companion)` for each companion of the owner.
  template <class Visit>
  void for_each(const BlockKey& owner, const Visit& visit) const {
    const auto [begin, end] = by_owner_.equal_range(owner);
    for (auto each = begin; each != end; ++each) visit(each->second);
  }
  void forget(const BlockKey& owner) { by_owner_.erase(owner); }
  void clear() { by_owner_.clear(); }
  [[nodiscard]] std::size_t size() const { return by_owner_.size(); }
  [[nodiscard]] std::size_t of(const BlockKey& owner) const { return by_owner_.count(owner); }
  [[nodiscard]] std::size_t bytes_held() const {
    constexpr std::size_t link = 2 * sizeof(void*);  // of an element to the next one, and of its bucket
    return by_owner_.size() * (sizeof(decltype(by_owner_)::value_type) + link) + by_owner_.bucket_count() * sizeof(void*);
  }

 private:
  std::pmr::unsynchronized_pool_resource memory_;  ///< keeps the memory of elements for later ones
  std::pmr::unordered_multimap<BlockKey, Block, std::hash<BlockKey>> by_owner_{&memory_};
};

}  // namespace terrace
