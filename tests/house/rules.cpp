#include "tests/house/rules.hpp"

#include "tests/house/text.hpp"

#include <algorithm>
#include <array>
#include <filesystem>
#include <optional>

namespace terrace::house {
namespace {

using Names = std::vector<std::string_view>;

struct Folder {
  std::string_view name;
  Names may_include;
};

constexpr std::array<std::string_view, 9> products{"include", "base", "radix", "transfer", "storage",
                                                   "runtime", "capi", "tools", "lab"};

/// The folders and single files, and what each may include besides itself. The list has no cycle: each folder uses only the
/// folders that it names.
const std::vector<Folder>& house() {
  static const std::vector<Folder> folders{
      {"include/terrace", {}},
      {"base", {}},
      {"capi", {"runtime/admin", "runtime/config", "runtime/engine", "runtime/events", "runtime/store", "runtime/system"}},
      {"lab", {"base", "lab/policies", "radix", "runtime", "storage", "tools", "transfer"}},
      {"lab/policies", {"base", "radix/eviction", "radix/tree"}},
      {"radix/eviction", {"base"}},
      {"radix/groups", {"base", "radix/keys", "radix/tree"}},
      {"radix/keys", {"base"}},
      {"radix/tree", {"base", "radix/eviction"}},
      {"runtime/admin",
       {"base", "runtime/admin/history", "runtime/cache/control", "runtime/cache/measure", "runtime/cache/types",
        "runtime/config/table", "runtime/engine"}},
      {"runtime/admin/history", {}},
      {"runtime/cache/control",
       {"base", "radix/groups", "radix/tree", "runtime/cache/measure", "runtime/cache/orders", "runtime/cache/pool",
        "runtime/cache/types", "storage/index", "transfer/device"}},
      {"runtime/cache/index",
       {"base", "radix/eviction", "radix/groups", "radix/tree", "runtime/cache/measure", "runtime/cache/types"}},
      {"runtime/cache/measure", {"base", "runtime/cache/types", "transfer/device"}},
      {"runtime/cache/orders", {"base", "storage/index", "storage/resilience", "transfer/device"}},
      {"runtime/cache/pool",
       {"base", "radix/tree", "runtime/cache/index", "runtime/cache/measure", "runtime/cache/orders", "runtime/cache/types",
        "storage/index", "transfer/device"}},
      {"runtime/cache/types", {"base", "radix/eviction", "radix/groups", "radix/keys", "radix/tree"}},
      {"runtime/config",
       {"base", "runtime/cache/types", "runtime/config/table", "runtime/system", "storage/io", "storage/redis", "storage/shared",
        "transfer/engine"}},
      {"runtime/config/table", {"base", "radix/tree", "storage/io", "transfer/engine"}},
      {"runtime/engine",
       {"base", "radix/tree", "runtime/cache/control", "runtime/cache/measure", "runtime/cache/orders", "runtime/cache/pool",
        "runtime/cache/types", "runtime/engine/idle", "storage/index", "transfer/device", "transfer/engine", "transfer/host"}},
      {"runtime/engine/idle", {"base"}},
      {"runtime/events", {"base"}},
      {"runtime/shared", {"base", "storage/redis", "storage/shared"}},
      {"runtime/store",
       {"base", "radix/keys", "runtime/admin", "runtime/cache/measure", "runtime/engine/idle", "runtime/shared", "storage/file",
        "storage/index", "storage/io", "storage/resilience", "transfer/host"}},
      {"runtime/system",
       {"base", "radix/groups", "radix/tree", "runtime/admin", "runtime/cache/measure", "runtime/cache/types", "runtime/engine",
        "runtime/engine/idle", "runtime/shared", "storage/file", "storage/format", "storage/io", "storage/memory",
        "storage/resilience", "transfer/cuda", "transfer/device", "transfer/emulated", "transfer/engine", "transfer/host"}},
      {"storage/file", {"base", "storage/format", "storage/index", "storage/io"}},
      {"storage/format", {"base", "storage/index", "storage/io"}},
      {"storage/index", {"base"}},
      {"storage/io", {"base"}},
      {"storage/memory", {"base", "storage/index", "storage/io"}},
      {"storage/offline", {"base", "storage/file", "storage/format", "storage/io"}},
      {"storage/redis", {"base", "storage/resilience", "storage/shared"}},
      {"storage/resilience", {"base", "storage/index"}},
      {"storage/shared", {"base", "storage/io"}},
      {"transfer/cuda", {"base", "transfer/cuda/copy", "transfer/cuda/driver", "transfer/device", "transfer/host"}},
      {"transfer/cuda/copy", {"base", "transfer/cuda/driver", "transfer/device"}},
      {"transfer/cuda/driver", {"base"}},
      {"transfer/device", {"base", "transfer/host"}},
      {"transfer/emulated", {"base", "transfer/device", "transfer/host"}},
      {"transfer/engine", {"base", "transfer/device"}},
      {"transfer/host", {"base"}},
      {"tools", {"base", "radix", "transfer", "storage", "runtime", "capi"}},
      {"examples", {}},
      // These two show what the public headers do not offer.
      {"examples/cuda_stream.cpp", {"transfer/cuda"}},
      {"examples/eviction_policy.cpp", {"base", "radix"}},
      {"tests", {"base", "radix", "transfer", "storage", "runtime", "capi", "tools", "lab"}},
  };
  return folders;
}

/// The public headers (include/terrace/) that each folder may include: those whose words it shares. Folders that are not listed
/// may include all of them.
const std::vector<Folder>& public_vocabulary() {
  static const std::vector<Folder> folders{
      {"base", {"types", "result", "clock", "waker", "log", "host_memory"}},
      {"radix", {"types", "result", "keys", "groups", "policies", "statistics"}},
      {"storage", {"types", "result", "clock", "waker", "log", "block_store", "shared_store"}},
      {"transfer", {"types", "result", "clock", "waker", "log", "device", "emulated_stream", "host_memory"}},
  };
  return folders;
}

/// The public headers of the façades, which applications hold, and the folders of runtime/ below them. A façade is large, and all
/// that these folders share with it has a header of its own.
constexpr std::array<std::string_view, 4> facades{"async_cache", "cache", "offload_cache", "system"};
constexpr std::array<std::string_view, 6> below_the_facades{"runtime/cache/control", "runtime/cache/measure",
                                                            "runtime/cache/orders",  "runtime/cache/index",
                                                            "runtime/cache/pool",    "runtime/cache/types"};

/// The header of the C interface. Product code other than its implementation uses the headers of C++.
constexpr std::string_view interface_of_c = "terrace.h";
/// The file that prints the version of the C interface.
constexpr std::string_view shows_versions = "tools/about/version.cpp";

/// Headers that radix/ must not include, because it has only data structures.
constexpr std::array<std::string_view, 20> no_business_of_radix{
    "atomic",   "chrono",    "condition_variable", "ctime",   "filesystem", "fstream", "future",     "iostream", "mutex",
    "poll.h",   "random",    "semaphore",          "stdio.h", "cstdio",     "thread",  "sys/mman.h", "fcntl.h",  "time.h",
    "unistd.h", "stop_token"};

/// The only files that include moodycamel's queues. So the exceptions for its fences (cmake/tsan.supp) are needed for these only.
constexpr std::array<std::string_view, 2> seams_of_moodycamel{"base/completion_queue.hpp", "storage/io/threaded_io.hpp"};

/// True if the path is in the folder or below it.
bool is_in(std::string_view path, std::string_view above) {
  return path.starts_with(above) && (path.size() == above.size() || path[above.size()] == '/');
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
  const bool is_below = std::ranges::any_of(below_the_facades, [&](std::string_view folder) { return is_in(file, folder); });
  if (is_below && std::ranges::find(facades, header) != facades.end()) return false;
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
    } else if (path == interface_of_c && (is_in(file.path, "capi") || is_in(file.path, "tests") || file.path == shows_versions)) {
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
  if (from->name == "tools" || from->name == "lab") return findings;  // they link the others through runtime
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

}  // namespace terrace::house
