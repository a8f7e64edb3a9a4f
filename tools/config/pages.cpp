#include "tools/config/pages.hpp"

#include "runtime/config/table/table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

namespace terrace::tools {
namespace {

constexpr std::size_t columns = 100;

struct TableText {
  std::string_view table;
  std::string_view text;
};
/// The subject of each table of the file.
constexpr TableText table_texts[] = {
    {"", "What is cached, and for how long"},
    {"rank", "The devices over which the model is spread: one table for each"},
    {"pool", "The slots of one block size, in device and host: one table for each; a model without groups has one"},
    {"group", "The KV cache groups of the model, one table for each; none: one group with full attention"},
    {"device", "Device memory"},
    {"host", "Host memory"},
    {"transfers", "Copies between device and host for which no request waits"},
    {"storage", "The storage tier"},
    {"shared", "The store that several machines share, beyond the tiers of this one"},
    {"log", "Messages"},
    {"admin", "The endpoint for operators"},
    {"trace", "Trace events of the whole run, for Perfetto"},
};

std::string_view text_of(std::string_view table) {
  const auto found = std::ranges::find(table_texts, table, &TableText::table);
  return found == std::end(table_texts) ? "" : found->text;
}

std::string header(const ConfigOption& option) {
  return option.repeated ? fmt::format("[[{}]]", option.table) : fmt::format("[{}]", option.table);
}

/// The text in comment lines of at most `columns` columns.
std::string comment(std::string_view text) {
  std::string out;
  std::string line = "#";
  while (!text.empty()) {
    const std::string_view word = text.substr(0, text.find(' '));
    text.remove_prefix(std::min(text.size(), word.size() + 1));
    if (line.size() + 1 + word.size() > columns) {
      out += line + '\n';
      line.resize(1);
    }
    line.append(" ").append(word);
  }
  return out + line + '\n';
}

std::string entry(const ConfigOption& option) {
  std::string text = option.help + ".";
  if (!option.limits.empty()) text += fmt::format(" {}: {}.", option.type == "NAME" ? "One of" : "Limits", option.limits);
  if (option.default_value.empty()) text += fmt::format(" Default: {}. For example:", option.otherwise);
  const bool usual = !option.default_value.empty();
  // Only a line without a space is an option.
  return comment(text) + (usual ? fmt::format("#{} = {}\n", option.key, option.default_value)
                                : fmt::format("# {} = {}\n", option.key, option.example));
}

std::string in_cell(std::string text) {
  for (std::size_t at = 0; (at = text.find('|', at)) != std::string::npos; at += 2) text.insert(at, 1, '\\');
  return text;
}

std::string code(const std::string& text) { return text.empty() ? "" : fmt::format("`{}`", in_cell(text)); }

}  // namespace

std::string commented_config(const Config& config) {
  std::string out =
      "# Configuration of Terrace. Every option is here with its default. To change one, remove the # in front of it.\n"
      "# `terrace config check FILE` checks a file; `terrace config show --config FILE` shows what it makes.\n"
      "# Sizes take B, KiB, MiB, GiB and TiB; durations ns, us, ms, s, min and h.\n";
  std::string table = "?";
  for (const ConfigOption& option : config.table()) {
    if (option.table != table) {
      table = option.table;
      out += fmt::format("\n# {}.\n", text_of(table));
      // A table of a group would be a group.
      if (!table.empty()) out += fmt::format("{}{}\n", table == "group" ? "#" : "", header(option));
    }
    out += '\n' + entry(option);
  }
  return out;
}

std::string reference_page(const Config& config) {
  std::string out = R"(# Configuration

This page is generated from the table of options: `terrace config reference > docs/configuration.md`. A test compares the two.

A value comes from a flag, from an environment variable, from a TOML file, or is the default; the first of these that is given
wins. `terrace config init FILE` writes a file with all defaults, `terrace config check FILE` checks one, and `terrace config
show` shows each value in effect and where it comes from. Programs read the same table with `Config` in
`include/terrace/config.hpp`. [how-to/configure.md](how-to/configure.md) has examples.

- A size is a number and B, KiB, MiB, GiB or TiB. A bandwidth is a size per second: `50MiB/s`. A duration is a number and ns, us,
  ms, s, min or h; a number alone is seconds. A share is a number from 0 to 1, or a percentage. In a file, all of these but plain
  numbers are in quotes.
- A name that does not exist, a value of the wrong type or outside its limits, and options that contradict each other are refused,
  with the place and the nearest right name. Two options contradict each other only if they are set on the same level; a higher
  level replaces what a lower one says.
- The variable of an option is its flag in capitals: `TERRACE_HOST_BLOCKS` for `--host-blocks`. Options without a flag are in
  files only.
- Variables that begin with `TERRACE_` and belong to no option are ignored, unless they look like a misspelt option.
- The password of a shared store is no option, because values of options are shown. It is in the variable
  `TERRACE_SHARED_PASSWORD`, or in the file `shared.password-file`.
- An option that is marked "live" can change while the cache serves: `terrace set` ([admin.md](admin.md)).
- Options of `[[pool]]` can be set by flag or variable if there is one pool. `--device` takes a list, one device for each rank.
)";
  std::string table = "?";
  for (const ConfigOption& option : config.table()) {
    if (option.table != table) {
      table = option.table;
      out += fmt::format("\n## {}\n\n{}.\n\n", table.empty() ? "In front of the tables" : fmt::format("`{}`", header(option)),
                         text_of(table));
      out += "| option | value | default | flag | |\n|---|---|---|---|---|\n";
    }
    const std::string value = fmt::format("{}{}{}", in_cell(option.type), option.limits.empty() ? "" : ": ", option.limits);
    std::string flag = code(option.flag);
    if (!option.flag_alias.empty()) flag += ", " + code(option.flag_alias);
    out += fmt::format("| {} | {} | {} | {} | {}{} |\n", code(option.key), value,
                       option.default_value.empty() ? in_cell(option.otherwise) : code(option.default_value), flag,
                       in_cell(option.help), option.live ? " (live)" : "");
  }
  out += "\n## Fields without an option\n\nA program sets these fields of `CacheSystemOptions` itself:\n\n";
  for (const config::FieldWithoutOption& each : config::fields_without_option()) {
    out += fmt::format("- `{}`: {}.\n", each.field, each.reason);
  }
  return out;
}

}  // namespace terrace::tools
