#pragma once

#include "runtime/cache/index/slot_allocator.hpp"
#include "terrace/system.hpp"

#include <cstdint>
#include <optional>
#include <string>

namespace terrace::tools {

/// The state after a replay, when nothing is under way: conditions that must hold whatever was replayed.
struct FinalChecks {
  bool ledgers_balanced = false;
  std::uint64_t leases = 0;
  std::uint64_t readers = 0;
  std::uint64_t quarantined = 0;
  Ledger device;
  Ledger host;
  // Only with storage:
  std::uint64_t stored = 0;
  std::uint64_t orphans = 0;
  std::uint64_t stored_with_ancestors = 0;  ///< blocks whose ancestors are all stored

  /// Describes the first condition that does not hold.
  [[nodiscard]] std::optional<std::string> broken() const;
};

/// Checks the invariants of manager and store (a broken one ends the process), and counts the rest. Nothing may be in flight.
[[nodiscard]] FinalChecks check_idle(CacheSystem& system);

}  // namespace terrace::tools
