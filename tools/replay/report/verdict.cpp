#include "runtime/cache/control/cache_manager.hpp"
#include "tools/replay/replay.hpp"

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

Verdict judge_injected(const ReplayOptions& options, const ReplayResult& result) {
  const std::string name = fmt::format("--inject {}", to_string(options.inject));
  const std::uint64_t planted = result.faults_planted;
  if (result.mismatches > 0) {
    return {ExitStatus::check_failed,
            fmt::format("{}: {} {} planted, {} mismatches caught; first: {}", name, planted, planted_unit(options.inject),
                        result.mismatches, describe(*result.first_mismatch))};
  }
  if (planted > 0) {
    return {ExitStatus::check_failed,
            fmt::format("{}: {} {} planted, and none was caught", name, planted, planted_unit(options.inject))};
  }
  return {ExitStatus::run_failed, fmt::format("{}: nothing was planted, since too little was copied: replay more requests, or "
                                              "over a smaller device",
                                              name)};
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

Verdict judge(const ReplayOptions& options, const ReplayResult& result) {
  if (result.mismatches > 0 && options.inject == Fault::none) {
    return {ExitStatus::check_failed, fmt::format("{} of {} compared hit blocks do not hold what their keys say; first: {}",
                                                  result.mismatches, result.compared, describe(*result.first_mismatch))};
  }
  if (const auto broken = result.checks.broken(); broken && !result.left_behind) {
    return {ExitStatus::check_failed, fmt::format("check failed: {}", *broken)};
  }
  if (result.failure) return {ExitStatus::run_failed, *result.failure};
  if (result.checkpoint && result.checkpoint->job.flush_error) {
    return {ExitStatus::run_failed,
            fmt::format("checkpoint: storage could not be flushed: {}", result.checkpoint->job.flush_error.message())};
  }
  if (result.interrupted) return {ExitStatus::interrupted, fmt::format("interrupted after {} requests", result.counts.requests)};
  if (options.verify == Verify::all && result.checked != result.counts.hits()) {
    return {ExitStatus::check_failed, fmt::format("{} of {} hit blocks were compared", result.checked, result.counts.hits())};
  }
  if (options.inject != Fault::none) return judge_injected(options, result);
  return {};
}

}  // namespace terrace::tools
