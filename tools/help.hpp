#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>

namespace CLI {
class App;
class FormatterBase;
class Option;
}  // namespace CLI

namespace terrace::tools {

/// Formats help for a screen of 80 columns, broken between words. If a command has a flag for all help, its short help shows only
/// the options without a group of their own. Footers are shown unchanged.
[[nodiscard]] std::shared_ptr<CLI::FormatterBase> help_formatter();

// The help and the manual page show these texts of a command and of its options.

/// The words that follow the name of the command: " [OPTIONS] [TRACE]".
[[nodiscard]] std::string arguments_text(const CLI::App& command);
/// The names of an option and the type of its value: "--inclusion, --relation NAME". A positional argument: "TRACE".
[[nodiscard]] std::string name_text(const CLI::Option& option);
/// The description of an option, with its default.
[[nodiscard]] std::string description_text(const CLI::Option& option);

/// Explains what is wrong with the command line: the first word that is no command and no option of `app`, with the most similar
/// one that exists, or a missing command. Returns nothing if no word is wrong. `words` are the words after the program's name.
[[nodiscard]] std::optional<std::string> unknown_word(const CLI::App& app, std::span<const char* const> words);

}  // namespace terrace::tools
