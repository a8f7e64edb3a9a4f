#pragma once

#include "runtime/cache/types/write_budget.hpp"
#include "terrace/clock.hpp"
#include "terrace/types.hpp"

namespace terrace {

/// The writes of all pools of a cache to the shared store, under way and per day. The limits of SharedConfig apply to their sum.
/// The SharedWriter of each pool reads and changes it.
///
/// Ownership: ModelGroups owns it. Threads: the manager's.
struct SharedWriteLimits {
  Bytes writing{};         ///< bytes that are being written
  TimePoint next_write{};  ///< when SharedConfig::write_rate allows the next write
  WriteBudget budget;      ///< of SharedConfig::daily_write_bytes
};

}  // namespace terrace
