#include "runtime/admin/size_effects.hpp"

#include <algorithm>

namespace terrace::admin {

double TierBlocks::together(Tier lowest, InclusionPolicy inclusion, WritePolicy write_policy) const {
  double blocks = device;
  if (lowest == Tier::device) return blocks;
  const bool host_has_all = inclusion == InclusionPolicy::inclusive;
  blocks = host_has_all ? std::max(blocks, host) : blocks + host;
  if (lowest == Tier::host) return blocks;
  return write_policy == WritePolicy::write_through ? std::max(blocks, storage) : blocks + storage;
}

AdminSnapshot::Measured measured_blocks(std::span<const GroupConfig> groups, std::uint32_t hash_unit_tokens) {
  if (groups.empty()) return {};
  const auto first = std::ranges::find(groups, GroupKind::full, &GroupConfig::kind);
  if (first == groups.end()) return {.units_per_block = 0};
  double blocks_per_token = 0;
  for (const GroupConfig& group : groups) {
    const bool few = group.kind == GroupKind::recurrent || group.kind == GroupKind::cross;
    if (!few && group.pool == first->pool) blocks_per_token += 1.0 / group.block_tokens;
  }
  return {.pool = first->pool, .units_per_block = 1 / (blocks_per_token * hash_unit(groups, hash_unit_tokens))};
}

std::vector<SizeEffect> size_effects(const ReuseCurve& curve, const AdminSnapshot& snapshot) {
  std::vector<SizeEffect> effects;
  if (curve.asked() == 0) return effects;
  const AdminSnapshot::Pool& pool = snapshot.pools[snapshot.measured.pool.value()];
  const TierBlocks now{static_cast<double>(pool.device.blocks), static_cast<double>(pool.host.blocks),
                       pool.store ? static_cast<double>(pool.store->capacity_blocks) : 0};
  for (const auto& [tier, size] : {std::pair{Tier::device, &TierBlocks::device}, std::pair{Tier::host, &TierBlocks::host},
                                   std::pair{Tier::storage, &TierBlocks::storage}}) {
    const auto blocks = static_cast<std::uint64_t>(now.*size);
    if (blocks == 0) continue;
    SizeEffect effect{.tier = tier, .blocks = blocks, .bytes = pool.block_bytes * blocks};
    for (std::size_t n = 0; n < size_factors.size(); ++n) {
      TierBlocks changed = now;
      changed.*size *= size_factors[n].factor;
      const double together = changed.together(tier, snapshot.inclusion, snapshot.settings.write_policy);
      effect.hit_ratio[n] = curve.hit_ratio(together * snapshot.measured.units_per_block);
    }
    effects.push_back(effect);
  }
  return effects;
}

}  // namespace terrace::admin
