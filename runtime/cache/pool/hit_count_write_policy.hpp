#pragma once

#include "runtime/cache/pool/pool_part.hpp"
#include "runtime/cache/pool/storage_writer.hpp"
#include "terrace/request.hpp"
#include "terrace/statistics.hpp"
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

/// Write policy `selective`: a block that has been hit ManagerConfig::selective_hits times is stored, with its ancestors. With
/// any other write policy the class does nothing.
///
/// Hits are counted in a table (HitCounts) with one entry for each block of device and host at construction. So a block may be
/// stored after more hits than selective_hits, but never after fewer.
///
/// Threads: the manager's.
class HitCountWritePolicy : PoolPart {
 public:
  HitCountWritePolicy(const PoolPart& part, const PoolSizes& sizes, StorageWriter& storage_writer)
      : PoolPart{part}, places_wanted_{std::size_t{sizes.device_blocks} + sizes.host_blocks}, storage_writer_{storage_writer} {
    on_settings();
  }

  /// Call this after the configuration was set or has changed. Makes the table if it is needed now. Hits counted so far are kept.
  void on_settings();
  /// A request has hit the blocks of this prefix.
  void on_hits(Prefix prefix);

  [[nodiscard]] std::size_t bytes_held() const { return hits_.bytes_held(); }

 private:
  std::size_t places_wanted_;
  StorageWriter& storage_writer_;
  HitCounts hits_;  ///< empty if the first hit is enough, or with another write policy
};

}  // namespace terrace
