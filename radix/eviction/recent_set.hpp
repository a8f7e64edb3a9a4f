#pragma once

#include "base/block_key.hpp"

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

namespace terrace {

/// Remembers the last n to 2n different blocks, in 24 to 48 bits for each of the n: two Bloom filters by turns (Bloom,
/// "Space/time trade-offs in hash coding with allowable errors", CACM 1970). When the young one has taken n, the old one is
/// emptied and is the young one. Says yes to about one stranger in a hundred; never forgets one of the last n. Memory is
/// taken at construction. Threads: one.
class RecentSet {
 public:
  explicit RecentSet(std::size_t blocks) : blocks_{blocks} {
    const std::size_t bits = std::bit_ceil(blocks * bits_per_block);
    for (auto& words : generations_) words.resize(bits / 64 + 1);
    mask_ = static_cast<std::uint32_t>(bits - 1);
  }

  [[nodiscard]] bool contains(const BlockKey& key) const { return in(young_, key) || in(1 - young_, key); }
  /// It is one of the latest from now on. True where it was in the set already.
  bool insert(const BlockKey& key) {
    if (in(young_, key)) return true;
    const bool was_there = in(1 - young_, key);
    if (size_ == blocks_) {
      young_ = 1 - young_;
      generations_[young_].assign(generations_[young_].size(), 0);
      size_ = 0;
    }
    ++size_;
    for (const std::uint32_t bit : bits_of(key)) generations_[young_][bit / 64] |= std::uint64_t{1} << (bit % 64);
    return was_there;
  }

 private:
  static constexpr std::size_t bits_per_block = 12;
  static constexpr std::size_t hashes = 4;

  /// Keys are digests: words of one are hashes, but for the first eight bytes, which others use as one.
  [[nodiscard]] std::array<std::uint32_t, hashes> bits_of(const BlockKey& key) const {
    std::array<std::uint32_t, hashes> bits{};
    std::memcpy(bits.data(), key.bytes.data() + 8, sizeof bits);
    for (std::uint32_t& bit : bits) bit &= mask_;
    return bits;
  }
  [[nodiscard]] bool in(std::size_t generation, const BlockKey& key) const {
    for (const std::uint32_t bit : bits_of(key)) {
      if ((generations_[generation][bit / 64] >> (bit % 64) & 1) == 0) return false;
    }
    return true;
  }

  std::size_t blocks_;
  std::uint32_t mask_ = 0;
  std::array<std::vector<std::uint64_t>, 2> generations_;
  std::size_t young_ = 0;
  std::size_t size_ = 0;  ///< of the young generation
};

}  // namespace terrace
