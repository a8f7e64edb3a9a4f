#pragma once

#include <filesystem>

namespace terrace::tools {

/// Where the copy paths measured on this machine's devices are kept: `terrace/copy-paths.json` under $XDG_CACHE_HOME, or under
/// ~/.cache. Empty where there is no such place: then the usual paths are taken. Makes the folder.
[[nodiscard]] std::filesystem::path calibration_file();

}  // namespace terrace::tools
