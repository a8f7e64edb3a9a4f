#pragma once

#include "lab/rows.hpp"
#include "terrace/device.hpp"
#include "terrace/types.hpp"

#include <cstdint>
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
};

/// Measures what ThreadedTransfers achieve on a device, for each size of block: the speed of copies and the cost of a block on the
/// control plane's thread, beside plain copies; how long an urgent block takes; how much full store lanes slow down a step of
/// compute; and when the first layers of a load arrive (transfer_measurements.hpp). Prints the medians, and returns the report.
///
/// Throws std::invalid_argument for invalid sizes and for sizes that do not fit into memory, std::system_error if memory cannot
/// be allocated, std::runtime_error if the device does not answer.
[[nodiscard]] Row bench_transfer(const TransferBenchOptions& options);

}  // namespace terrace::tools
