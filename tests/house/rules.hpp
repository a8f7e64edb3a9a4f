#pragma once

#include "tests/house/source_tree.hpp"

#include <functional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

/// The rules of the house, each a function over text, so that each can be tried on a sample that breaks it.
namespace terrace::house {

/// What a rule objects to, a line each: "base/bytes.hpp:12: a tab". Empty: nothing.
using Findings = std::vector<std::string>;

/// Folders of product code, from the one below all to the one above.
[[nodiscard]] std::span<const std::string_view> product_folders();
/// Those of them, and of their sub-folders, that are a library each: "base", "radix/keys".
[[nodiscard]] std::vector<std::string> library_folders();

// ---- the arrows

/// Each folder includes itself and what the arrows allow; product code never includes tests. Our headers are named from the
/// root and in quotes.
[[nodiscard]] Findings includes_follow_the_arrows(const SourceFile& file);
/// radix/ knows no clock, thread or I/O; moodycamel is included by the two files that are its seams.
[[nodiscard]] Findings includes_keep_to_the_seams(const SourceFile& file);
/// The CMakeLists.txt of a library's folder links what its arrows allow, all of it, and no test library.
[[nodiscard]] Findings links_mirror_the_arrows(const SourceFile& cmake_lists);
/// Whoever follows the arrows never comes back to where they began.
[[nodiscard]] Findings arrows_make_no_circle();

// ---- files

[[nodiscard]] Findings header_starts_with_pragma_once(const SourceFile& file);
/// `has_header`: whether a header of this path exists.
[[nodiscard]] Findings own_header_comes_first(const SourceFile& file, const std::function<bool(const std::string&)>& has_header);
[[nodiscard]] Findings is_no_longer_than(const SourceFile& file, std::size_t lines_max);

// ---- lines

/// No tabs, no blanks at the end of a line, no carriage returns; the last line ends.
[[nodiscard]] Findings lines_are_clean(const SourceFile& file);
/// Columns are code points.
[[nodiscard]] Findings lines_are_no_wider_than(const SourceFile& file, std::size_t columns_max);
/// None of the words that mark work left for later.
[[nodiscard]] Findings nothing_is_left_for_later(const SourceFile& file);

// ---- documents

/// Adds the tests that the file defines, as "Suite.name".
void collect_tests(const SourceFile& file, std::set<std::string>& names);

struct ParityRow {
  std::string id;
  std::string test;   ///< the column
  std::string state;  ///< the column
  std::size_t line = 0;
};
/// The table rows whose first column is a letter and a number.
[[nodiscard]] std::vector<ParityRow> parity_rows(const SourceFile& file);
/// A row is done or partly done with a test that exists; or it is planned, or different on purpose, and says what or why.
[[nodiscard]] Findings parity_rows_name_tests(const SourceFile& file, const std::set<std::string>& tests);

struct FaultRow {
  std::string id;
  std::string test;      ///< the column: tests in backticks, or "none"
  std::string asserted;  ///< the column
  std::size_t line = 0;
};
/// The table rows whose first column is F and a number.
[[nodiscard]] std::vector<FaultRow> fault_rows(const SourceFile& file);
/// A row names tests that exist and what they assert, or says that there is none.
[[nodiscard]] Findings fault_rows_name_tests(const SourceFile& file, const std::set<std::string>& tests);

/// What stands between a line that is `begin` and the next that is `end`; empty where they are not there.
[[nodiscard]] std::string between(const SourceFile& file, std::string_view begin, std::string_view end);
/// Whether a fenced block of the document is `code`, to the letter.
[[nodiscard]] bool has_code_block(const SourceFile& document, std::string_view code);

/// Each fenced block of C++ stands, to the letter, in the file to which the last link before it leads. `text_of`: the text of a
/// file, empty if there is none.
[[nodiscard]] Findings code_is_quoted(const SourceFile& document,
                                      const std::function<std::string(const std::string& path)>& text_of);

/// Adds the words of 64 hexadecimal digits: block keys.
void collect_keys(const SourceFile& file, std::set<std::string>& keys);

/// `[text](target)` of a file beside it, and `path/file.hpp` in backticks from the root: both must exist.
[[nodiscard]] Findings links_lead_somewhere(const SourceFile& document, const std::function<bool(const std::string&)>& exists);
/// `Type::member` in backticks: both words must occur in the code.
[[nodiscard]] Findings named_functions_exist(const SourceFile& document, const std::set<std::string>& words);
/// The names of the glossary's table of retired ones: the first column of each row, in backticks.
[[nodiscard]] std::set<std::string> retired_names(const SourceFile& glossary);
/// No such name outside of quotes, be it in code or in a comment.
[[nodiscard]] Findings uses_no_retired_name(const SourceFile& file, const std::set<std::string>& retired);
/// No line of a comment begins with "Of", "What", "As", "Where", "Whoever", "Somebody" or "Nobody": such a line is a fragment or
/// a riddle, and not a sentence with a subject.
[[nodiscard]] Findings comments_open_with_a_subject(const SourceFile& file);
/// Adds the identifiers of the file.
void collect_words(const SourceFile& file, std::set<std::string>& words);

}  // namespace terrace::house
