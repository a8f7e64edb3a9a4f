#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace terrace::tools {

struct RemoveOptions {
  std::vector<std::string> keys;  ///< first hexadecimal digits of the keys
  bool all = false;
  bool json = false;
};
/// Runs `terrace store remove` on a store that is not in use. Throws UsageError, and has changed nothing, if there is no store,
/// if a process has it open, or if one of the keys matches no block or several blocks. Throws std::exception if the work itself
/// fails.
void remove_blocks(const std::filesystem::path& directory, const RemoveOptions& options);

}  // namespace terrace::tools
