#pragma once

#include "terrace/types.hpp"

#include <cstdint>

namespace terrace::tools {

struct CopyBenchOptions {
  Bytes block_bytes = Bytes{64 << 10};
  /// The size of each of the two areas. It should be much larger than the last-level cache.
  Bytes area_bytes = Bytes{std::uint64_t{512} << 20};
  unsigned rounds = 9;
};

/// Measures the baseline for everything that moves blocks in memory: one core copies all blocks of one area to another with
/// memcpy, in a scattered order. Prints the median, minimum and maximum speed of the rounds. Throws std::invalid_argument if an
/// area holds no block, std::system_error if there is not enough memory.
void bench_copy(const CopyBenchOptions& options);

}  // namespace terrace::tools
