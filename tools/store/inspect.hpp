#pragma once

#include "tools/replay/report/verdict.hpp"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace terrace::tools {

// `terrace store stat`, `list` and `show`: to standard output. All throw UsageError where there is no store to look into.

void print_stat(const std::filesystem::path& directory, bool json);

struct ListOptions {
  std::optional<std::uint64_t> limit;
  std::string wanted_namespace;  ///< hexadecimal digits that it begins with; empty: all
  bool json = false;
};
void print_list(const std::filesystem::path& directory, const ListOptions& options);

/// check_failed where the block's data do not verify. Throws UsageError also where there is no such block, or more than one.
[[nodiscard]] ExitStatus show_block(const std::filesystem::path& directory, const std::string& digits, bool json);

}  // namespace terrace::tools
