#include "tests/house/rules.hpp"
#include "tests/house/text.hpp"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <optional>

namespace terrace::house {

void collect_python_tests(const SourceFile& file, std::set<std::string>& names) {
  const std::string module = std::filesystem::path{file.path}.stem().string();
  for (const std::string_view line : lines_of(file)) {
    // A function, a class, or a test case that a library makes: "def test_a(", "class TestB:", "TestC = ".
    std::string_view name = line;
    for (const std::string_view definition : {"def ", "class "}) {
      if (name.starts_with(definition)) name.remove_prefix(definition.size());
    }
    if (name.starts_with("test_") || name.starts_with("Test"))
      names.insert(module + "." + std::string{name.substr(0, name.find_first_of("(: ="))});
  }
}

void collect_tests(const SourceFile& file, std::set<std::string>& names) {
  for (const std::string_view macro : {"TEST(", "TEST_F(", "TEST_P(", "TYPED_TEST(", "TYPED_TEST_P("}) {
    const std::string at_line_start = std::string{"\n"}.append(macro);
    for (std::size_t at = file.text.find(at_line_start); at != std::string::npos; at = file.text.find(at_line_start, at + 1)) {
      const std::size_t begin = at + at_line_start.size();
      const std::string_view arguments = std::string_view{file.text}.substr(begin, file.text.find(')', begin) - begin);
      const auto parts = split(arguments, ',');
      if (parts.size() == 2) names.insert(std::string{trimmed(parts[0])} + "." + std::string{trimmed(parts[1])});
    }
  }
}

std::vector<ParityRow> parity_rows(const SourceFile& file) {
  std::vector<ParityRow> rows;
  const auto lines = lines_of(file);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const auto cells = split(lines[i], '|');  // of "| a | b |": "", a, b, ""
    if (cells.size() < 3) continue;
    const std::string_view id = trimmed(cells[1]);
    if (id.size() < 2 || std::isupper(static_cast<unsigned char>(id[0])) == 0) continue;
    if (!std::ranges::all_of(id.substr(1), [](char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; })) continue;
    ParityRow row;
    row.id = id;
    row.line = i;
    // Columns: id, behaviour, call, test, state.
    if (cells.size() == 7) {
      row.test = trimmed(cells[4]);
      row.state = trimmed(cells[5]);
    }
    rows.push_back(row);
  }
  return rows;
}

Findings parity_rows_name_tests(const SourceFile& file, const std::set<std::string>& tests) {
  Findings findings;
  for (const ParityRow& row : parity_rows(file)) {
    std::size_t named = 0;
    for_each_quote(row.test, [&](std::string_view name) {
      ++named;
      if (!tests.contains(std::string{name})) {
        findings.push_back(finding(file, row.line, row.id + " names a test that does not exist: " + std::string{name}));
      }
    });
    const bool claims = row.state == "done" || row.state.starts_with("partly: ");
    const bool explains = row.state.starts_with("planned: ") || row.state.starts_with("different on purpose, because ");
    if (!claims && !explains) findings.push_back(finding(file, row.line, row.id + " is in no known state"));
    if (claims && named == 0) findings.push_back(finding(file, row.line, row.id + " claims something without a test"));
  }
  return findings;
}

std::vector<FaultRow> fault_rows(const SourceFile& file) {
  std::vector<FaultRow> rows;
  const auto lines = lines_of(file);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const auto cells = split(lines[i], '|');
    if (cells.size() < 3) continue;
    const std::string_view id = trimmed(cells[1]);
    if (id.size() < 2 || id[0] != 'F' || std::isdigit(static_cast<unsigned char>(id[1])) == 0) continue;
    FaultRow row{std::string{id}, {}, {}, i};
    // Columns: id, what happens, test, what is asserted.
    if (cells.size() == 6) {
      row.test = trimmed(cells[3]);
      row.asserted = trimmed(cells[4]);
    }
    rows.push_back(row);
  }
  return rows;
}

Findings fault_rows_name_tests(const SourceFile& file, const std::set<std::string>& tests) {
  Findings findings;
  for (const FaultRow& row : fault_rows(file)) {
    std::size_t named = 0;
    for_each_quote(row.test, [&](std::string_view name) {
      ++named;
      if (!tests.contains(std::string{name})) {
        findings.push_back(finding(file, row.line, row.id + " names a test that does not exist: " + std::string{name}));
      }
    });
    const bool none = row.test == "none";
    if (named == 0 && !none) findings.push_back(finding(file, row.line, row.id + " names no test and does not say so"));
    if (named > 0 && row.asserted.empty()) findings.push_back(finding(file, row.line, row.id + " does not say what is asserted"));
  }
  return findings;
}

Findings code_is_quoted(const SourceFile& document, const std::function<std::string(const std::string& path)>& text_of) {
  Findings findings;
  const std::filesystem::path folder = std::filesystem::path{document.path}.parent_path();
  std::string source;
  std::optional<std::string> code;
  bool fenced = false;
  const auto lines = lines_of(document);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (lines[i].starts_with("```")) {
      if (code && (code->empty() || text_of(source).find(*code) == std::string::npos)) {
        findings.push_back(finding(document, i, "the code before this line is not in " + source));
      }
      code.reset();
      fenced = !fenced;
      if (fenced && lines[i] == "```cpp") code.emplace();
    } else if (code) {
      code->append(lines[i]).push_back('\n');
    } else if (!fenced) {
      for (std::size_t at = lines[i].find("]("); at != std::string_view::npos; at = lines[i].find("](", at + 1)) {
        const std::string_view target = lines[i].substr(at + 2, lines[i].find_first_of(")#", at + 2) - at - 2);
        source = (folder / target).lexically_normal().generic_string();
      }
    }
  }
  return findings;
}

Findings code_can_be_pasted(const SourceFile& document, const std::function<std::string(const std::string& path)>& text_of,
                            const std::set<std::string>& programs) {
  Findings findings;
  const auto lines = lines_of(document);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (lines[i] != "```cpp" && lines[i] != "```python") continue;
    const std::string_view comment = lines[i] == "```cpp" ? "// " : "# ";
    std::string part_of;
    const std::size_t begin = i;
    std::string code;
    for (++i; i < lines.size() && !lines[i].starts_with("```"); ++i) {
      const std::string mark = std::string{comment} + "Part of ";
      if (i == begin + 1 && lines[i].starts_with(mark)) {
        part_of = lines[i].substr(mark.size());
      } else {
        code.append(lines[i]).push_back('\n');
      }
    }
    const auto is_whole = [&](const std::string& path) { return text_of(path) == code; };
    if (part_of.empty() ? std::ranges::none_of(programs, is_whole)
                        : code.empty() || text_of(part_of).find(code) == std::string::npos) {
      findings.push_back(finding(document, begin,
                                 part_of.empty() ? "the code is no whole program, and does not say of which it is part"
                                                 : "the code is not in " + part_of));
    }
  }
  return findings;
}

void collect_keys(const SourceFile& file, std::set<std::string>& keys) {
  for_each_word(file.text, [&](std::string_view word) {
    const auto is_digit = [](char c) { return std::isxdigit(static_cast<unsigned char>(c)) != 0; };
    if (word.size() == 64 && std::ranges::all_of(word, is_digit)) keys.emplace(word);
  });
}

Findings links_lead_somewhere(const SourceFile& document, const std::function<bool(const std::string&)>& exists) {
  Findings findings;
  const std::filesystem::path folder = std::filesystem::path{document.path}.parent_path();
  const auto lines = lines_of(document);
  bool fenced = false;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    fenced ^= lines[i].starts_with("```");
    if (fenced) continue;  // code, where a lambda looks like a link
    for (std::size_t at = lines[i].find("]("); at != std::string_view::npos; at = lines[i].find("](", at + 1)) {
      const std::string_view target = lines[i].substr(at + 2, lines[i].find_first_of(")#", at + 2) - at - 2);
      if (target.empty() || target.find("://") != std::string_view::npos) continue;
      const std::string path = (folder / target).lexically_normal().generic_string();
      if (!exists(path)) findings.push_back(finding(document, i, "no such file: " + path));
    }
    for_each_quote(lines[i], [&](std::string_view quote) {
      const bool is_path = quote.find('/') != std::string_view::npos && quote.find_first_of(" *{<,") == std::string_view::npos &&
                           ends_with_any(quote, {".hpp", ".cpp", ".md", ".txt", ".cmake"});
      if (is_path && !exists(std::string{quote})) findings.push_back(finding(document, i, "no such file: " + std::string{quote}));
    });
  }
  return findings;
}

std::set<std::string> retired_names(const SourceFile& glossary) {
  std::set<std::string> names;
  bool in_table = false;
  for (const std::string_view line : lines_of(glossary)) {
    if (line.starts_with("#")) in_table = line.find("Retired") != std::string_view::npos;
    const auto cells = split(line, '|');
    if (!in_table || cells.size() < 4) continue;
    for_each_quote(cells[1], [&](std::string_view name) { names.emplace(name); });
  }
  return names;
}

Findings uses_no_retired_name(const SourceFile& file, const std::set<std::string>& retired) {
  Findings findings;
  const auto lines = lines_of(file);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const auto parts = split(lines[i], '"');
    for (std::size_t p = 0; p < parts.size(); p += 2) {
      for_each_word(parts[p], [&](std::string_view word) {
        if (retired.contains(std::string{word})) {
          findings.push_back(finding(file, i, "the glossary has another name for " + std::string{word}));
        }
      });
    }
  }
  return findings;
}

void collect_words(const SourceFile& file, std::set<std::string>& words) {
  for_each_word(file.text, [&](std::string_view word) { words.emplace(word); });
}

Findings named_functions_exist(const SourceFile& document, const std::set<std::string>& words) {
  Findings findings;
  const auto lines = lines_of(document);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    for_each_quote(lines[i], [&](std::string_view quote) {
      if (quote.find("::") == std::string_view::npos || quote.starts_with("terrace::")) return;
      for_each_word(quote, [&](std::string_view word) {
        if (!words.contains(std::string{word})) {
          findings.push_back(finding(document, i, "not in the code: " + std::string{word} + " of " + std::string{quote}));
        }
      });
    });
  }
  return findings;
}

}  // namespace terrace::house
