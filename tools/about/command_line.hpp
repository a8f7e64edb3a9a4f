#pragma once

#include "tools/cli.hpp"

#include <boost/json/fwd.hpp>

#include <string>

namespace terrace::tools {

/// The command line of the commands that tell of the program itself.
struct AboutArguments {
  /// Runs the command that was given. `app` is the parser of the whole command line.
  void (*run)(CLI::App& app, const AboutArguments&) = nullptr;
  bool json = false;  ///< version
  std::string shell;  ///< completion
};

/// Adds `version`, `manual` and `completion`. `arguments` must outlive the parsing.
void add_about_commands(CLI::App& app, AboutArguments& arguments);

/// A script for bash that completes commands, options, values of options with a fixed list, and names of files and directories.
/// All of them are those of `app`, the parser of the command line. The script needs bash 4 and no other package.
[[nodiscard]] std::string bash_completion(CLI::App& app);

/// The manual page terrace(1) in the format of man(7). Commands, options and examples are those of `app`, the parser of the
/// command line, so the page cannot differ from --help. The text depends on nothing else: two builds make the same page.
[[nodiscard]] std::string man_page(const CLI::App& app);

/// "terrace 0.1.0"
[[nodiscard]] std::string program_version();

/// Facts about this build as JSON: version, compiler, what is compiled in, and the versions of the interfaces and formats.
[[nodiscard]] boost::json::object build_facts();
/// The same for people, one fact a line.
[[nodiscard]] std::string build_text();

}  // namespace terrace::tools
