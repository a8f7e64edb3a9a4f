#pragma once

#include <filesystem>

namespace terrace::tools {

/// The file that keeps the measured rates of copy methods on this machine's devices: `terrace/copy-paths.json` under
/// $XDG_CACHE_HOME or ~/.cache. Makes the folder. Returns an empty path if this is not possible; then the default methods are
/// used.
[[nodiscard]] std::filesystem::path calibration_file();

}  // namespace terrace::tools
