#pragma once

#include "terrace/types.hpp"
#include "tools/bench/transfer/transfer_rig.hpp"
#include "tools/replay/engine/latencies.hpp"
#include "transfer/engine/transfer_scheduler.hpp"

#include <cstdint>

namespace terrace::tools {

/// The duration of a step of compute that reads device memory, as decoding does.
struct ComputeRow {
  Bytes block_bytes{};
  Bytes step_bytes{};         ///< bytes that a step reads
  std::uint32_t samples = 0;  ///< for `alone` and for `beside`, each
  Percentiles alone_us;       ///< while nothing moves
  Percentiles beside_us;      ///< while the store lane of one direction is always full
  double slowdown_p50 = 0;    ///< beside_us divided by alone_us
  double slowdown_p99 = 0;
};

/// Measures steps alone and beside a full lane in turns, `rounds` times. This is only for the emulated device: there the compute
/// and the copies are different threads that share only memory.
[[nodiscard]] ComputeRow measure_compute(TransferRig& rig, const TransferSchedulerConfig& lanes, unsigned rounds);

}  // namespace terrace::tools
