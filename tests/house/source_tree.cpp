#include "tests/house/source_tree.hpp"

#include <algorithm>
#include <array>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string_view>

namespace terrace::house {
namespace {

constexpr std::array<std::string_view, 9> text_extensions{".hpp", ".cpp", ".cu", ".cuh", ".txt", ".cmake", ".md", ".py", ".sh"};

bool is_text(const SourceFile& file) {
  const std::string extension = std::filesystem::path{file.path}.extension().string();
  if (extension.empty()) return file.text.starts_with("#!");
  return std::ranges::find(text_extensions, extension) != text_extensions.end();
}

}  // namespace

SourceFile read_file(const std::filesystem::path& root, const std::string& path) {
  std::ifstream in{root / path, std::ios::binary};
  if (!in) throw std::runtime_error{"cannot read " + (root / path).string()};
  std::ostringstream text;
  text << in.rdbuf();
  return {path, text.str()};
}

std::vector<SourceFile> read_folder(const std::filesystem::path& root, const std::string& folder) {
  std::vector<SourceFile> files;
  if (!std::filesystem::is_directory(root / folder)) return files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator{root / folder}) {
    if (!entry.is_regular_file()) continue;
    SourceFile file = read_file(root, entry.path().lexically_relative(root).generic_string());
    if (is_text(file)) files.push_back(std::move(file));
  }
  std::ranges::sort(files, {}, &SourceFile::path);
  return files;
}

}  // namespace terrace::house
