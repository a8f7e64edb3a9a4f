#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace terrace {

/// Whether and how soon a block was used again. Known for cached blocks, and for evicted ones while a ghost remembers them.
///
///     fresh ──► near   used again while it was cached, or within one cache residence time after its eviction
///       └─────► far    used again later than that (a near block that returns so late becomes far)
///
enum class ReuseClass : std::uint8_t { fresh, far, near };
inline constexpr std::size_t reuse_class_count = 3;

/// How much later than its true last use a block of each class counts as used, in cache residence times: the time in which the
/// tier takes in as many blocks as it holds. All 0: least recently used first.
struct RecencyBoost {
  std::array<double, reuse_class_count> residence_times{};

  /// When a block last used at `last_use` counts as last used.
  [[nodiscard]] double age(ReuseClass reuse_class, std::uint64_t last_use, double residence_time) const {
    return static_cast<double>(last_use) + residence_times[static_cast<std::size_t>(reuse_class)] * residence_time;
  }
};

/// The class of a block that returns when the tier has evicted `evictions` blocks since it evicted this one.
[[nodiscard]] constexpr ReuseClass reuse_class_on_return(std::uint64_t evictions, std::uint64_t capacity) {
  return evictions <= capacity ? ReuseClass::near : ReuseClass::far;
}

}  // namespace terrace
