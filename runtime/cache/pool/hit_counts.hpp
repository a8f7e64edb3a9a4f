#pragma once

#include "terrace/types.hpp"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace terrace {

/// Counts hits of blocks, in a table of fixed size with 8 bytes an entry. If two blocks share an entry, a hit of one replaces the
/// count of the other, and starts at one. So a count may be too small, but never too large. Threads: one.
class HitCounts {
 public:
  /// Makes the table, with at least `places` entries. The counts so far are lost.
  void resize(std::size_t places) {
    constexpr std::size_t places_min = 64;
    places_.assign(std::bit_ceil(std::max(places, places_min)), {});
  }
  [[nodiscard]] bool empty() const { return places_.empty(); }
  struct Counted {
    std::uint32_t hits = 0;  ///< hits of this block, including this one; at most `most`
    bool begun = false;      ///< this is the first hit of this block in the table
  };
  /// Counts a hit of the block. The table must not be empty.
  Counted count(const BlockKey& key, std::uint32_t most) {
    const std::uint64_t hash = key.prefix64();
    const auto name = static_cast<std::uint32_t>(hash >> 32);
    Place& place = places_[hash & (places_.size() - 1)];
    const bool begun = place.hits == 0 || place.name != name;
    if (begun) place = {name, 0};
    if (place.hits < most) ++place.hits;
    return {place.hits, begun};
  }
  [[nodiscard]] std::size_t bytes_held() const { return places_.capacity() * sizeof(Place); }

 private:
  struct Place {
    std::uint32_t name = 0;
    std::uint32_t hits = 0;
  };

  std::vector<Place> places_;  ///< the size is a power of two
};

}  // namespace terrace
