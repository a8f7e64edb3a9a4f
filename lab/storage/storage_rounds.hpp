#pragma once

#include "lab/storage/storage.hpp"
#include "lab/storage/storage_subjects.hpp"

#include <span>
#include <vector>

namespace terrace::tools {

/// Medians of a subject.
struct StorageSpeed {
  double gb_per_s = 0;
  double ratio = 0;   ///< relative to the last subject in the same round
  double cpu_us = 0;  ///< microseconds of the calling thread for each block
};

/// Throws std::invalid_argument for invalid sizes and for sizes that do not fit on the disk or into memory; UsageError if a
/// directory cannot be used.
void check_storage_options(const StorageBenchOptions& options);

/// Moves the same number of blocks by each subject, in turns, `options.rounds` times. Returns the medians by subject. Throws what
/// StorageSubject::move() throws; Interrupted.
[[nodiscard]] std::vector<StorageSpeed> measure_in_turns(const StorageBenchOptions& options, const StorageGround& ground,
                                                         unsigned depth, StorageWay way,
                                                         std::span<StorageSubject* const> subjects);

}  // namespace terrace::tools
