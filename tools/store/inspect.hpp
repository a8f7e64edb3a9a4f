#pragma once

#include "tools/replay/report/verdict.hpp"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace terrace::tools {

// `terrace store stat`, `list` and `show`. They print to standard output, and throw UsageError if there is no store to read.

void print_stat(const std::filesystem::path& directory, bool json);

struct ListOptions {
  std::optional<std::uint64_t> limit;
  std::string wanted_namespace;  ///< first hexadecimal digits of the namespace; empty: all
  bool json = false;
};
/// Lists the blocks of the store. A folder that is no store itself: the stores below it, unless there is one only, with the
/// default name.
void print_list(const std::filesystem::path& directory, const ListOptions& options);

/// Returns check_failed if the block's data do not match its checksum. Throws UsageError also if no block or several blocks
/// match.
[[nodiscard]] ExitStatus show_block(const std::filesystem::path& directory, const std::string& digits, bool json);

}  // namespace terrace::tools
