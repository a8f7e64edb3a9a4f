#pragma once

#include "base/bytes.hpp"
#include "base/clock.hpp"
#include "transfer/cuda/copy/copy_method_table.hpp"
#include "transfer/cuda/driver/driver.hpp"

#include <filesystem>

namespace terrace {

struct CalibrationOptions {
  Bytes bytes = MiB * 128;  ///< on each side; what is measured at once is at most this
  unsigned rounds = 5;      ///< the best of which counts: what disturbs only slows
  unsigned kernel_blocks = 8;
};

/// Measures every method that is to be had, in both directions, for each class of the table: copies of scattered pieces on a
/// stream of its own, from the call to the end, with nothing else going on. Throws CudaError.
[[nodiscard]] CopyMethodTable calibrate_methods(const CudaDriver& driver, int ordinal, const Clock& clock,
                                                CalibrationOptions options = {});

/// The table that `file` keeps for this device and driver; where it keeps none, one measured now, and kept there if it can be.
[[nodiscard]] CopyMethodTable kept_or_measured(const CudaDriver& driver, int ordinal, const std::filesystem::path& file,
                                               const Clock& clock, CalibrationOptions options = {});

}  // namespace terrace
