#include "tests/house/rules.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>
#include <optional>
#include <regex>

namespace terrace::house {
namespace {

using Names = std::vector<std::string_view>;

struct Folder {
  std::string_view name;
  Names may_include;
};

constexpr std::array<std::string_view, 8> products{"include", "base", "radix", "transfer", "storage", "runtime", "capi", "tools"};

/// The folders and single files, and what each may include besides itself. The list has no cycle: each folder uses only the
/// folders that it names.
const std::vector<Folder>& house() {
  static const std::vector<Folder> folders{
      {"include/terrace", {}},
      {"base", {}},
      {"capi", {"runtime/cache", "runtime/config", "runtime/offload", "runtime/system", "runtime/tier_store"}},
      {"radix/eviction", {"base"}},
      {"radix/groups", {"base", "radix/keys", "radix/tree"}},
      {"radix/keys", {"base"}},
      {"radix/tree", {"base", "radix/eviction"}},
      {"runtime/cache",
       {"base", "radix/tree", "runtime/manager", "runtime/measure", "runtime/tiering", "runtime/types", "storage/index",
        "transfer/device", "transfer/engine", "transfer/host"}},
      {"runtime/config", {"base", "radix/tree", "runtime/system", "runtime/types", "storage/io", "transfer/engine"}},
      {"runtime/manager",
       {"base", "radix/groups", "radix/tree", "runtime/measure", "runtime/tiering", "runtime/types", "storage/index",
        "transfer/device"}},
      {"runtime/measure", {"base", "runtime/types", "transfer/device"}},
      {"runtime/offload", {"base", "runtime/cache", "runtime/types"}},
      {"runtime/residency", {"base", "radix/eviction", "radix/groups", "radix/tree", "runtime/measure", "runtime/types"}},
      {"runtime/system",
       {"base", "radix/groups", "radix/tree", "runtime/cache", "runtime/types", "storage/file", "storage/format", "storage/io",
        "storage/memory", "storage/resilience", "transfer/cuda", "transfer/device", "transfer/emulated", "transfer/engine",
        "transfer/host"}},
      {"runtime/tiering",
       {"base", "radix/tree", "runtime/measure", "runtime/residency", "runtime/types", "storage/index", "transfer/device"}},
      {"runtime/tier_store",
       {"base", "radix/keys", "storage/file", "storage/index", "storage/io", "storage/resilience", "transfer/host"}},
      {"runtime/types", {"base", "radix/eviction", "radix/groups", "radix/keys", "radix/tree"}},
      {"storage/file", {"base", "storage/format", "storage/index", "storage/io"}},
      {"storage/format", {"base", "storage/index", "storage/io"}},
      {"storage/index", {"base"}},
      {"storage/io", {"base"}},
      {"storage/memory", {"base", "storage/index", "storage/io"}},
      {"storage/offline", {"base", "storage/file", "storage/format", "storage/io"}},
      {"storage/resilience", {"base", "storage/index"}},
      {"transfer/cuda", {"base", "transfer/cuda/copy", "transfer/cuda/driver", "transfer/device", "transfer/host"}},
      {"transfer/cuda/copy", {"base", "transfer/cuda/driver", "transfer/device"}},
      {"transfer/cuda/driver", {"base"}},
      {"transfer/device", {"base", "transfer/host"}},
      {"transfer/emulated", {"base", "transfer/device", "transfer/host"}},
      {"transfer/engine", {"base", "transfer/device"}},
      {"transfer/host", {"base"}},
      {"tools", {"base", "radix", "transfer", "storage", "runtime", "capi", "tools/policies"}},
      {"tools/policies", {"base", "radix/eviction"}},
      {"examples", {}},
      // These two show what the public headers do not offer.
      {"examples/cuda_stream.cpp", {"transfer/cuda"}},
      {"examples/eviction_policy.cpp", {"base", "radix"}},
      {"tests", {"base", "radix", "transfer", "storage", "runtime", "capi", "tools"}},
  };
  return folders;
}

/// The public headers (include/terrace/) that each folder may include: those whose words it shares. Folders that are not listed
/// may include all of them.
const std::vector<Folder>& public_vocabulary() {
  static const std::vector<Folder> folders{
      {"base", {"types", "result", "clock", "waker", "log", "host_memory"}},
      {"radix", {"types", "result", "keys", "groups", "policies", "statistics"}},
      {"storage", {"types", "result", "clock", "waker", "log", "block_store"}},
      {"transfer", {"types", "result", "clock", "waker", "log", "device", "emulated_stream", "host_memory"}},
  };
  return folders;
}

/// The header of the C interface. Product code other than its implementation uses the headers of C++.
constexpr std::string_view interface_of_c = "terrace.h";

/// Headers that radix/ must not include, because it has only data structures.
constexpr std::array<std::string_view, 20> no_business_of_radix{
    "atomic",   "chrono",    "condition_variable", "ctime",   "filesystem", "fstream", "future",     "iostream", "mutex",
    "poll.h",   "random",    "semaphore",          "stdio.h", "cstdio",     "thread",  "sys/mman.h", "fcntl.h",  "time.h",
    "unistd.h", "stop_token"};

/// The only files that include moodycamel's queues. So the exceptions for its fences (cmake/tsan.supp) are needed for these only.
constexpr std::array<std::string_view, 2> seams_of_moodycamel{"base/completion_queue.hpp", "storage/io/threaded_io.hpp"};

/// True if the path is in the folder or below it.
bool is_in(std::string_view path, std::string_view folder) {
  return path.starts_with(folder) && (path.size() == folder.size() || path[folder.size()] == '/');
}

/// The deepest folder of the list that has the file.
const Folder* folder_of(std::string_view path) {
  const Folder* lowest = nullptr;
  for (const Folder& folder : house()) {
    if (is_in(path, folder.name) && (lowest == nullptr || folder.name.size() > lowest->name.size())) lowest = &folder;
  }
  return lowest;
}

/// True if a file may include the public header with this path, "terrace/clock.hpp".
bool may_include_public(std::string_view file, std::string_view header) {
  header.remove_prefix(std::string_view{"terrace/"}.size());
  header = header.substr(0, header.find('.'));
  return std::ranges::none_of(public_vocabulary(), [&](const Folder& folder) {
    return is_in(file, folder.name) && std::ranges::find(folder.may_include, header) == folder.may_include.end();
  });
}

/// True if `names` allows the folder, by naming it or a folder that contains it.
bool allows(const Names& names, std::string_view folder) {
  return std::ranges::any_of(names, [&](std::string_view name) { return name == folder || is_in(folder, name); });
}

/// The library name of a folder: "radix/keys" is terrace::radix_keys.
std::string library_of(std::string_view folder) {
  std::string name{folder};
  std::ranges::replace(name, '/', '_');
  return name;
}

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

/// The header that an `#include` line names.
struct Include {
  std::string_view path;
  bool quoted = false;
};

std::optional<Include> include_of(std::string_view line) {
  line = trimmed(line);
  if (!line.starts_with('#')) return std::nullopt;
  line = trimmed(line.substr(1));
  if (!line.starts_with("include")) return std::nullopt;
  line = trimmed(line.substr(std::string_view{"include"}.size()));
  if (line.size() < 2 || (line.front() != '"' && line.front() != '<')) return std::nullopt;
  const bool quoted = line.front() == '"';
  return Include{line.substr(1, line.find(quoted ? '"' : '>', 1) - 1), quoted};
}

/// Calls `f` for each word of the text.
void for_each_word(std::string_view text, const std::function<void(std::string_view)>& f) {
  for (std::size_t at = 0; at < text.size();) {
    std::size_t end = at;
    while (end < text.size() && is_word(text[end])) ++end;
    if (end > at) f(text.substr(at, end - at));
    at = std::max(end, at + 1);
  }
}

/// Calls `f` for the text in each pair of backticks of a line.
void for_each_quote(std::string_view line, const std::function<void(std::string_view)>& f) {
  const auto parts = split(line, '`');
  for (std::size_t i = 1; i + 1 < parts.size(); i += 2) f(parts[i]);
}

}  // namespace

std::span<const std::string_view> product_folders() { return products; }

std::vector<std::string> library_folders() {
  std::vector<std::string> folders;
  for (const Folder& folder : house()) {
    if (folder.name != "include/terrace" &&
        std::ranges::any_of(products, [&](std::string_view top) { return is_in(folder.name, top); })) {
      folders.emplace_back(folder.name);
    }
  }
  return folders;
}

// ---- the arrows ----------------------------------------------------------------------------------------------------------

Findings includes_follow_the_arrows(const SourceFile& file) {
  Findings findings;
  const Folder* const from = folder_of(file.path);
  if (from == nullptr) return {file.path + ": in no folder of the house"};
  const auto lines = lines_of(file);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const auto include = include_of(lines[i]);
    if (!include) continue;
    const bool from_root = include->path.find('/') != std::string_view::npos && !include->path.starts_with("..");
    const Folder* const to = from_root ? folder_of(include->path) : nullptr;
    const std::string path{include->path};
    if (is_in(path, "terrace")) {
      // Examples and the tests of the installed package include them as an application does.
      const bool of_an_application = is_in(file.path, "examples") || is_in(file.path, "tests/install");
      if (include->quoted == of_an_application) {
        findings.push_back(finding(file, i, path + (include->quoted ? " belongs in angle brackets" : " belongs in quotes")));
      }
      if (!may_include_public(file.path, path))
        findings.push_back(finding(file, i, std::string{from->name} + "/ may not include " + path));
    } else if (path == interface_of_c && (is_in(file.path, "capi") || is_in(file.path, "tests"))) {
      continue;
    } else if (include->quoted && to == nullptr) {
      findings.push_back(finding(file, i, "\"" + path + "\" does not start at the root"));
    } else if (!include->quoted && to != nullptr) {
      findings.push_back(finding(file, i, "<" + path + "> is ours, and belongs in quotes"));
    } else if (to != nullptr && to != from && !allows(from->may_include, to->name)) {
      findings.push_back(finding(file, i, std::string{from->name} + "/ may not include " + path));
    }
  }
  return findings;
}

Findings public_headers_stand_alone(const SourceFile& file) {
  if (!is_in(file.path, "include")) return {};
  Findings findings;
  const auto lines = lines_of(file);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const auto include = include_of(lines[i]);
    if (!include) {
      const bool is_condition = trimmed(lines[i]).starts_with('#') && lines[i].find("if") != std::string_view::npos;
      if (is_condition && lines[i].find("TERRACE_") != std::string_view::npos) {
        findings.push_back(finding(file, i, "an installed header may not depend on a macro of the build"));
      }
      if (lines[i].starts_with("class ") && lines[i].find(": public std::") != std::string_view::npos &&
          lines[i].find("TERRACE_API") == std::string_view::npos) {
        findings.push_back(finding(file, i, "an exception is TERRACE_API, because applications catch it"));
      }
      continue;
    }
    const bool is_public = include->quoted && is_in(include->path, "terrace");
    const bool is_standard = !include->quoted && include->path.find_first_of("/.") == std::string_view::npos;
    if (is_public || is_standard || (!include->quoted && is_in(include->path, "boost"))) continue;
    findings.push_back(finding(file, i, "an installed header may not include " + std::string{include->path}));
  }
  return findings;
}

Findings includes_keep_to_the_seams(const SourceFile& file) {
  Findings findings;
  const auto lines = lines_of(file);
  const bool in_radix = file.path.starts_with("radix/");
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const auto include = include_of(lines[i]);
    if (!include) continue;
    const bool impure = std::ranges::find(no_business_of_radix, include->path) != no_business_of_radix.end() ||
                        include->path.starts_with("boost/asio") || include->path == "terrace/clock.hpp" ||
                        include->path == "base/random.hpp" || include->path == "base/waker.hpp" ||
                        include->path == "terrace/waker.hpp";
    if (in_radix && impure) {
      findings.push_back(finding(file, i, "radix/ knows no clock, thread or I/O: " + std::string{include->path}));
    }
    const bool behind_the_queue = std::ranges::find(seams_of_moodycamel, file.path) != seams_of_moodycamel.end();
    if (include->path.ends_with("concurrentqueue.h") && !behind_the_queue) {
      findings.push_back(finding(file, i, "moodycamel stays behind its seams: " + std::string{include->path}));
    }
  }
  return findings;
}

Findings links_mirror_the_arrows(const SourceFile& file) {
  Findings findings;
  const Folder* const from = folder_of(file.path);
  if (from == nullptr) return {file.path + ": in no folder of the house"};
  std::set<std::string> linked;
  std::set<std::string> allowed;
  for (const std::string_view to : from->may_include) allowed.insert(library_of(to));
  const auto lines = lines_of(file);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const std::string_view code = lines[i].substr(0, lines[i].find('#'));
    constexpr std::string_view ours = "terrace::";
    for (std::size_t at = code.find(ours); at != std::string_view::npos; at = code.find(ours, at + 1)) {
      std::size_t end = at + ours.size();
      while (end < code.size() && is_word(code[end])) ++end;
      const std::string to{code.substr(at + ours.size(), end - at - ours.size())};
      if (to == library_of(from->name) || to == "public") continue;
      linked.insert(to);
      if (!allowed.contains(to)) findings.push_back(finding(file, i, std::string{from->name} + " may not link terrace::" + to));
    }
    if (code.find("GTest::") != std::string_view::npos) findings.push_back(finding(file, i, "a product links a test library"));
  }
  if (from->name == "tools") return findings;  // it links the others through runtime
  for (const std::string& to : allowed) {
    if (!linked.contains(to)) findings.push_back(file.path + ": does not link terrace::" + to);
  }
  return findings;
}

Findings arrows_make_no_circle() {
  // Remove every folder that uses no remaining folder. The folders that stay are part of a cycle.
  std::vector<Folder> left{house()};
  for (bool any = true; any;) {
    any = std::erase_if(left, [&](const Folder& folder) {
            return std::ranges::none_of(
                left, [&](const Folder& other) { return other.name != folder.name && allows(folder.may_include, other.name); });
          }) > 0;
  }
  Findings findings;
  for (const Folder& folder : left) findings.push_back(std::string{folder.name} + "/ is in a circle, or stands on one");
  return findings;
}

// ---- files ---------------------------------------------------------------------------------------------------------------

Findings header_starts_with_pragma_once(const SourceFile& file) {
  if (!file.path.ends_with(".hpp") || file.text.starts_with("#pragma once\n")) return {};
  return {finding(file, 0, "a header starts with #pragma once")};
}

Findings own_header_comes_first(const SourceFile& file, const std::function<bool(const std::string&)>& has_header) {
  if (!file.path.ends_with(".cpp")) return {};
  const std::string own = std::filesystem::path{file.path}.replace_extension(".hpp").generic_string();
  if (!has_header(own)) return {};
  const auto lines = lines_of(file);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const auto include = include_of(lines[i]);
    if (!include) continue;
    if (include->quoted && include->path == own) return {};
    return {finding(file, i, "the first include is not its own header " + own)};
  }
  return {finding(file, 0, "does not include its own header " + own)};
}

Findings is_no_longer_than(const SourceFile& file, std::size_t lines_max) {
  const std::size_t lines = lines_of(file).size();
  if (lines <= lines_max) return {};
  return {file.path + ": " + std::to_string(lines) + " lines; a file over " + std::to_string(lines_max) + " is two files"};
}

// ---- lines ---------------------------------------------------------------------------------------------------------------

Findings lines_are_clean(const SourceFile& file) {
  Findings findings;
  const auto lines = lines_of(file);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (lines[i].find('\t') != std::string_view::npos) findings.push_back(finding(file, i, "a tab"));
    if (lines[i].ends_with('\r')) findings.push_back(finding(file, i, "a carriage return"));
    if (lines[i].ends_with(' ')) findings.push_back(finding(file, i, "a blank at the end"));
  }
  if (!file.text.empty() && !file.text.ends_with('\n')) {
    findings.push_back(finding(file, lines.size() - 1, "the last line does not end"));
  }
  return findings;
}

Findings lines_are_no_wider_than(const SourceFile& file, std::size_t columns_max) {
  Findings findings;
  const auto lines = lines_of(file);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    // In UTF-8 every byte of a code point except the first is 10xxxxxx.
    const auto columns = static_cast<std::size_t>(
        std::ranges::count_if(lines[i], [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; }));
    if (columns > columns_max) findings.push_back(finding(file, i, std::to_string(columns) + " columns"));
  }
  return findings;
}

Findings nothing_is_left_for_later(const SourceFile& file) {
  // Each marker is split in two, so that this file follows its own rule.
  static const std::array<std::string, 3> markers{std::string{"to"} + "do", std::string{"fix"} + "me", std::string{"x"} + "xx"};
  Findings findings;
  const auto lines = lines_of(file);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    for_each_word(lines[i], [&](std::string_view word) {
      std::string lower{word};
      for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
      if (std::ranges::find(markers, lower) != markers.end()) {
        findings.push_back(finding(file, i, "work left for later: " + std::string{word}));
      }
    });
  }
  return findings;
}

// ---- documents -----------------------------------------------------------------------------------------------------------

void collect_tests(const SourceFile& file, std::set<std::string>& names) {
  for (const std::string_view macro : {"TEST(", "TEST_F(", "TEST_P(", "TYPED_TEST(", "TYPED_TEST_P("}) {
    const std::string at_line_start = "\n" + std::string{macro};
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

std::string between(const SourceFile& file, std::string_view begin, std::string_view end) {
  std::string text;
  bool inside = false;
  for (const std::string_view line : lines_of(file)) {
    if (inside && trimmed(line) == end) return text;
    if (inside) text.append(line).push_back('\n');
    inside |= trimmed(line) == begin;
  }
  return {};
}

bool has_code_block(const SourceFile& document, std::string_view code) {
  return !code.empty() && document.text.find("```cpp\n" + std::string{code} + "```\n") != std::string::npos;
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

Findings comments_open_with_a_subject(const SourceFile& file) {
  static const std::regex opening{R"(^\s*///? (Of|What|As|Where|Whoever|Somebody|Nobody)\b)"
                                  R"(|///< ?(Of|What|As|Where|Whoever|Somebody|Nobody)\b)"};
  Findings findings;
  const auto lines = lines_of(file);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (lines[i].find("//") == std::string_view::npos) continue;
    std::cmatch found;
    if (!std::regex_search(lines[i].begin(), lines[i].end(), found, opening)) continue;
    const std::string word = found[1].matched ? found[1].str() : found[2].str();
    findings.push_back(finding(file, i, "a comment opens with \"" + word + "\": write a sentence that begins with its subject"));
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
