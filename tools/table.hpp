#pragma once

#include "tools/output.hpp"

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <utility>

namespace terrace::tools {

/// Returns for example "1,234,567" for 1234567.
[[nodiscard]] std::string grouped(std::uint64_t number);

/// Returns 0 if there is no whole.
[[nodiscard]] double per_cent(std::uint64_t part, std::uint64_t whole);

/// Collects the lines of a table for a screen of 80 columns.
class Table {
 public:
  /// Adds a line. Text arguments are made printable. A longer line is broken between words; a word that is too long stays whole.
  template <class... Args>
  void line(fmt::format_string<Printable<Args>...> format, const Args&... args) {
    add(printable_format<Args...>(format, args...));
  }
  [[nodiscard]] std::string take() { return std::move(text_); }

 private:
  void add(std::string rest);

  std::string text_;
};

}  // namespace terrace::tools
