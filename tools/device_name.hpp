#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace terrace::tools {

/// The device that a word of the command line names: `emulated` (none), `cuda` or `cuda:N`. `option`: whose word it is. Throws
/// UsageError where it names none, or one that is not to be had here (why, and what is).
[[nodiscard]] std::optional<int> parse_cuda(const std::string& option, const std::string& word);

/// One such word a rank, with commas between them; or one word for `ranks`, which stands for emulated devices or for so many CUDA
/// devices with consecutive numbers. Throws UsageError as above, and where there are not as many words as ranks.
[[nodiscard]] std::vector<std::optional<int>> parse_devices(const std::string& option, const std::string& words,
                                                            std::optional<std::uint32_t> ranks);

[[nodiscard]] std::string device_name(std::optional<int> cuda);
/// By rank, with commas; all alike emulated: once.
[[nodiscard]] std::string device_names(std::span<const std::optional<int>> devices);

}  // namespace terrace::tools
