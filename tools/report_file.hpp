#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace terrace::tools {

/// What a report must not be written over.
struct KeptFiles {
  std::filesystem::path trace;  ///< empty: none
  std::vector<std::filesystem::path> store_directories;
};

/// Refuses a report that could not be written, or that would overwrite something else than an earlier report: the trace, anything
/// in a store's directories, known or found to be one's, a file that does not begin as JSON does. Changes nothing. An empty name
/// is no report. Throws UsageError.
void check_report(const std::filesystem::path& report, const KeptFiles& kept);

/// Writes the file, or throws std::runtime_error.
void write_report(const std::filesystem::path& file, const std::string& json);

}  // namespace terrace::tools
