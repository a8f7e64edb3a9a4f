#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace terrace {

/// Whether and how soon a block was used again. The class is known for cached blocks, and for evicted blocks while they have a
/// ghost.
///
///     fresh ──► near   used again while it was cached, or within one cache residence time after its eviction
///       └─────► far    used again later than that (a near block that returns this late becomes far)
enum class ReuseClass : std::uint8_t { fresh, far, near };
inline constexpr std::size_t reuse_class_count = 3;

/// For each reuse class, the time that is added to the last use of a block. The unit is the cache residence time: the time in
/// which the number of blocks that the tier takes in equals its capacity. If all values are 0, the rule is LRU.
struct RecencyBoost {
  std::array<double, reuse_class_count> residence_times{};

  /// Returns the stamp that counts as the last use of a block whose true last use was at `last_use`. `residence_time` is in
  /// stamps.
  [[nodiscard]] double age(ReuseClass reuse_class, std::uint64_t last_use, double residence_time) const {
    return static_cast<double>(last_use) + residence_times[static_cast<std::size_t>(reuse_class)] * residence_time;
  }
};

/// Returns the class of a block that returns after the tier has evicted `evictions` blocks since the eviction of this block.
[[nodiscard]] constexpr ReuseClass reuse_class_on_return(std::uint64_t evictions, std::uint64_t capacity) {
  return evictions <= capacity ? ReuseClass::near : ReuseClass::far;
}

}  // namespace terrace
