#include "tools/program.hpp"

#include "base/check.hpp"
#include "tools/about/version.hpp"
#include "tools/help.hpp"
#include "tools/interrupted.hpp"
#include "tools/output.hpp"
#include "tools/usage_error.hpp"

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <exception>
#include <optional>
#include <span>
#include <string>

namespace terrace::tools {
namespace {

/// A broken invariant counts as a failed check. The process writes one line and ends at once.
void on_broken_check(const char* condition, const char* file, int line) {
  write_error(program_invocation_short_name, fmt::format("broken invariant: {} ({}:{})", condition, file, line));
  ::_exit(static_cast<int>(ExitStatus::check_failed));
}

/// CLI11's messages may have several lines.
std::string one_line(std::string text) {
  for (char& c : text) {
    if (c == '\n') c = ' ';
  }
  return text.substr(0, text.find_last_not_of(' ') + 1);
}

/// Parses and runs the command. `who` is the beginning of error lines.
ExitStatus run(CLI::App& app, int argc, char** argv, const std::string& who, const std::function<ExitStatus()>& chosen) {
  const auto refuse = [&](const std::string& what, ExitStatus status) {
    complain(who, what);
    return status;
  };
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
    return refuse(unknown ? *unknown : one_line(error.what()), ExitStatus::bad_input);
  } catch (const UsageError& error) {
    return refuse(error.what(), ExitStatus::bad_input);
  } catch (const Interrupted& error) {
    return refuse(error.what(), ExitStatus::interrupted);
  } catch (const std::exception& error) {
    return refuse(error.what(), ExitStatus::run_failed);
  }
}

}  // namespace

void prepare_program(CLI::App& app) {
  app.formatter(help_formatter());  // applies to all commands that are added later
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
