#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace terrace {

/// Whether and how soon a block was used again. The class is known for cached blocks, and for evicted blocks as long as they have
/// a ghost.
///
///     fresh ──► near   used again while it was cached, or within one cache residence time after its eviction
///       └─────► far    used again later than that (a near block that returns so late becomes far)
enum class ReuseClass : std::uint8_t { fresh, far, near };
inline constexpr std::size_t reuse_class_count = 3;

/// For each reuse class: how much later than its true last use a block counts as used. The unit is the cache residence time: the
/// time in which the tier takes in as many blocks as it holds. If all are 0, the rule is LRU.
struct RecencyBoost {
  std::array<double, reuse_class_count> residence_times{};

  /// Returns the stamp at which a block counts as last used, if its true last use was at `last_use`. `residence_time` is in
  /// stamps.
  [[nodiscard]] double age(ReuseClass reuse_class, std::uint64_t last_use, double residence_time) const {
    return static_cast<double>(last_use) + residence_times[static_cast<std::size_t>(reuse_class)] * residence_time;
  }
};

/// Returns the class of a block that returns after the tier has evicted `evictions` blocks since it evicted this one.
[[nodiscard]] constexpr ReuseClass reuse_class_on_return(std::uint64_t evictions, std::uint64_t capacity) {
  return evictions <= capacity ? ReuseClass::near : ReuseClass::far;
}

}  // namespace terrace
