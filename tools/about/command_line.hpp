#pragma once

#include <optional>
#include <string>

namespace CLI {
class App;
}

namespace terrace::tools {

/// The command line of the commands that tell of the program itself.
struct AboutArguments {
  enum class Part : unsigned char { version, manual, completion };

  std::optional<Part> part;  ///< none: another command was given
  bool json = false;         ///< version
  std::string shell;         ///< completion
};

/// Adds `version`, `manual` and `completion`. `arguments` must outlive the parsing.
void add_about_commands(CLI::App& app, AboutArguments& arguments);

/// Runs the part that was given. `app` is the parser of the whole command line.
void run_about(CLI::App& app, const AboutArguments& arguments);

}  // namespace terrace::tools
