#pragma once

#include "runtime/types/write_budget.hpp"
#include "terrace/clock.hpp"
#include "terrace/types.hpp"

namespace terrace {

/// How much is being written, and has been written, to the shared store by all pools of a cache together: the limits of
/// SharedConfig hold for all of them. Each pool's SharedWriter reads and changes it.
///
/// Ownership: ModelGroups owns it. Threads: the manager's.
struct SharedWriteLimits {
  Bytes writing{};         ///< bytes that are being written
  TimePoint next_write{};  ///< when SharedConfig::write_rate allows the next write
  WriteBudget budget;      ///< of SharedConfig::daily_write_bytes
};

}  // namespace terrace
