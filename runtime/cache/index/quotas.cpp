#include "runtime/cache/index/quotas.hpp"

#include <algorithm>

namespace terrace {

void Quotas::set(TenantId tenant, TenantQuota quota) {
  const auto found = std::ranges::find(entries_, tenant, &Entry::tenant);
  if (found != entries_.end()) found->quota = quota;
  else entries_.push_back({tenant, quota});
}

std::optional<TenantQuota> Quotas::quota(TenantId tenant) const {
  const auto found = std::ranges::find(entries_, tenant, &Entry::tenant);
  if (found == entries_.end()) return std::nullopt;
  return found->quota;
}

std::uint64_t Quotas::excess(const Entry& entry, Tier tier, std::optional<Asker> asker) const {
  const std::uint64_t most = (tier == Tier::device ? entry.quota.device_blocks : entry.quota.host_blocks).value();
  std::uint64_t has = tree_.resident(tier, entry.tenant);
  if (asker && asker->tenant == entry.tenant) has += asker->slots;
  return has > most ? has - most : 0;
}

std::optional<Run> Quotas::victims(Tier tier, std::uint32_t most, std::optional<Asker> asker) const {
  const auto among = [&](const Entry& entry) -> std::optional<Run> {
    const std::uint64_t over = excess(entry, tier, asker);
    if (over == 0) return std::nullopt;
    return tree_.victims(tier, static_cast<std::uint32_t>(std::min<std::uint64_t>(over, most)), entry.tenant);
  };
  for (const bool askers_turn : {true, false}) {
    for (const Entry& entry : entries_) {
      if ((asker && asker->tenant == entry.tenant) != askers_turn) continue;
      if (const auto run = among(entry)) return run;
    }
  }
  return tree_.victims(tier, most);
}

std::optional<BlockRef> Quotas::victim(Tier tier, std::optional<Asker> asker) const {
  if (entries_.empty()) return tree_.victim(tier);
  const std::optional<Run> run = victims(tier, 1, asker);
  if (!run) return std::nullopt;
  return BlockRef{run->node, run->begin};
}

}  // namespace terrace
