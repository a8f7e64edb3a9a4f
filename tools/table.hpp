#pragma once

#include "tools/output.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

namespace terrace::tools {

/// Returns for example "1,234,567" for 1234567.
[[nodiscard]] inline std::string grouped(std::uint64_t number) {
  const std::string digits = std::to_string(number);
  std::string result;
  for (std::size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) result += ',';
    result += digits[i];
  }
  return result;
}

/// Returns 0 if there is no whole.
[[nodiscard]] inline double per_cent(std::uint64_t part, std::uint64_t whole) {
  return whole == 0 ? 0 : 100.0 * static_cast<double>(part) / static_cast<double>(whole);
}

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
  void add(std::string rest) {
    constexpr std::size_t columns = 80;
    const std::size_t indent = std::min(rest.find_first_not_of(' '), rest.size()) + 2;
    while (rest.size() > columns) {
      const std::size_t blank = rest.rfind(' ', columns);
      if (blank == std::string::npos || blank <= indent) break;
      text_ += rest.substr(0, blank) + '\n';
      rest = std::string(indent, ' ') + rest.substr(blank + 1);
    }
    text_ += rest + '\n';
  }

  std::string text_;
};

}  // namespace terrace::tools
