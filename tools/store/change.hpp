#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace terrace::tools {

// `terrace store compact` and `remove`: of a stopped store. Both throw UsageError where there is no store, or somebody has it;
// std::exception where the work itself breaks.

void compact(const std::filesystem::path& directory, bool json);

struct RemoveOptions {
  std::vector<std::string> keys;  ///< hexadecimal digits that they begin with
  bool all = false;
  bool json = false;
};
/// Throws UsageError, having changed nothing, also where one of the keys is no block's, or several blocks'.
void remove_blocks(const std::filesystem::path& directory, const RemoveOptions& options);

}  // namespace terrace::tools
