#pragma once

#include "terrace/clock.hpp"
#include "terrace/types.hpp"
#include "transfer/cuda/copy/copy_method_table.hpp"
#include "transfer/cuda/driver/driver.hpp"

#include <filesystem>

namespace terrace {

struct CalibrationOptions {
  Bytes bytes = MiB * 128;  ///< the size of the buffer on each side; a measurement copies at most this much
  unsigned rounds = 5;      ///< the best round counts, because a disturbance can only make a copy slower
  unsigned kernel_blocks = 8;
};

/// Measures every available method in both directions, for each class of the table. It copies scattered pieces on a stream of its
/// own, and measures from the call to the end of the copy. Nothing else should run on the device meanwhile. Throws
/// CudaUnavailable or CudaError.
[[nodiscard]] CopyMethodTable calibrate_methods(const CudaDriver& driver, int ordinal, const Clock& clock,
                                                CalibrationOptions options = {});

/// Returns the table that `file` has for this device and driver. If it has none, measures one now and saves it in the file if
/// possible. Throws CudaUnavailable or CudaError.
[[nodiscard]] CopyMethodTable kept_or_measured(const CudaDriver& driver, int ordinal, const std::filesystem::path& file,
                                               const Clock& clock, CalibrationOptions options = {});

}  // namespace terrace
