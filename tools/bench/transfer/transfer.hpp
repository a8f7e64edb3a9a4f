#pragma once

#include "base/bytes.hpp"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

namespace terrace::tools {

struct TransferBenchOptions {
  std::optional<int> cuda;  ///< which CUDA device; none: the emulated one
  std::vector<Bytes> block_bytes{KiB * 4, KiB * 16, KiB * 64, KiB * 256, MiB, MiB * 4};
  /// Of one direction; as many blocks of each size as it holds. Well above the last-level cache.
  Bytes area_bytes = MiB * 256;
  std::uint32_t blocks = 0;  ///< a direction, of whatever size, instead of the area; 0: the area's
  unsigned rounds = 9;
  Bytes piece_bytes = MiB;             ///< TransferSchedulerConfig's
  std::uint32_t pieces_in_flight = 2;  ///< TransferSchedulerConfig's
  /// Of a block, of sizes that they divide: what loads by layer are measured with. 1: none.
  std::uint32_t layers = 32;
  /// Of the emulated device, per second and direction; 0: as fast as memory goes.
  Bytes link_bytes_per_second{};
  std::filesystem::path report;  ///< empty: none
};

/// What ThreadedTransfers make of a device, for each size of block:
///
/// - copies: the speed of each direction and of both at once, of contiguous and of scattered blocks, beside one plain copy of
///   as much, and beside the same copies without queues, lanes and threads' hand-overs (CopyRow);
/// - the cost of a block on the control plane's thread: to submit it, and to take in its event;
/// - urgent: how long a swap-in of one block takes while nothing else moves, and while the store lane of the same direction is
///   full, with what a piece takes (UrgentRow);
/// - compute: what becomes of a step of compute beside a full store lane; on the emulated device (ComputeRow);
/// - layers: when the first layers of a load are there, beside the whole load (LayersRow).
///
/// What is compared takes turns in each round. Prints the medians, and writes them to the report. Throws std::invalid_argument
/// where sizes make no sense or are more than there is memory for, std::system_error where memory is not to be had after all,
/// std::runtime_error where the device does not answer or the report cannot be written.
void bench_transfer(const TransferBenchOptions& options);

}  // namespace terrace::tools
