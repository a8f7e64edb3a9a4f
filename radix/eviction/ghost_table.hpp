#pragma once

#include "base/block_key.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace terrace {

/// When blocks left: the last so many, in a little more than four bytes each. They lie in sets of a cache line, each a ring where
/// the newest takes the oldest one's place, so that to remember a block costs one line and no search. Time is counted by the
/// caller, in evictions, and kept in steps of 2^`grain_bits`. A block is known by its set and sixteen bits: one stranger in four
/// thousand is taken for a ghost. Memory is taken at construction. O(1). Threads: one.
class GhostTable {
 public:
  GhostTable(std::size_t blocks, unsigned grain_bits) : grain_bits_{grain_bits}, sets_(blocks / ways + 1) {}

  void insert(const BlockKey& key, std::uint64_t now) {
    Set& set = sets_[index_of(key)];
    size_ += set.tags[set.oldest] == 0;
    set.tags[set.oldest] = tag_of(key);
    set.times[set.oldest] = static_cast<std::uint16_t>(now >> grain_bits_);
    set.oldest = static_cast<std::uint16_t>(set.oldest + 1 == ways ? 0 : set.oldest + 1);
  }
  /// How long ago the block left last; nothing where that is not known.
  [[nodiscard]] std::optional<std::uint64_t> age(const BlockKey& key, std::uint64_t now) const {
    const Set& set = sets_[index_of(key)];
    const std::uint16_t tag = tag_of(key);
    for (std::size_t i = 0, way = set.oldest; i < ways; ++i) {  // from the newest
      way = way == 0 ? ways - 1 : way - 1;
      if (set.tags[way] != tag) continue;
      return std::uint64_t{static_cast<std::uint16_t>((now >> grain_bits_) - set.times[way])} << grain_bits_;
    }
    return std::nullopt;
  }

  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] std::size_t bytes_held() const { return sets_.capacity() * sizeof(Set); }

 private:
  static constexpr std::size_t ways = 15;
  struct alignas(64) Set {
    std::array<std::uint16_t, ways> tags{};  ///< 0: free
    std::array<std::uint16_t, ways> times{};
    std::uint16_t oldest = 0;
  };
  static_assert(sizeof(Set) == 64);

  [[nodiscard]] std::size_t index_of(const BlockKey& key) const {
    return static_cast<std::size_t>((key.prefix64() >> 32U) * sets_.size() >> 32U);
  }
  [[nodiscard]] static std::uint16_t tag_of(const BlockKey& key) {
    return std::max<std::uint16_t>(static_cast<std::uint16_t>(key.prefix64()), 1);
  }

  unsigned grain_bits_;
  std::size_t size_ = 0;
  std::vector<Set> sets_;
};

}  // namespace terrace
