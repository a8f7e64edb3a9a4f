#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>

namespace CLI {
class App;
class FormatterBase;
}  // namespace CLI

namespace terrace::tools {

/// Help for a screen of 80 columns, broken between words. A command with a flag for all help shows in its short help only the
/// options without a group of their own. Footers are shown as they are.
[[nodiscard]] std::shared_ptr<CLI::FormatterBase> help_formatter();

/// What is wrong with the first word that names no command and no option of `app`, with the nearest one that there is; or that a
/// command is missing. Nothing where the words are not at fault. `words` are what follows the program's name.
[[nodiscard]] std::optional<std::string> unknown_word(const CLI::App& app, std::span<const char* const> words);

}  // namespace terrace::tools
