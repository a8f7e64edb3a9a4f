#pragma once

#include "base/large_memory.hpp"
#include "terrace/types.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace terrace {

/// Records when blocks left a tier, for the last `blocks` blocks, in a little more than four bytes for each. The caller counts
/// time in evictions. The table keeps 16 bits of it, in steps of 2^`grain_bits`.
///
/// The table consists of sets of one cache line. Each set is a ring in which the newest record replaces the oldest, so that
/// recording a block touches one line and needs no search. (In a table of less than a huge page, a set may lie in two lines.) A
/// record names its block by its set and 16 bits of its key: about one lookup in four thousand finds the ghost of another block.
///
/// Ownership: all memory is taken at construction. Threads: one. Every call costs O(1).
class GhostTable {
 public:
  GhostTable(std::size_t blocks, unsigned grain_bits) : grain_bits_{grain_bits}, sets_(blocks / ways + 1) {}

  /// Fetches what insert() of this block will need.
  void prefetch(const BlockKey& key) const { __builtin_prefetch(&sets_[index_of(key)], 1); }
  /// Records that the block leaves the tier at `now`.
  void insert(const BlockKey& key, std::uint64_t now) {
    Set& set = sets_[index_of(key)];
    size_ += set.tags[set.oldest] == 0;
    set.tags[set.oldest] = tag_of(key);
    set.times[set.oldest] = static_cast<std::uint16_t>(now >> grain_bits_);
    set.oldest = static_cast<std::uint16_t>(set.oldest + 1 == ways ? 0 : set.oldest + 1);
  }
  /// Returns how long ago the block left last, in evictions, or nothing if there is no record of it.
  [[nodiscard]] std::optional<std::uint64_t> age(const BlockKey& key, std::uint64_t now) const {
    const Set& set = sets_[index_of(key)];
    const std::uint16_t tag = tag_of(key);
    for (std::size_t i = 0, way = set.oldest; i < ways; ++i) {  // from the newest record to the oldest
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
  struct alignas(16) Set {
    std::array<std::uint16_t, ways> tags{};  ///< 0: no record
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
  std::vector<Set, LargeAllocator<Set>> sets_;
};

}  // namespace terrace
