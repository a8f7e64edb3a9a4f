#pragma once

#include "tools/usage_error.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>

namespace terrace::tools {

/// A temporary directory in the given one. The destructor removes it. Throws UsageError if it cannot be made.
class BenchDirectory {
 public:
  explicit BenchDirectory(const std::filesystem::path& parent, const char* option = "--directory") {
    std::string name = (parent / "terrace-bench-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) {
      throw UsageError{fmt::format("{} {}: {}", option, parent.string(), std::generic_category().message(errno))};
    }
    path_ = name;
  }
  ~BenchDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  BenchDirectory(const BenchDirectory&) = delete;
  BenchDirectory& operator=(const BenchDirectory&) = delete;
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace terrace::tools
