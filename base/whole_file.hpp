#pragma once

#include <cstddef>
#include <filesystem>
#include <string>

namespace terrace {

/// Reads a small file, such as a configuration or a password, to its end, but at most `bytes_max` bytes of it. It may be a pipe
/// (`--config <(command)`). Waits neither for somebody who opens a pipe to write, nor for long for somebody who does not write.
/// Throws std::runtime_error with the reason: "No such file or directory".
[[nodiscard]] std::string read_whole(const std::filesystem::path& file, std::size_t bytes_max);

}  // namespace terrace
