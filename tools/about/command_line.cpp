#include "tools/about/command_line.hpp"

#include "tools/arguments.hpp"
#include "tools/output.hpp"

#include <CLI/CLI.hpp>
#include <boost/json.hpp>

#include <string_view>

namespace terrace::tools {
namespace {

using AboutPart = AboutArguments::Part;

constexpr const char* version_examples = R"(
Examples:
  terrace version
      version, compiler, what is compiled in (CUDA, io_uring, Prometheus), and
      the versions of the C interface and of the files of a store
  terrace version --json)";

constexpr const char* manual_examples = R"(
Examples:
  terrace manual | man -l -
  terrace manual > /usr/local/share/man/man1/terrace.1)";

constexpr const char* completion_examples = R"(
Examples:
  source <(terrace completion bash)
      for this shell
  terrace completion bash > ~/.local/share/bash-completion/completions/terrace
      for all shells of this user, if bash-completion is installed)";

CLI::App* add_part(CLI::App& app, AboutArguments& arguments, AboutPart part, const char* name, const char* what,
                   const char* examples) {
  CLI::App* const command = app.add_subcommand(name, what);
  command->callback([&arguments, part] { arguments.part = part; });
  command->footer(examples);
  return command;
}

}  // namespace

void add_about_commands(CLI::App& app, AboutArguments& arguments) {
  CLI::App* const version =
      add_part(app, arguments, AboutPart::version, "version", "Prints the version, and what is compiled in", version_examples);
  version->add_flag("--json", arguments.json, "One JSON object on standard output");
  add_part(app, arguments, AboutPart::manual, "manual", "Prints the manual page, in the format of man", manual_examples);
  CLI::App* const completion = add_part(app, arguments, AboutPart::completion, "completion",
                                        "Prints a script that completes commands and options in a shell", completion_examples);
  add_value(*completion, "shell", arguments.shell, one_of(std::string_view{"bash"}), "NAME", "The shell: bash")->required();
}

void run_about(CLI::App& app, const AboutArguments& arguments) {
  switch (*arguments.part) {
    case AboutPart::version:
      if (arguments.json) return print_json(build_facts());
      return write_output(build_text());
    case AboutPart::manual: return write_output(man_page(app));
    case AboutPart::completion: return write_output(bash_completion(app));
  }
}

}  // namespace terrace::tools
