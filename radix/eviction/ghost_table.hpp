#pragma once

#include "base/large_memory.hpp"
#include "terrace/types.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace terrace {

/// Records when blocks left a tier, for the last `blocks` blocks, in a little more than four bytes for each. The caller counts
/// time in evictions. The table keeps 16 bits of it, in steps of 2^`grain_bits`.
///
/// The table consists of sets of one cache line. Each set is a ring in which the newest record replaces the oldest, so that
/// recording a block accesses one cache line and needs no search. A record names its block by its set and 16 bits of its key:
/// about one lookup in four thousand finds the ghost of another block.
///
/// Ownership: all memory is taken at construction. Threads: one. Every call costs O(1).
class GhostTable {
 public:
  GhostTable(std::size_t blocks, unsigned grain_bits) : grain_bits_{grain_bits}, sets_(blocks / ways + 1) {}

  /// Prefetches the memory that insert() of this block needs.
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
    const std::uint32_t found = set.with_tag(tag);
    if (found == 0) return std::nullopt;
    // The newest record is the last one before `oldest`, or else the last one of all.
    const std::uint32_t before_oldest = found & ((1U << set.oldest) - 1U);
    const auto way = static_cast<std::size_t>(std::bit_width(before_oldest != 0 ? before_oldest : found) - 1);
    return std::uint64_t{static_cast<std::uint16_t>((now >> grain_bits_) - set.times[way])} << grain_bits_;
  }

  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] std::size_t bytes_held() const { return sets_.capacity() * sizeof(Set); }

 private:
  static constexpr std::size_t ways = 15;
  struct alignas(cache_line_bytes) Set {
    /// 0: no record; the last element is always 0 and pads the tags to two full registers
    std::array<std::uint16_t, ways + 1> tags{};
    std::array<std::uint16_t, ways> times{};
    std::uint16_t oldest = 0;

    /// Returns one bit for each way with this tag. All ways are compared at once, because a sequential search would end at an
    /// unpredictable way, and a mispredicted branch costs more than the whole comparison.
    [[nodiscard]] std::uint32_t with_tag(std::uint16_t tag) const {
      using Words [[gnu::vector_size(16)]] = std::uint16_t;
      const auto halves = std::bit_cast<std::array<Words, 2>>(tags);
      constexpr Words low{1U << 0U, 1U << 1U, 1U << 2U, 1U << 3U, 1U << 4U, 1U << 5U, 1U << 6U, 1U << 7U};
      constexpr Words high{1U << 8U, 1U << 9U, 1U << 10U, 1U << 11U, 1U << 12U, 1U << 13U, 1U << 14U, 1U << 15U};
      const Words bits = ((halves[0] == tag) & low) | ((halves[1] == tag) & high);
      const auto words = std::bit_cast<std::array<std::uint64_t, 2>>(bits);
      std::uint64_t all = words[0] | words[1];
      all |= all >> 32U;
      all |= all >> 16U;
      return all & 0xFFFFU;
    }
  };
  static_assert(sizeof(Set) == cache_line_bytes);

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
