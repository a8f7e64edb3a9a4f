// Applies the house rules (rules.hpp) to this repository.

#include "tests/house/rules.hpp"
#include "tests/paths.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <sstream>
#include <string>

namespace terrace::house {
namespace {

const std::filesystem::path root{test::paths.source};

constexpr std::size_t lines_max = 600;
constexpr std::size_t columns_max = 130;
constexpr std::size_t library_files_max = 28;

bool exists(const std::string& path) { return std::filesystem::exists(root / path); }

bool is_cpp(const SourceFile& file) { return file.path.ends_with(".hpp") || file.path.ends_with(".cpp"); }
bool is_document(const SourceFile& file) { return file.path.ends_with(".md"); }

/// All text files of the repository, by folder.
const std::map<std::string, std::vector<SourceFile>>& folders() {
  static const auto all = [] {
    std::map<std::string, std::vector<SourceFile>> read;
    for (const std::string_view folder : product_folders()) read.emplace(folder, read_folder(root, std::string{folder}));
    for (const std::string folder : {"tests", "examples", "cmake", "docs"}) read.emplace(folder, read_folder(root, folder));
    std::vector<SourceFile>& top = read[""];
    for (const std::string file : {"CMakeLists.txt", "README.md", "CONTRIBUTING.md", "CHANGELOG.md"}) {
      top.push_back(read_file(root, file));
    }
    return read;
  }();
  return all;
}

bool is_product(const std::string& folder) { return std::ranges::find(product_folders(), folder) != product_folders().end(); }

/// Applies the rule to every file that `wanted` selects, and expects no findings.
void expect_kept(const std::function<bool(const std::string& folder, const SourceFile&)>& wanted,
                 const std::function<Findings(const SourceFile&)>& rule) {
  std::size_t files = 0;
  std::ostringstream objections;
  for (const auto& [folder, contents] : folders()) {
    for (const SourceFile& file : contents) {
      if (!wanted(folder, file)) continue;
      ++files;
      for (const std::string& what : rule(file)) objections << what << '\n';
    }
  }
  EXPECT_GT(files, 0U) << "a rule for nothing";
  EXPECT_EQ(objections.str(), "");
}

bool any_cpp(const std::string&, const SourceFile& file) { return is_cpp(file); }
bool any_code(const std::string&, const SourceFile& file) { return !is_document(file); }
bool any_document(const std::string&, const SourceFile& file) { return is_document(file); }
bool product_cpp(const std::string& folder, const SourceFile& file) { return is_product(folder) && is_cpp(file); }

TEST(House, has_all_its_folders) {
  for (const auto& [folder, contents] : folders()) EXPECT_FALSE(contents.empty()) << folder;
}

TEST(House, includes_follow_the_arrows) { expect_kept(any_cpp, includes_follow_the_arrows); }

TEST(House, public_headers_stand_alone) {
  expect_kept([](const std::string& folder, const SourceFile&) { return folder == "include"; }, public_headers_stand_alone);
}

TEST(House, public_headers_are_listed) {
  const std::string list = read_file(root, "include/CMakeLists.txt").text;
  for (const SourceFile& file : folders().at("include")) {
    if (!is_cpp(file)) continue;
    const std::string name = file.path.substr(std::string_view{"include/"}.size());
    EXPECT_TRUE(list.find(name) != std::string::npos) << name << " is not installed: name it in include/CMakeLists.txt";
  }
}

TEST(House, includes_keep_to_the_seams) { expect_kept(any_cpp, includes_keep_to_the_seams); }

TEST(House, links_mirror_the_arrows) {
  const auto of_a_library = [](const std::string&, const SourceFile& file) {
    return std::ranges::any_of(library_folders(), [&](const std::string& one) { return file.path == one + "/CMakeLists.txt"; });
  };
  expect_kept(of_a_library, links_mirror_the_arrows);
}

TEST(House, arrows_make_no_circle) { EXPECT_EQ(arrows_make_no_circle(), Findings{}); }

TEST(House, libraries_are_small) {
  std::map<std::string, std::size_t> files;
  for (const auto& [folder, contents] : folders()) {
    if (!is_product(folder) || folder == "tools" || folder == "lab" || folder == "include") continue;
    for (const SourceFile& file : contents) {
      if (is_cpp(file)) ++files[std::filesystem::path{file.path}.parent_path().generic_string()];
    }
  }
  for (const auto& [folder, count] : files) EXPECT_LE(count, library_files_max) << folder;
}

TEST(House, headers_start_with_pragma_once) { expect_kept(any_cpp, header_starts_with_pragma_once); }

TEST(House, sources_include_their_own_header_first) {
  expect_kept(any_cpp, [](const SourceFile& file) { return own_header_comes_first(file, exists); });
}

TEST(House, files_are_short) {
  expect_kept(any_cpp, [](const SourceFile& file) { return is_no_longer_than(file, lines_max); });
}

TEST(House, lines_are_clean) {
  expect_kept([](const std::string&, const SourceFile&) { return true; }, lines_are_clean);
}

TEST(House, lines_are_no_wider_than_a_screen) {
  expect_kept(any_code, [](const SourceFile& file) { return lines_are_no_wider_than(file, columns_max); });
}

TEST(House, nothing_is_left_for_later) { expect_kept(any_code, nothing_is_left_for_later); }

TEST(House, product_code_uses_no_retired_name) {
  const std::set<std::string> retired = retired_names(read_file(root, "docs/glossary.md"));
  ASSERT_GT(retired.size(), 50U);
  expect_kept(product_cpp, [&](const SourceFile& file) { return uses_no_retired_name(file, retired); });
}

TEST(House, links_of_documents_lead_somewhere) {
  expect_kept(any_document, [](const SourceFile& file) { return links_lead_somewhere(file, exists); });
}

TEST(House, documents_name_functions_that_exist) {
  std::set<std::string> words;
  for (const auto& [folder, contents] : folders()) {
    for (const SourceFile& file : contents) {
      if (is_cpp(file)) collect_words(file, words);
    }
  }
  expect_kept(any_document, [&](const SourceFile& file) { return named_functions_exist(file, words); });
}

// ---- documents -----------------------------------------------------------------------------------------------------------

const SourceFile& parity_page() {
  static const SourceFile page = read_file(root, "docs/parity.md");
  return page;
}

TEST(Parity, has_every_row_once_and_in_order) {
  std::vector<std::string> expected;
  for (const auto& [group, rows] :
       {std::pair{'A', 10}, {'B', 13}, {'C', 9}, {'D', 7}, {'E', 16}, {'F', 8}, {'G', 9}, {'H', 17}}) {
    for (int i = 1; i <= rows; ++i) expected.push_back(group + std::to_string(i));
  }
  std::vector<std::string> found;
  for (const ParityRow& row : parity_rows(parity_page())) found.push_back(row.id);
  EXPECT_EQ(found, expected);
}

TEST(Parity, claims_nothing_without_a_test_that_exists) {
  std::set<std::string> tests;
  for (const SourceFile& file : folders().at("tests")) {
    if (is_cpp(file)) collect_tests(file, tests);
  }
  ASSERT_FALSE(tests.empty());
  for (const char* const folder : {"python/tests", "python/engine_tests"}) {
    for (const SourceFile& file : read_folder(root, folder)) collect_python_tests(file, tests);
  }
  const Findings findings = parity_rows_name_tests(parity_page(), tests);
  for (const std::string& what : findings) ADD_FAILURE() << what;
}

TEST(ReliabilityPage, has_every_fault_once_and_names_tests_that_exist) {
  std::set<std::string> tests;
  for (const SourceFile& file : folders().at("tests")) {
    if (is_cpp(file)) collect_tests(file, tests);
  }
  for (const char* const folder : {"python/tests", "python/engine_tests"}) {
    for (const SourceFile& file : read_folder(root, folder)) collect_python_tests(file, tests);
  }
  const SourceFile page = read_file(root, "docs/reliability.md");
  for (const std::string& what : fault_rows_name_tests(page, tests)) ADD_FAILURE() << what;
  std::set<std::string> found;
  std::size_t rows = 0;
  for (const FaultRow& row : fault_rows(page)) {
    found.insert(row.id);
    ++rows;
  }
  EXPECT_EQ(found.size(), rows) << "a fault twice";
  for (int n = 1; n <= 82; ++n) {
    const std::string id = (n < 10 ? "F0" : "F") + std::to_string(n);
    EXPECT_TRUE(found.contains(id)) << id << " is missing";
  }
  EXPECT_GE(rows, 82U);
}

TEST(BlockKeysPage, has_the_golden_vectors_of_the_test) {
  std::set<std::string> tested;
  std::set<std::string> written;
  collect_keys(read_file(root, "tests/radix/block_keys_test.cpp"), tested);
  collect_keys(read_file(root, "docs/block-keys.md"), written);
  EXPECT_FALSE(tested.empty());
  EXPECT_EQ(tested, written);
}

std::string text_of(const std::string& path) {
  return std::filesystem::is_regular_file(root / path) ? read_file(root, path).text : std::string{};
}

TEST(Pages, of_the_first_minutes_show_programs_that_are_compiled_and_run) {
  // Each of them is built, run and compared by examples/CMakeLists.txt.
  std::set<std::string> programs;
  for (const SourceFile& file : folders().at("examples")) programs.insert(file.path);
  for (const char* const page : {"README.md", "docs/embedding.md"}) {
    const SourceFile document = read_file(root, page);
    for (const std::string& what : code_can_be_pasted(document, text_of, programs)) ADD_FAILURE() << what;
    EXPECT_NE(document.text.find("```cpp\n" + text_of("examples/first.cpp") + "```\n"), std::string::npos) << page;
  }
  EXPECT_LE(std::ranges::count(text_of("examples/first.cpp"), '\n'), 60) << "an example for the first screen";
}

TEST(Pages, of_python_show_a_program_that_is_run) {
  // By python/tests/test_continuous_batching.py.
  const SourceFile document = read_file(root, "docs/python.md");
  for (const std::string& what : code_can_be_pasted(document, text_of, {})) ADD_FAILURE() << what;
  EXPECT_NE(document.text.find("# Part of examples/continuous_batching.py"), std::string::npos);
}

TEST(HowTos, show_code_that_is_compiled_and_tested) {
  std::size_t pages = 0;
  for (const SourceFile& file : folders().at("docs")) {
    if (!file.path.starts_with("docs/how-to/")) continue;
    ++pages;
    for (const std::string& what : code_is_quoted(file, text_of)) ADD_FAILURE() << what;
  }
  EXPECT_GT(pages, 1U);
}

}  // namespace
}  // namespace terrace::house
