#include "tools/table.hpp"

#include <algorithm>

namespace terrace::tools {

std::string grouped(std::uint64_t number) {
  const std::string digits = std::to_string(number);
  std::string result;
  for (std::size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) result += ',';
    result += digits[i];
  }
  return result;
}

double per_cent(std::uint64_t part, std::uint64_t whole) {
  return whole == 0 ? 0 : 100.0 * static_cast<double>(part) / static_cast<double>(whole);
}

void Table::add(std::string rest) {
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

}  // namespace terrace::tools
