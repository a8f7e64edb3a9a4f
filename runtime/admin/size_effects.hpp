#pragma once

#include "runtime/admin/snapshot.hpp"
#include "runtime/cache/measure/reuse_curve.hpp"
#include "terrace/groups.hpp"
#include "terrace/types.hpp"

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace terrace::admin {

/// The sizes for which the hit ratio of a tier is estimated, as factors of its present size.
struct SizeFactor {
  double factor;
  std::string_view name;
};
inline constexpr std::array<SizeFactor, 4> size_factors{{{0.5, "half"}, {1, "same"}, {2, "double"}, {4, "fourfold"}}};

/// The hit ratio of an LRU cache in this tier and the tiers above it, if this tier had another size.
struct SizeEffect {
  Tier tier = Tier::device;
  std::uint64_t blocks = 0;
  Bytes bytes{};
  std::array<double, size_factors.size()> hit_ratio{};  ///< by size_factors
};

/// Different blocks that the tiers hold together when they are full. With an inclusive host tier, and with write-through, the
/// lower tier also has the blocks of the upper one. Otherwise each block is counted in one tier only, so the number is an upper
/// bound.
struct TierBlocks {
  double device = 0;
  double host = 0;
  double storage = 0;

  [[nodiscard]] double together(Tier lowest, InclusionPolicy inclusion, WritePolicy write_policy) const;
};

/// Returns which blocks are measured: those of the first group with full attention, because each prefix needs all of them. Other
/// groups in its pool compute blocks for the same tokens, and compete for slots by age; groups with few blocks (states, encoders)
/// are left out. Nothing is measured if no group has full attention.
[[nodiscard]] AdminSnapshot::Measured measured_blocks(std::span<const GroupConfig> groups, std::uint32_t hash_unit_tokens = 0);

/// One entry for each tier of the pool that is measured, from the device down. If there are several pools, the others have to
/// change in proportion. Empty if nothing was measured, or requests have not asked for anything.
[[nodiscard]] std::vector<SizeEffect> size_effects(const ReuseCurve& curve, const AdminSnapshot& snapshot);

}  // namespace terrace::admin
