#pragma once

#include "lab/storage/storage.hpp"

namespace terrace::tools {

/// The defaults of bench_tier_store().
[[nodiscard]] inline StorageBenchOptions tier_store_bench_defaults() {
  return {.directory = ".",
          .size = MiB * 512,
          .block_bytes = {KiB * 64, MiB * 2},
          .depths = {1, 16},
          .moved = MiB * 128,
          .report = {}};
}

/// Measures a TierStore: puts and gets of blocks, one block in a batch and several batches under way at once, beside plain direct
/// I/O of the same sizes and depth in the same rounds; and contains() and leading() of 32 keys, beside a std::unordered_set. The
/// plain I/O has a file of its own. Nothing is flushed. Prints the medians, and writes them to the report.
///
/// Throws what bench_storage() throws.
void bench_tier_store(const StorageBenchOptions& options);

}  // namespace terrace::tools
