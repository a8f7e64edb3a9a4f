#include "tests/house/text.hpp"

#include <algorithm>
#include <cctype>

namespace terrace::house {

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.front())) != 0) text.remove_prefix(1);
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back())) != 0) text.remove_suffix(1);
  return text;
}

std::vector<std::string_view> split(std::string_view text, char at) {
  std::vector<std::string_view> parts;
  for (;;) {
    const std::size_t end = text.find(at);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

std::vector<std::string_view> lines_of(const SourceFile& file) {
  auto lines = split(file.text, '\n');
  if (lines.back().empty()) lines.pop_back();
  return lines;
}

std::string finding(const SourceFile& file, std::size_t index, const std::string& what) {
  return file.path + ":" + std::to_string(index + 1) + ": " + what;
}

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

bool ends_with_any(std::string_view text, std::initializer_list<std::string_view> ends) {
  return std::ranges::any_of(ends, [&](std::string_view end) { return text.ends_with(end); });
}

void for_each_word(std::string_view text, const std::function<void(std::string_view)>& f) {
  for (std::size_t at = 0; at < text.size();) {
    std::size_t end = at;
    while (end < text.size() && is_word(text[end])) ++end;
    if (end > at) f(text.substr(at, end - at));
    at = std::max(end, at + 1);
  }
}

void for_each_quote(std::string_view line, const std::function<void(std::string_view)>& f) {
  const auto parts = split(line, '`');
  for (std::size_t i = 1; i + 1 < parts.size(); i += 2) f(parts[i]);
}

}  // namespace terrace::house
