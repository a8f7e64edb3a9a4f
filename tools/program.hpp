#pragma once

#include "tools/exit_status.hpp"

#include <functional>

namespace CLI {
class App;
}

namespace terrace::tools {

/// Gives the command line of a program what all programs have: the format of the help, `--version`, and that a command is needed.
/// Call it before the commands are added.
void prepare_program(CLI::App& app);

/// The body of main(): parses the command line, calls `chosen`, which runs the command that was given, and returns the exit
/// status of the process. An exception or a broken invariant ends the program with one line on standard error, which begins with
/// the names of the program and the command.
[[nodiscard]] int run_program(CLI::App& app, int argc, char** argv, const std::function<ExitStatus()>& chosen);

}  // namespace terrace::tools
