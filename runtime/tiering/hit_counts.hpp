#pragma once

#include "terrace/types.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace terrace {

/// Counts hits of blocks, in a table of fixed size with 8 bytes an entry. If two blocks share an entry, the one that is hit takes
/// it from the other and starts at one hit. So a count may be too small, but never too large. Threads: one.
class HitCounts {
 public:
  /// Makes the table, with at least so many entries. Counts so far are lost.
  void resize(std::size_t places);
  [[nodiscard]] bool empty() const { return places_.empty(); }
  struct Counted {
    std::uint32_t hits = 0;  ///< of this block so far, this one included; `most` at most
    bool begun = false;      ///< this is the first one that is known
  };
  /// Counts a hit of the block. The table must not be empty.
  Counted count(const BlockKey& key, std::uint32_t most);
  [[nodiscard]] std::size_t bytes_held() const { return places_.capacity() * sizeof(Place); }

 private:
  struct Place {
    std::uint32_t name = 0;
    std::uint32_t hits = 0;
  };

  std::vector<Place> places_;  ///< a power of two
};

}  // namespace terrace
