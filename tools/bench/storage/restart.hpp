#pragma once

#include "storage/io/io_choice.hpp"

#include <cstdint>
#include <filesystem>

namespace terrace::tools {

struct RestartBenchOptions {
  std::filesystem::path directory;  ///< on the disk to measure; what is made in it goes again
  std::uint32_t blocks = 1'000'000;
  std::uint32_t path_blocks = 16;  ///< that each prompt adds to one that was there
  unsigned rounds = 5;
  IoChoice io = IoChoice::automatic;
  std::filesystem::path report;  ///< empty: none
};

/// How long a stack takes until it serves what an earlier process stored: a store of so many blocks of 4 KiB is made once; then,
/// in each round, its catalog is read from end to end and nothing else, the store alone is opened, and a whole stack, whose
/// prefix tree has the blocks again. Prints the medians, and writes them to the report.
///
/// Throws std::invalid_argument, UsageError and std::runtime_error as bench_storage(), and Interrupted.
void bench_restart(const RestartBenchOptions& options);

}  // namespace terrace::tools
