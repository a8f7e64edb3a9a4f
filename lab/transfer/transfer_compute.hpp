#pragma once

#include "lab/transfer/compute_work.hpp"
#include "lab/transfer/transfer_rig.hpp"
#include "terrace/types.hpp"
#include "tools/replay/engine/latencies.hpp"
#include "transfer/engine/transfer_scheduler.hpp"

#include <cstdint>
#include <vector>

namespace terrace::tools {

/// The duration of a step of compute.
struct ComputeRow {
  Bytes block_bytes{};
  ComputeKind kind = ComputeKind::memory;
  std::uint32_t samples = 0;  ///< for `alone` and for `beside`, each
  Percentiles alone_us;       ///< while nothing moves
  Percentiles beside_us;      ///< while the store lanes of both directions are always full
  double slowdown_p50 = 0;    ///< beside_us divided by alone_us
  double slowdown_p99 = 0;
  double gb_per_s = 0;  ///< of both lanes together, beside compute
};

/// Measures steps of each kind that the device has, alone and beside full lanes in turns, `rounds` times. On the emulated device
/// the compute and the copies are different threads that share only memory.
[[nodiscard]] std::vector<ComputeRow> measure_compute(TransferRig& rig, const TransferSchedulerConfig& lanes, unsigned rounds);

}  // namespace terrace::tools
