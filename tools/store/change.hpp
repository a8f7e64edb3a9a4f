#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace terrace::tools {

struct RemoveOptions {
  std::vector<std::string> keys;  ///< hexadecimal digits that they begin with
  bool all = false;
  bool json = false;
};
/// `terrace store remove`, of a stopped store. Throws UsageError, having changed nothing, where there is no store, somebody has
/// it, or one of the keys is no block's or several blocks'; std::exception where the work itself breaks.
void remove_blocks(const std::filesystem::path& directory, const RemoveOptions& options);

}  // namespace terrace::tools
