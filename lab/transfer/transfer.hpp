#pragma once

#include "terrace/device.hpp"
#include "terrace/types.hpp"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

namespace terrace::tools {

struct TransferBenchOptions {
  std::optional<int> cuda;  ///< the number of a CUDA device; empty: the emulated device
  std::vector<Bytes> block_bytes{KiB * 4, KiB * 16, KiB * 64, KiB * 256, MiB, MiB * 4};
  /// Bytes moved in each direction, in as many blocks of each size as fit. It should be much larger than the last-level cache.
  Bytes area_bytes = MiB * 256;
  std::uint32_t blocks = 0;  ///< blocks in each direction for every size, instead of area_bytes; 0: use area_bytes
  unsigned rounds = 9;
  TransferPieces pieces{};
  /// Layers of a block, for sizes that are a multiple of them; loads by layer are measured with these. 1: loads by layer are not
  /// measured.
  std::uint32_t layers = 32;
  /// The speed of the emulated device's link, per second and direction; 0: the speed of memory.
  BytesPerSecond link_bytes_per_second{};
  std::filesystem::path report;  ///< empty: no report
};

/// Measures what ThreadedTransfers achieve on a device, for each size of block:
///
/// - copies: the speed of each direction and of both together, for contiguous and for scattered blocks, for transfers that
///   requests wait for and for those that nobody waits for. It is compared with one plain copy of the same size, and with the
///   same copies without queues, lanes and the hand-over between threads (CopyRow);
/// - the cost of a block on the control plane's thread: to submit it, and to collect its event;
/// - urgent: how long a swap-in of one block takes while nothing else moves, and while the store lane of the same direction is
///   full (UrgentRow);
/// - compute: how much full store lanes slow down a step of compute, by what the step needs most (ComputeRow);
/// - layers: when the first layers of a load arrive, compared with the whole load (LayersRow).
///
/// The compared subjects take turns in each round. Prints the medians, and writes them to the report. Throws
/// std::invalid_argument for invalid sizes and for sizes that do not fit into memory, std::system_error if memory cannot be
/// allocated, std::runtime_error if the device does not answer or the report cannot be written.
void bench_transfer(const TransferBenchOptions& options);

}  // namespace terrace::tools
