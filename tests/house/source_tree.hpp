#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace terrace::house {

struct SourceFile {
  std::string path;  ///< from the root of the repository, with '/'
  std::string text;
};

/// Reads one file. Throws std::runtime_error if it cannot be read.
[[nodiscard]] SourceFile read_file(const std::filesystem::path& root, const std::string& path);

/// The text files in a folder and below it, sorted by path: C++, CMake, Markdown, and scripts (by their extension or by "#!").
/// Empty if there is no such folder.
[[nodiscard]] std::vector<SourceFile> read_folder(const std::filesystem::path& root, const std::string& folder);

}  // namespace terrace::house
