#pragma once

#include "lab/rows.hpp"
#include "terrace/block_store.hpp"
#include "terrace/types.hpp"

#include <filesystem>
#include <vector>

namespace terrace::tools {

struct StorageBenchOptions {
  std::filesystem::path directory;  ///< on the disk to measure; temporary files are removed
  /// further directories, each on another disk; the store is striped over all of them
  std::vector<std::filesystem::path> stripes{};
  Bytes size = GiB;  ///< size of the store's blocks, and of the file for plain reads and writes
  std::vector<Bytes> block_bytes{KiB * 64, KiB * 256, MiB, MiB * 4};
  std::vector<unsigned> depths{1, 4, 16, 64};
  Bytes moved = MiB * 256;  ///< bytes moved in each measurement; at least eight times the depth
  unsigned rounds = 5;
  IoChoice io = IoChoice::automatic;
};

/// Measures a FileStore's reads and writes of blocks, in scattered order and with several under way at once. This includes
/// checksums, catalog and eviction. It compares them with the same I/O on the same file system and in the same order: by the
/// engine alone, without checksums; and plainly, by one thread with its own io_uring (without io_uring, by as many threads as
/// operations are under way, with pread and pwrite). The three take turns in each round. Prints the medians, and returns
/// the report.
///
/// Throws std::invalid_argument for invalid sizes and for sizes that do not fit on the disk or into memory; UsageError if the
/// directory cannot be used; std::runtime_error if I/O fails; Interrupted.
[[nodiscard]] Row bench_storage(const StorageBenchOptions& options);

/// The defaults of bench_tier_store().
[[nodiscard]] inline StorageBenchOptions tier_store_bench_defaults() {
  return {.directory = ".", .size = MiB * 512, .block_bytes = {KiB * 64, MiB * 2}, .depths = {1, 16}, .moved = MiB * 128};
}

/// Measures a TierStore: puts and gets of blocks, one block in a batch and several batches under way at once, beside plain direct
/// I/O of the same sizes and depth in the same rounds; and contains() and leading() of 32 keys, beside a std::unordered_set. The
/// plain I/O has a file of its own. Nothing is flushed. Prints the medians, and returns the report.
///
/// Throws what bench_storage() throws.
[[nodiscard]] Row bench_tier_store(const StorageBenchOptions& options);

}  // namespace terrace::tools
