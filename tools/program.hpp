#pragma once

#include "tools/cli.hpp"
#include "tools/exit_status.hpp"

#include <functional>
#include <string>

namespace terrace::tools {

/// Gives the command line of a program what all programs have: the format of the help, `--version`, and that a command is needed.
/// Call it before the commands are added.
void prepare_program(CLI::App& app);

/// The body of main(): parses the command line, calls `chosen`, which runs the command that was given, and returns the exit
/// status of the process. An exception or a broken invariant ends the program with one line on standard error, which begins with
/// the names of the program and the command.
[[nodiscard]] int run_program(CLI::App& app, int argc, char** argv, const std::function<ExitStatus()>& chosen);

// The help and the manual page show these texts of a command and of its options.

/// The words that follow the name of the command: " [OPTIONS] [TRACE]".
[[nodiscard]] std::string arguments_text(const CLI::App& command);
/// The names of an option and the type of its value: "--inclusion, --relation NAME". A positional argument: "TRACE".
[[nodiscard]] std::string name_text(const CLI::Option& option);
/// The description of an option, with its default.
[[nodiscard]] std::string description_text(const CLI::Option& option);

}  // namespace terrace::tools
