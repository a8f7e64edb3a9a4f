#include "tools/replay/report/final_checks.hpp"

#include "runtime/cache/control/cache_manager.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_set>
#include <vector>

namespace terrace::tools {
namespace {

/// Counts the blocks whose ancestors are all stored. It uses only the store's list: it visits blocks in order of depth, and a
/// block counts if its parent has been counted.
std::uint64_t count_with_ancestors(const BlockStore& store) {
  std::vector<StoredBlock> blocks;
  store.for_each([&](const StoredBlock& block) { blocks.push_back(block); });
  std::ranges::stable_sort(blocks, {}, &StoredBlock::depth);
  std::unordered_set<BlockKey> whole;
  for (const StoredBlock& block : blocks) {
    if (block.depth == 0 || whole.contains(block.parent)) whole.insert(block.key);
  }
  return whole.size();
}

void add(Ledger& all, const Ledger& pool) {
  for (const auto field : {&Ledger::free, &Ledger::held, &Ledger::filling, &Ledger::ready, &Ledger::quarantined, &Ledger::null,
                           &Ledger::retired, &Ledger::total}) {
    all.*field += pool.*field;
  }
}

}  // namespace

std::optional<std::string> FinalChecks::broken() const {
  if (!ledgers_balanced) return "a ledger does not add up";
  if (leases != 0) return fmt::format("{} leases are left", leases);
  if (readers != 0) return fmt::format("{} readers are left", readers);
  if (device.held + host.held != 0) return fmt::format("{} slots are held without an owner", device.held + host.held);
  if (orphans != 0) return fmt::format("{} stored blocks have no stored parent", orphans);
  if (stored_with_ancestors != stored) {
    return fmt::format("{} of {} stored blocks have all their ancestors", stored_with_ancestors, stored);
  }
  return std::nullopt;
}

FinalChecks check_idle(CacheSystem& system) {
  const CacheManager& manager = system.cache().manager();
  manager.check_invariants();
  FinalChecks checks;
  checks.ledgers_balanced = true;
  for (std::size_t number = 0; number < system.pool_count(); ++number) {
    const PoolId pool{static_cast<std::uint16_t>(number)};
    checks.ledgers_balanced &= manager.device_ledger(pool).balanced() && manager.host_ledger(pool).balanced();
    add(checks.device, manager.device_ledger(pool));
    add(checks.host, manager.host_ledger(pool));
    const BlockStore* const store = system.store(pool);
    if (store == nullptr) continue;
    store->check_invariants();
    const StoreStat stat = store->stat();
    checks.stored += stat.blocks;
    checks.orphans += stat.orphans;
    checks.stored_with_ancestors += count_with_ancestors(*store);
  }
  checks.leases = manager.requests().live_requests();
  checks.readers = manager.readers();
  checks.quarantined = checks.device.quarantined + checks.host.quarantined;
  return checks;
}

}  // namespace terrace::tools
