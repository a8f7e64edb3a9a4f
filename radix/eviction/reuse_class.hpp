#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace terrace {

/// How well a block has proven itself, by how it came back. Kept while it is remembered.
///
///     fresh ──► near   used again while it was there, or back before the tier had turned over once since it left
///       └─────► far    back later than that (a near one that is back so late is far, too)
///
enum class ReuseClass : std::uint8_t { fresh, far, near };
inline constexpr std::size_t reuse_class_count = 3;

/// How long blocks of each standing stay beyond their last use, in turnovers (the time in which the tier takes in as many
/// blocks as it holds), compared with a fresh one. All 0: least recently used first.
struct RecencyBoost {
  std::array<double, reuse_class_count> residence_times{};

  /// When a block last used at `last_use` counts as last used.
  [[nodiscard]] double age(ReuseClass reuse_class, std::uint64_t last_use, double residence_time) const {
    return static_cast<double>(last_use) + residence_times[static_cast<std::size_t>(reuse_class)] * residence_time;
  }
};

/// How a block comes back that left `departures` departures ago.
[[nodiscard]] constexpr ReuseClass reuse_class_on_return(std::uint64_t evictions, std::uint64_t capacity) {
  return evictions <= capacity ? ReuseClass::near : ReuseClass::far;
}

}  // namespace terrace
