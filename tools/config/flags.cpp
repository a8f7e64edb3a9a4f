#include "tools/config/flags.hpp"

#include "terrace/options.hpp"
#include "tools/arguments.hpp"
#include "tools/usage_error.hpp"

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>

namespace terrace::tools {
namespace {

std::string group_of(const ConfigOption& option) {
  if (option.table == "storage") return "Storage";
  if (option.table == "shared") return "Shared store";
  if (option.table == "log") return "Log";
  if (option.table == "trace") return "Operators";
  return option.table.empty() ? "Cache" : "Devices and memory";
}

/// The help of a flag: what it does, the names that it takes, and its default.
std::string text_of(const ConfigOption& option) {
  std::string text = option.help;
  const bool is_named = option.type == "NAME";
  const std::string last = option.limits.substr(option.limits.rfind(' ') + 1);
  if (is_named && text.find(last) == std::string::npos) text += ": " + option.limits;
  std::string usual = option.default_value.empty() ? option.otherwise : option.default_value;
  std::erase(usual, '"');
  if (usual.empty() || usual == "[]") return text;
  if (option.is_switch) usual = usual == "true" ? "on" : "off";
  return fmt::format("{} (default{} {})", text, option.default_value.empty() ? ":" : "", usual);
}

/// The words that the completion of shells offers for a value.
std::vector<std::string> words_of(const ConfigOption& option) {
  if (option.type == "WHERE") return {"none", "memory:", "file:"};
  std::vector<std::string> words;
  if (option.type != "NAME") return words;
  for (std::string_view names = option.limits; !names.empty();) {
    const std::string_view name = names.substr(0, names.find(", "));
    words.emplace_back(name);
    names.remove_prefix(std::min(names.size(), name.size() + 2));
  }
  return words;
}

void add_flag(CLI::App& command, Config& config, const ConfigOption& option) {
  const std::string names = option.flag_alias.empty() ? option.flag : option.flag + "," + option.flag_alias;
  CLI::Option* added = nullptr;
  if (option.is_switch) {
    const auto set = [&config, flag = option.flag](std::int64_t on) {
      as_usage([&] { config.set(flag, on > 0 ? "on" : "off"); });
    };
    added = command.add_flag_function(names, set, text_of(option));
  } else {
    const Words number = option.type == "DIR" ? Words::several : Words::one;
    const auto set = [&config, flag = option.flag](const std::string&, const std::vector<std::string>& words) {
      as_usage([&] {
        for (const std::string& word : words) config.set(flag, word);
      });
    };
    added = add_words(command, names, number, set, option.type.c_str(), text_of(option).c_str());
    set_choices(*added, words_of(option));
  }
  if (!option.common) added->group(group_of(option));
}

}  // namespace

void add_config_flags(CLI::App& command, Config& config, std::filesystem::path& file,
                      const std::vector<std::string_view>& without) {
  add_value(command, "--config", file, to_file, "FILE", "Configuration to read; flags and TERRACE_ variables win over it");
  for (const ConfigOption& option : config.table()) {
    const bool wanted = !option.flag.empty() && std::ranges::find(without, option.flag) == without.end();
    if (wanted) add_flag(command, config, option);
  }
}

void read_config(Config& config, const std::filesystem::path& file) {
  as_usage([&] {
    if (!file.empty()) config.read_file(file);
    config.read_environment(::environ);
  });
}

CacheSystemOptions options_of(const Config& config) {
  return as_usage([&] { return config.options(); });
}

}  // namespace terrace::tools
