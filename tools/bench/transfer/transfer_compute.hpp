#pragma once

#include "base/bytes.hpp"
#include "tools/bench/transfer/transfer_rig.hpp"
#include "tools/replay/engine/latencies.hpp"
#include "transfer/engine/transfer_scheduler.hpp"

#include <cstdint>

namespace terrace::tools {

/// How long a step of compute takes that reads the device's memory, as decoding does.
struct ComputeRow {
  Bytes block_bytes{};
  Bytes step_bytes{};         ///< that a step reads
  std::uint32_t samples = 0;  ///< of alone and of beside each
  Percentiles alone_us;       ///< nothing moves
  Percentiles beside_us;      ///< the store lane of a direction never runs dry
  double slowdown_p50 = 0;    ///< beside over alone
  double slowdown_p99 = 0;
};

/// Alone and beside in turn, `rounds` times. Of the emulated device alone: compute is a thread there, the copies are others, and
/// what they share is memory.
[[nodiscard]] ComputeRow measure_compute(TransferRig& rig, const TransferSchedulerConfig& lanes, unsigned rounds);

}  // namespace terrace::tools
