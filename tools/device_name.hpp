#pragma once

#include <optional>
#include <string>

namespace terrace::tools {

/// The device that a word of the command line names: `emulated` (none), `cuda` or `cuda:N`. `option`: whose word it is. Throws
/// UsageError where it names none, or one that is not to be had here (why, and what is).
[[nodiscard]] std::optional<int> parse_cuda(const std::string& option, const std::string& word);

[[nodiscard]] std::string device_name(std::optional<int> cuda);

}  // namespace terrace::tools
