#pragma once

#include "lab/rows.hpp"
#include "terrace/types.hpp"

#include <cstdint>
#include <string_view>
#include <vector>

namespace terrace::tools {

enum class OffloadDevice : unsigned char {
  instant,   ///< copies happen in the call, on the calling thread
  emulated,  ///< copies happen on threads of their own
};
[[nodiscard]] std::string_view to_string(OffloadDevice device);

struct OffloadBenchOptions {
  OffloadDevice device = OffloadDevice::instant;
  std::vector<Bytes> block_bytes{KiB * 64, MiB * 2};
  Bytes area_bytes = MiB * 128;       ///< bytes moved in each direction and round
  std::uint32_t small_blocks = 4096;  ///< blocks of the smallest size, for the cost of an order
  unsigned rounds = 7;
};

/// Measures an OffloadCache over a device whose memory belongs to the caller, with keys in flat and in prefix order: stores and
/// loads of blocks in orders of 32, and loads from memory in place of a disk, beside memcpy of the same blocks in the same
/// rounds; the same for blocks of 64 bytes, where nearly all the time is the cost of an order; questions about 32 keys, beside a
/// std::unordered_set; and orders that are refused because they exceed a bound. The host tier is full when the rounds begin, so
/// stores include evictions. Every block is compared after the first load. Prints the medians, and writes them to the report.
///
/// Throws std::invalid_argument for invalid sizes and for sizes that do not fit into memory; std::runtime_error if a block is not
/// moved.
[[nodiscard]] Row bench_offload(const OffloadBenchOptions& options);

}  // namespace terrace::tools
