#include "tools/program.hpp"

#include "base/check.hpp"
#include "runtime/config/table/nearest_name.hpp"
#include "tools/about/command_line.hpp"
#include "tools/interrupted.hpp"
#include "tools/output.hpp"
#include "tools/usage_error.hpp"

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace terrace::tools {
namespace {

constexpr std::size_t text_column = 30;  ///< the column where descriptions begin

std::string entry(const std::string& name, const std::string& text) {
  std::string out = "  " + name;
  if (out.size() + 2 > text_column) out += '\n' + std::string(text_column, ' ');
  out.resize(std::max(out.size(), text_column), ' ');
  return out + wrapped(text, text_column, text_column) + '\n';
}

std::string upper(std::string word) {
  for (char& c : word) {
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
  }
  return word;
}

/// Formats help for a screen of 80 columns, broken between words. If a command has a flag for all help, its short help shows only
/// the options without a group of their own. Footers are shown unchanged.
class HelpFormatter final : public CLI::Formatter {
 public:
  std::string make_help(const CLI::App* app, std::string name, CLI::AppFormatMode mode) const override {
    std::string out = wrapped(app->get_description(), 0, 0) + "\n\nUsage: " + wrapped(name + arguments_text(*app), 7, 11) + '\n';
    std::string positionals;
    for (const CLI::Option* option : app->get_options(&CLI::Option::get_positional)) {
      positionals += entry(name_text(*option), description_text(*option));
    }
    if (!positionals.empty()) out += '\n' + positionals;
    const bool is_short = app->get_help_all_ptr() != nullptr && mode == CLI::AppFormatMode::Normal;
    for (const std::string& group : app->get_groups()) {
      if (is_short && group != "Options") continue;
      std::string options;
      for (const CLI::Option* option : app->get_options([](const CLI::Option* each) { return each->nonpositional(); })) {
        if (option->get_group() == group) options += entry(name_text(*option), description_text(*option));
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

/// A broken invariant counts as a failed check. The process writes one line and ends at once.
void on_broken_check(const char* condition, const char* file, int line) {
  write_error(program_invocation_short_name, fmt::format("broken invariant: {} ({}:{})", condition, file, line));
  ::_exit(static_cast<int>(ExitStatus::check_failed));
}

/// CLI11's messages may have several lines.
std::string one_line(std::string text) {
  std::ranges::replace(text, '\n', ' ');
  return text.substr(0, text.find_last_not_of(' ') + 1);
}

/// Explains what is wrong with the command line: the first word that is no command and no option of `app`, with the most similar
/// one that exists, or a missing command. Returns nothing if no word is wrong. `words` are the words after the program's name.
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

/// Parses and runs the command. `who` is the beginning of error lines.
ExitStatus run(CLI::App& app, int argc, char** argv, const std::string& who, const std::function<ExitStatus()>& chosen) {
  try {
    app.parse(argc, argv);
    return chosen();
  } catch (const CLI::CallForHelp&) {
    write_output(app.help());
    return ExitStatus::done;
  } catch (const CLI::CallForAllHelp&) {
    write_output(app.help("", CLI::AppFormatMode::All));
    return ExitStatus::done;
  } catch (const CLI::CallForVersion& version) {
    print("{}\n", version.what());
    return ExitStatus::done;
  } catch (const CLI::ParseError& error) {
    const std::optional<std::string> unknown = unknown_word(app, std::span{argv, argv + argc}.subspan(1));
    return complain(who, unknown ? *unknown : one_line(error.what()), ExitStatus::bad_input);
  } catch (const UsageError& error) {
    return complain(who, error.what(), ExitStatus::bad_input);
  } catch (const Interrupted& error) {
    return complain(who, error.what(), ExitStatus::interrupted);
  } catch (const std::exception& error) {
    return complain(who, error.what(), ExitStatus::run_failed);
  }
}

}  // namespace

std::string arguments_text(const CLI::App& command) {
  if (!command.get_subcommands(nullptr).empty()) return " COMMAND";
  std::string out = " [OPTIONS]";
  for (const CLI::Option* option : command.get_options(&CLI::Option::get_positional)) {
    const std::string word = name_text(*option) + (option->get_expected_max() > 1 ? "..." : "");
    out += option->get_required() ? " " + word : fmt::format(" [{}]", word);
  }
  return out;
}

std::string name_text(const CLI::Option& option) {
  if (!option.nonpositional()) return upper(option.get_name(true));
  std::string name = option.get_name(false, true);
  if (const std::size_t comma = name.find(','); comma != std::string::npos) name.insert(comma + 1, " ");
  if (option.get_type_size() != 0) name += " " + option.get_type_name();
  return option.get_expected_max() > 1 ? name + "..." : name;
}

std::string description_text(const CLI::Option& option) {
  std::string text = option.get_description();
  std::string fallback = option.get_default_str();
  std::erase_if(fallback, [](char c) { return c == '[' || c == ']' || c == '"'; });
  if (!fallback.empty()) text += fmt::format(" (default {})", fallback);
  return option.get_required() && option.nonpositional() ? text + " (required)" : text;
}

void prepare_program(CLI::App& app) {
  app.formatter(std::make_shared<HelpFormatter>());  // applies to all commands that are added later
  app.set_version_flag("--version", program_version(), "Print the version, and exit");
  app.require_subcommand(1);
  app.footer("\n`" + app.get_name() + " COMMAND --help` has examples.");
  app.get_help_ptr()->description("Print this help, and exit");
}

int run_program(CLI::App& app, int argc, char** argv, const std::function<ExitStatus()>& chosen) {
  prepare_output();
  set_check_handler(on_broken_check);
  std::string who = app.get_name();
  const std::string command = argc > 1 ? argv[1] : "";
  const auto commands = app.get_subcommands(nullptr);
  if (std::ranges::find(commands, command, &CLI::App::get_name) != commands.end()) who += " " + command;
  const ExitStatus status = run(app, argc, argv, who, chosen);
  return end_output(who, status);
}

}  // namespace terrace::tools
