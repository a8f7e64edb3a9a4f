#pragma once

#include "tools/usage_error.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>

namespace terrace::tools {

/// A temporary directory in the given one. The destructor removes it. Throws UsageError if it cannot be made.
class ScratchDirectory {
 public:
  /// `named_by`: what the user gave the parent with, for the message.
  explicit ScratchDirectory(const std::filesystem::path& parent, std::string_view named_by = "--directory") {
    std::string name = (parent / "terrace-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) {
      throw UsageError{fmt::format("{} {}: {}", named_by, parent.string(), std::generic_category().message(errno))};
    }
    path_ = name;
  }
  ~ScratchDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  ScratchDirectory(const ScratchDirectory&) = delete;
  ScratchDirectory& operator=(const ScratchDirectory&) = delete;
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace terrace::tools
