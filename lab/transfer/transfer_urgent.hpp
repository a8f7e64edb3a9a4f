#pragma once

#include "lab/transfer/transfer_rig.hpp"
#include "terrace/types.hpp"
#include "tools/replay/engine/latencies.hpp"
#include "transfer/engine/transfer_scheduler.hpp"

#include <cstdint>

namespace terrace::tools {

/// How long a request waits for the swap-in of one block, from submit to event.
struct UrgentRow {
  Bytes block_bytes{};
  std::uint32_t samples = 0;  ///< for `idle` and for `busy`, each
  Percentiles idle_us;        ///< while nothing else moves
  Percentiles busy_us;        ///< while the store lane of the same direction is always full
  std::uint32_t piece_blocks = 0;
  double piece_us = 0;             ///< the median time that a piece of the store lane uses the stream
  std::uint32_t pieces_ahead = 0;  ///< how many of them may be under way
  /// The upper bound for busy_us by design: the median of idle_us, plus these pieces.
  double bound_us = 0;
};

/// Measures idle and busy in turns, `rounds` times. A pause of random length comes before each transfer, so that it may start at
/// any moment of a piece.
[[nodiscard]] UrgentRow measure_urgent(TransferRig& rig, const TransferSchedulerConfig& lanes, unsigned rounds);

}  // namespace terrace::tools
