#pragma once

#include <cstdint>
#include <limits>
#include <span>

namespace terrace {

/// Measured cost of loading one block of a pool (see Throughput). 0: nothing has been measured, and the block counts as free of
/// cost.
struct LoadCosts {
  double link_seconds = 0;  ///< from host to device
  double read_seconds = 0;  ///< from storage to the host
  /// The most blocks that may be requested from storage at a time.
  std::uint32_t reads_max = std::numeric_limits<std::uint32_t>::max();
  double shared_seconds = 0;  ///< from the shared store to the host
  /// The time until the shared store answers, even for the smallest question.
  double shared_round_trip = 0;
  std::uint32_t shared_max = std::numeric_limits<std::uint32_t>::max();  ///< the same as reads_max, for the shared store
};

/// Cost of one hash unit of a hit: how long its blocks keep disk and link busy.
struct UnitCost {
  double read_seconds = 0;
  double link_seconds = 0;
  std::uint32_t reads = 0;  ///< blocks to read from storage
  double shared_seconds = 0;
  std::uint32_t shared = 0;  ///< blocks to read from the shared store
  /// Another request already reads blocks of this unit from storage (joins_read) or from the shared store (joins_shared), or
  /// copies them from the host (joins_link).
  bool joins_read = false;
  bool joins_link = false;
  bool joins_shared = false;
};

/// Load work that is queued already, and a limit for new work.
struct LoadQueues {
  double read_seconds = 0;
  double link_seconds = 0;
  std::uint32_t reads_max = std::numeric_limits<std::uint32_t>::max();
  double shared_seconds = 0;  ///< with its round trip
  std::uint32_t shared_max = std::numeric_limits<std::uint32_t>::max();
};

/// Number of leading units of a hit to load, chosen so that the request has its whole prompt as early as possible. Units that are
/// loaded wait behind the work in `queues`. Units that are not loaded are computed, in `unit_prefill_seconds` each. If two
/// choices are equally good, the function returns the one that computes less.
///
/// The times of storage, shared store and link are added, although reads and copies overlap. So a hit is loaded only if that pays
/// off even without overlap.
[[nodiscard]] std::uint32_t units_worth_loading(std::span<const UnitCost> units, const LoadQueues& queues,
                                                double unit_prefill_seconds);

}  // namespace terrace
