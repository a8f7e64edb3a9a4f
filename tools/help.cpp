#include "tools/help.hpp"

#include "runtime/config/table/nearest_name.hpp"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <vector>

namespace terrace::tools {
namespace {

constexpr std::size_t columns = 80;
constexpr std::size_t text_column = 30;  ///< the column where descriptions begin

/// Breaks `text` between words. The first line begins at column `at`, the following ones at column `indent`.
std::string wrapped(std::string_view text, std::size_t at, std::size_t indent) {
  std::string out;
  bool first = true;
  while (!text.empty()) {
    const std::string_view word = text.substr(0, text.find(' '));
    text.remove_prefix(std::min(text.size(), word.size() + 1));
    if (!first && at + 1 + word.size() > columns) {
      out += '\n' + std::string(indent, ' ');
      at = indent;
    } else if (!first) {
      out += ' ';
      ++at;
    }
    first = false;
    out += word;
    at += word.size();
  }
  return out + '\n';
}

std::string entry(const std::string& name, const std::string& text) {
  std::string out = "  " + name;
  if (out.size() + 2 > text_column) out += '\n' + std::string(text_column, ' ');
  out.resize(std::max(out.size(), text_column), ' ');
  return out + wrapped(text, text_column, text_column);
}

class HelpFormatter final : public CLI::Formatter {
 public:
  std::string make_help(const CLI::App* app, std::string name, CLI::AppFormatMode mode) const override {
    std::string out = wrapped(app->get_description(), 0, 0) + "\nUsage: " + wrapped(usage(*app, name), 7, 11);
    std::string positionals;
    for (const CLI::Option* option : app->get_options(&CLI::Option::get_positional)) {
      positionals += entry(upper(option->get_name(true)), text_of(*option));
    }
    if (!positionals.empty()) out += '\n' + positionals;
    const bool is_short = app->get_help_all_ptr() != nullptr && mode == CLI::AppFormatMode::Normal;
    for (const std::string& group : app->get_groups()) {
      if (is_short && group != "Options") continue;
      std::string options;
      for (const CLI::Option* option : app->get_options([](const CLI::Option* each) { return each->nonpositional(); })) {
        if (option->get_group() == group) options += entry(name_of(*option), text_of(*option));
      }
      if (!group.empty() && !options.empty()) out += fmt::format("\n{}:\n{}", group, options);
    }
    std::string commands;
    for (const CLI::App* command : app->get_subcommands(nullptr)) {
      commands += entry(command->get_name(), command->get_description());
    }
    if (!commands.empty()) out += "\nCommands:\n" + commands;
    const std::string footer = app->get_footer();
    return footer.empty() ? out : out + footer + '\n';
  }

 private:
  static std::string upper(std::string word) {
    for (char& c : word) {
      if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
    }
    return word;
  }

  static std::string usage(const CLI::App& app, const std::string& name) {
    std::string out = name;
    if (!app.get_subcommands(nullptr).empty()) return out + " COMMAND";
    out += " [OPTIONS]";
    for (const CLI::Option* option : app.get_options(&CLI::Option::get_positional)) {
      const std::string word = upper(option->get_name(true)) + (option->get_expected_max() > 1 ? "..." : "");
      out += option->get_required() ? " " + word : fmt::format(" [{}]", word);
    }
    return out;
  }

  static std::string name_of(const CLI::Option& option) {
    std::string name = option.get_name(false, true);
    if (const std::size_t comma = name.find(','); comma != std::string::npos) name.insert(comma + 1, " ");
    if (option.get_type_size() != 0) name += " " + option.get_type_name();
    return option.get_expected_max() > 1 ? name + "..." : name;
  }

  static std::string text_of(const CLI::Option& option) {
    std::string text = option.get_description();
    std::string fallback = option.get_default_str();
    std::erase_if(fallback, [](char c) { return c == '[' || c == ']' || c == '"'; });
    if (!fallback.empty()) text += fmt::format(" (default {})", fallback);
    return option.get_required() && option.nonpositional() ? text + " (required)" : text;
  }
};

std::vector<std::string> names_of_commands(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands(nullptr)) names.push_back(command->get_name());
  return names;
}

std::vector<std::string> names_of_options(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

}  // namespace

std::shared_ptr<CLI::FormatterBase> help_formatter() { return std::make_shared<HelpFormatter>(); }

std::optional<std::string> unknown_word(const CLI::App& app, std::span<const char* const> words) {
  const CLI::App* at = &app;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string_view word = words[i];
    if (word == "--") return std::nullopt;
    if (word.starts_with('-') && word.size() > 1) {
      const std::string name{word.substr(0, word.find('='))};
      const CLI::Option* const option = at->get_option_no_throw(name);
      if (option == nullptr) return fmt::format("there is no option {}{}", name, suggestion(name, names_of_options(*at)));
      if (option->get_type_size() != 0 && name == word) ++i;  // skips the option's value
    } else if (!names_of_commands(*at).empty()) {
      const auto commands = at->get_subcommands(nullptr);
      const auto command = std::ranges::find(commands, word, &CLI::App::get_name);
      if (command == commands.end()) {
        return fmt::format("there is no command {}{}", word, suggestion(word, names_of_commands(*at)));
      }
      at = *command;
    }
  }
  const std::vector<std::string> commands = names_of_commands(*at);
  if (commands.empty()) return std::nullopt;
  return fmt::format("a command is missing: {}", fmt::join(commands, ", "));
}

}  // namespace terrace::tools
