#pragma once

#include "base/bytes.hpp"
#include "tools/bench/transfer/transfer_rig.hpp"
#include "tools/replay/engine/latencies.hpp"
#include "transfer/engine/transfer_scheduler.hpp"

#include <cstdint>

namespace terrace::tools {

/// How long a request waits for the swap-in of one block, from submit to event.
struct UrgentRow {
  Bytes block_bytes{};
  std::uint32_t samples = 0;  ///< of idle and of busy each
  Percentiles idle_us;        ///< nothing else moves
  Percentiles busy_us;        ///< the store lane of the same direction never runs dry
  std::uint32_t piece_blocks = 0;
  double piece_us = 0;  ///< what a piece of the store lane keeps the stream for; median
  /// What the lanes promise of busy_us at this speed: idle's median, and every piece that may be under way.
  double bound_us = 0;
};

/// Idle and busy in turn, `rounds` times, each transfer after a pause of random length, so that it comes at any moment of a
/// piece.
[[nodiscard]] UrgentRow measure_urgent(TransferRig& rig, const TransferSchedulerConfig& lanes, unsigned rounds);

}  // namespace terrace::tools
