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

std::vector<SizeEffect> size_effects(const ReuseCurve& curve, const AdminSnapshot& snapshot) {
  std::vector<SizeEffect> effects;
  if (curve.asked() == 0) return effects;
  const AdminSnapshot::Pool& pool = snapshot.pools.front();
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
      effect.hit_ratio[n] = curve.hit_ratio(changed.together(tier, snapshot.inclusion, snapshot.settings.write_policy));
    }
    effects.push_back(effect);
  }
  return effects;
}

}  // namespace terrace::admin
