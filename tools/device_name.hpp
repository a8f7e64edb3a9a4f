#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>

namespace terrace::tools {

/// Parses the name of a device: `emulated` (returns nothing), `cuda` or `cuda:N`. `option` is the option that has this word.
/// Throws UsageError if the word names no device, or a device that cannot be used here; the text says why, and what can be used.
[[nodiscard]] std::optional<int> parse_cuda(const std::string& option, const std::string& word);

/// The message that a CUDA device cannot be used here, for the reason `why` (CudaDevice::unavailable()).
[[nodiscard]] std::string unusable_device(const std::string& option, int cuda, const std::string& why);

[[nodiscard]] std::string device_name(std::optional<int> cuda);
/// The names in the order of ranks, separated by commas. If all are emulated, the name comes only once.
[[nodiscard]] std::string device_names(std::span<const std::optional<int>> devices);

/// The file that keeps the measured rates of copy methods on this machine's devices: `terrace/copy-paths.json` under
/// $XDG_CACHE_HOME or ~/.cache. Makes the folder. Returns an empty path if this is not possible; then the default methods are
/// used.
[[nodiscard]] std::filesystem::path calibration_file();

}  // namespace terrace::tools
