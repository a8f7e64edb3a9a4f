#pragma once

#include "tests/house/source_tree.hpp"

#include <functional>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

/// Text as the rules read it.
namespace terrace::house {

[[nodiscard]] std::string_view trimmed(std::string_view text);
[[nodiscard]] std::vector<std::string_view> split(std::string_view text, char at);
[[nodiscard]] std::vector<std::string_view> lines_of(const SourceFile& file);
/// One line about a line of the file, of which the first has the index 0.
[[nodiscard]] std::string finding(const SourceFile& file, std::size_t index, const std::string& what);
[[nodiscard]] bool is_word(char c);
[[nodiscard]] bool ends_with_any(std::string_view text, std::initializer_list<std::string_view> ends);
/// Calls `f` for each word of the text.
void for_each_word(std::string_view text, const std::function<void(std::string_view)>& f);
/// Calls `f` for the text in each pair of backticks of a line.
void for_each_quote(std::string_view line, const std::function<void(std::string_view)>& f);

}  // namespace terrace::house
