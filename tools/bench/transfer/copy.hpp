#pragma once

#include "base/bytes.hpp"

#include <cstdint>

namespace terrace::tools {

struct CopyBenchOptions {
  Bytes block_bytes = Bytes{64 << 10};
  /// Of each of the two areas; well above the last-level cache.
  Bytes area_bytes = Bytes{std::uint64_t{512} << 20};
  unsigned rounds = 9;
};

/// The yardstick for everything that moves blocks in memory: one core copies all blocks of one area to another with memcpy, in
/// a scattered order. Prints the median, least and greatest speed of the rounds.
/// Throws std::invalid_argument where an area holds no block, std::system_error where there is no memory.
void bench_copy(const CopyBenchOptions& options);

}  // namespace terrace::tools
