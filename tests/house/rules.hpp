#pragma once

#include "tests/house/source_tree.hpp"

#include <functional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

/// The rules of the house. Each rule is a function over text, so that tests can try it on samples that break it.
namespace terrace::house {

/// The findings of a rule, one line each: "terrace/types.hpp:12: a tab". Empty if there are none.
using Findings = std::vector<std::string>;

/// Folders of product code, from the lowest to the highest.
[[nodiscard]] std::span<const std::string_view> product_folders();
/// The folders and sub-folders of product code that are libraries: "base", "radix/keys".
[[nodiscard]] std::vector<std::string> library_folders();

// ---- the arrows

/// A file includes only its own folder and the folders that the arrows allow. Product code never includes tests, and below the
/// façades no façade. Our own headers are included from the root and in quotes.
[[nodiscard]] Findings includes_follow_the_arrows(const SourceFile& file);
/// A public header (include/) includes only public headers, the standard library, and Boost: an application has no more. It means
/// the same to every application, so it tests no macro of the build. Exceptions are marked TERRACE_API: applications catch them.
[[nodiscard]] Findings public_headers_stand_alone(const SourceFile& file);
/// radix/ uses no clock, thread or I/O. Only the two wrapper files include moodycamel.
[[nodiscard]] Findings includes_keep_to_the_seams(const SourceFile& file);
/// The CMakeLists.txt of a library links exactly the libraries that its arrows allow, and no test library.
[[nodiscard]] Findings links_mirror_the_arrows(const SourceFile& cmake_lists);
/// The arrows have no cycle.
[[nodiscard]] Findings arrows_make_no_circle();

// ---- files

[[nodiscard]] Findings header_starts_with_pragma_once(const SourceFile& file);
/// `has_header`: whether a header with this path exists.
[[nodiscard]] Findings own_header_comes_first(const SourceFile& file, const std::function<bool(const std::string&)>& has_header);
[[nodiscard]] Findings is_no_longer_than(const SourceFile& file, std::size_t lines_max);

// ---- lines

/// No tabs, no spaces at the end of a line, no carriage returns; the last line ends with a newline.
[[nodiscard]] Findings lines_are_clean(const SourceFile& file);
/// Width in columns; one code point is one column.
[[nodiscard]] Findings lines_are_no_wider_than(const SourceFile& file, std::size_t columns_max);
/// None of the words that mark unfinished work.
[[nodiscard]] Findings nothing_is_left_for_later(const SourceFile& file);

// ---- documents

/// Adds the tests that the file defines, as "Suite.name".
void collect_tests(const SourceFile& file, std::set<std::string>& names);
/// Adds the tests of a file of Python, as `file.test`.
void collect_python_tests(const SourceFile& file, std::set<std::string>& names);

struct ParityRow {
  std::string id;
  std::string test;   ///< the test column
  std::string state;  ///< the state column
  std::size_t line = 0;
};
/// The table rows whose first column is a letter and a number.
[[nodiscard]] std::vector<ParityRow> parity_rows(const SourceFile& file);
/// Each row is done or partly done and names a test that exists, or it is planned or intentionally different and says what or
/// why.
[[nodiscard]] Findings parity_rows_name_tests(const SourceFile& file, const std::set<std::string>& tests);

struct FaultRow {
  std::string id;
  std::string test;      ///< the test column: tests in backticks, or "none"
  std::string asserted;  ///< the column of what is asserted
  std::size_t line = 0;
};
/// The table rows whose first column is F and a number.
[[nodiscard]] std::vector<FaultRow> fault_rows(const SourceFile& file);
/// Each row names tests that exist and what they assert, or says "none".
[[nodiscard]] Findings fault_rows_name_tests(const SourceFile& file, const std::set<std::string>& tests);

/// Each fenced C++ block occurs, character by character, in the file to which the last link before it points. `text_of` returns
/// the text of a file, or an empty string if there is none.
[[nodiscard]] Findings code_is_quoted(const SourceFile& document,
                                      const std::function<std::string(const std::string& path)>& text_of);

/// Each fenced block of C++ or Python is one of the whole programs, or begins with a comment "Part of PATH" and occurs, character
/// by character, in that file.
[[nodiscard]] Findings code_can_be_pasted(const SourceFile& document,
                                          const std::function<std::string(const std::string& path)>& text_of,
                                          const std::set<std::string>& programs);

/// Adds all words of 64 hexadecimal digits, which are block keys.
void collect_keys(const SourceFile& file, std::set<std::string>& keys);

/// Targets of `[text](target)` links, relative to the file, and files named as `path/file.hpp` in backticks, from the root, must
/// exist.
[[nodiscard]] Findings links_lead_somewhere(const SourceFile& document, const std::function<bool(const std::string&)>& exists);
/// Both words of a `Type::member` in backticks must occur in the code.
[[nodiscard]] Findings named_functions_exist(const SourceFile& document, const std::set<std::string>& words);
/// The names in the glossary's table of retired names: those in backticks in the first column.
[[nodiscard]] std::set<std::string> retired_names(const SourceFile& glossary);
/// No retired name outside of quotes, neither in code nor in comments.
[[nodiscard]] Findings uses_no_retired_name(const SourceFile& file, const std::set<std::string>& retired);
/// Adds the identifiers of the file.
void collect_words(const SourceFile& file, std::set<std::string>& words);

}  // namespace terrace::house
