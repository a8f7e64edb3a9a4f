#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace terrace::house {

struct SourceFile {
  std::string path;  ///< from the repository's root, with '/'
  std::string text;
};

/// One file. Throws std::runtime_error where it cannot be read.
[[nodiscard]] SourceFile read_file(const std::filesystem::path& root, const std::string& path);

/// The text files in a folder and below, in order of their paths: C++, CMake, Markdown, and scripts (those with an extension, and
/// those that begin with "#!"). Nothing where there is no such folder.
[[nodiscard]] std::vector<SourceFile> read_folder(const std::filesystem::path& root, const std::string& folder);

}  // namespace terrace::house
