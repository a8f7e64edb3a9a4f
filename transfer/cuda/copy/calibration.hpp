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

/// Measures every available method in both directions, for each class of the table. It copies scattered pieces on its own stream,
/// and measures the time from the call to the end of the copy. No other work should run on the device meanwhile. The first copy
/// of each method and shape is compared byte by byte. Throws CudaUnavailable, or CudaError, also if bytes are wrong.
[[nodiscard]] CopyMethodTable calibrate_methods(const CudaDriver& driver, int ordinal, const Clock& clock,
                                                CalibrationOptions options = {});

/// Returns the table in `file` for this device, driver and these options. If there is none, measures a table now and saves it in
/// the file if possible. If several processes start together, one of them measures; the others wait for it for up to half a
/// minute (FILE.lock). Throws as calibrate_methods() does.
[[nodiscard]] CopyMethodTable kept_or_measured(const CudaDriver& driver, int ordinal, const std::filesystem::path& file,
                                               const Clock& clock, CalibrationOptions options = {});

}  // namespace terrace
