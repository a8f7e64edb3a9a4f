#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace terrace::tools {

/// Files that a report must not overwrite.
struct KeptFiles {
  std::filesystem::path trace;  ///< empty: there is none
  std::vector<std::filesystem::path> store_directories;
};

/// Throws UsageError if the report cannot be written, or if it would overwrite something other than an earlier report: the trace,
/// a file in a store's directory (one in `kept` or any other), or a file that does not begin as JSON does. It changes nothing. An
/// empty name means that no report is wanted.
void check_report(const std::filesystem::path& report, const KeptFiles& kept);

/// Writes the text to the file. Throws std::runtime_error, which names it as `what`, if this fails.
void write_file(const std::filesystem::path& file, std::string_view what, const std::string& text);
/// The same for a report, with a line end.
void write_report(const std::filesystem::path& file, const std::string& json);

}  // namespace terrace::tools
