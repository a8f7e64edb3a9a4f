#include "runtime/cache/index/quotas.hpp"

#include <algorithm>

namespace terrace {

void Quotas::set(TenantId tenant, TenantQuota quota) {
  quotas_.insert_or_assign(tenant, quota);
  for (const Tier tier : {Tier::device, Tier::host}) tree_.limit_tenant(tenant, tier, quota.in(tier).value());
}

std::optional<TenantQuota> Quotas::quota(TenantId tenant) const {
  const auto found = quotas_.find(tenant);
  return found == quotas_.end() ? std::nullopt : std::optional{found->second};
}

/// The same as victims(), among the copies of one tenant, which is to have `most_copies` and asks for `slots` more.
std::optional<Run> Quotas::victims_of(TenantId tenant, Tier tier, std::uint64_t most_copies, std::uint64_t slots,
                                      std::uint32_t most) const {
  const std::uint64_t has = tree_.resident(tier, tenant) + slots;
  if (has <= most_copies) return std::nullopt;
  return tree_.victims(tier, static_cast<std::uint32_t>(std::min<std::uint64_t>(has - most_copies, most)), tenant);
}

std::optional<Run> Quotas::victims(Tier tier, std::uint32_t most, std::optional<Asker> asker) const {
  const auto quota_of_asker = asker ? quotas_.find(asker->tenant) : quotas_.end();
  if (quota_of_asker != quotas_.end()) {
    const std::uint64_t may_have = quota_of_asker->second.in(tier).value();
    if (const auto run = victims_of(asker->tenant, tier, may_have, asker->slots, most)) return run;
  }
  for (const TenantId tenant : tree_.over_limit(tier)) {
    if (asker && asker->tenant == tenant) continue;
    if (const auto run = victims_of(tenant, tier, quotas_.at(tenant).in(tier).value(), 0, most)) return run;
  }
  return tree_.victims(tier, most);
}

std::optional<BlockRef> Quotas::victim(Tier tier, std::optional<Asker> asker) const {
  if (quotas_.empty()) return tree_.victim(tier);
  const std::optional<Run> run = victims(tier, 1, asker);
  if (!run) return std::nullopt;
  return BlockRef{run->node, run->begin};
}

}  // namespace terrace
