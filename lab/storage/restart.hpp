#pragma once

#include "lab/rows.hpp"
#include "terrace/block_store.hpp"

#include <cstdint>
#include <filesystem>

namespace terrace::tools {

struct RestartBenchOptions {
  std::filesystem::path directory;  ///< on the disk to measure; temporary files are removed
  std::uint32_t blocks = 1'000'000;
  std::uint32_t prefix_blocks = 16;  ///< blocks that each prompt adds to an earlier one
  unsigned rounds = 5;
  IoChoice io = IoChoice::automatic;
};

/// Measures how long it takes from a process start until a cache serves what an earlier process stored. It makes a store with
/// `blocks` blocks of 4 KiB once. In each round it reads only the store's catalog from end to end; opens only the store; and
/// opens a whole CacheSystem, which rebuilds its prefix tree. Prints the medians, and returns the report.
///
/// Throws what bench_storage() throws.
[[nodiscard]] Row bench_restart(const RestartBenchOptions& options);

}  // namespace terrace::tools
