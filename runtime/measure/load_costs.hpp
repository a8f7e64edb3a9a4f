#pragma once

#include <cstdint>
#include <limits>
#include <span>

namespace terrace {

/// What it costs to bring a block of one pool up, by what has been measured (Throughput). 0: not known, and so nothing.
struct LoadCosts {
  double link_seconds = 0;  ///< of a block, from host to device
  double read_seconds = 0;  ///< from storage to the host
  /// How many blocks may be asked of storage at once.
  std::uint32_t reads_max = std::numeric_limits<std::uint32_t>::max();
};

/// Of one unit of a hit: how long its blocks keep the links busy.
struct UnitCost {
  double read_seconds = 0;
  double link_seconds = 0;
  std::uint32_t reads = 0;  ///< blocks that storage is asked for
  bool joins_read = false;  ///< somebody else has asked storage for some of it, or the host
  bool joins_link = false;
};

/// What others have asked of the links already, and what may be asked for.
struct LoadQueues {
  double read_seconds = 0;
  double link_seconds = 0;
  std::uint32_t reads_max = std::numeric_limits<std::uint32_t>::max();
};

/// How many leading units of a hit to take, so that the request has its whole prompt as soon as it can: what is taken has to be
/// waited for, behind what others wait for; what is not is computed, `unit_prefill_seconds` a unit. Of choices that are equally
/// good the one that computes least.
///
/// Read and link are added up, though they overlap: a hit is to be worth it without luck.
[[nodiscard]] std::uint32_t units_worth_loading(std::span<const UnitCost> units, const LoadQueues& queues,
                                                double unit_prefill_seconds);

}  // namespace terrace
