#pragma once

#include "base/bytes.hpp"
#include "storage/io/io_choice.hpp"

#include <filesystem>
#include <vector>

namespace terrace::tools {

struct StorageBenchOptions {
  std::filesystem::path directory;               ///< on the disk to measure; what is made in it goes again
  std::vector<std::filesystem::path> stripes{};  ///< the same, on further disks: the store is striped over all of them
  Bytes size = GiB;                              ///< of the store's blocks, and of the file of the plain reads and writes
  std::vector<Bytes> block_bytes{KiB * 64, KiB * 256, MiB, MiB * 4};
  std::vector<unsigned> depths{1, 4, 16, 64};
  Bytes moved = MiB * 256;  ///< in each measurement, or eight times the depth where that is more
  unsigned rounds = 5;
  IoChoice io = IoChoice::automatic;
  std::filesystem::path report;  ///< empty: none
};

/// A FileStore's reads and writes of blocks in scattered order, so many under way at once: checksums, catalog and eviction
/// included. Beside it, on the same file system and in the same order, the same I/O by the bare engine, without checksums; and
/// issued plainly, by one thread with an io_uring of its own (no io_uring: by as many threads as are to be under way, with pread
/// and pwrite). All three take turns in each round. Prints the medians, and writes them to the report.
///
/// Throws std::invalid_argument where sizes make no sense or are more than the disk or the memory has room for; UsageError where
/// the directory cannot be used, std::runtime_error where I/O fails or the report cannot be written, Interrupted.
void bench_storage(const StorageBenchOptions& options);

}  // namespace terrace::tools
