#include "tools/config/command.hpp"

#include "base/whole_file.hpp"
#include "terrace/options.hpp"
#include "tools/config/flags.hpp"
#include "tools/config/pages.hpp"
#include "tools/output.hpp"
#include "tools/usage_error.hpp"

#include <CLI/CLI.hpp>
#include <boost/json.hpp>
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <stdexcept>
#include <string>
#include <system_error>

namespace terrace::tools {
namespace {

constexpr const char* exit_statuses = R"(
Exit status: 0 done; 2 bad arguments, or a wrong configuration; 3 failed while
running. Each status but 0 comes with one line on standard error.
)";

constexpr const char* show_help = R"(
Reads the file of --config, the TERRACE_ variables and the flags, checks all
of them together, and prints each value with the place that it comes from.

Examples:
  terrace config show --config terrace.toml
  TERRACE_HOST_CAPACITY=64GiB terrace config show --policy lru --json)";

constexpr const char* check_help = R"(
Checks one file, without flags and variables, and touches nothing else: no
device, no directory.

Example:
  terrace config check terrace.toml)";

constexpr const char* init_help = R"(
Writes a file in which every option is a comment, with its default and its
help. - is standard output.

Example:
  terrace config init terrace.toml)";

CLI::App* add_part(CLI::App& command, ConfigArguments& arguments, void (*run)(ConfigArguments&), const char* name,
                   const char* what, std::string footer) {
  CLI::App* const added = command.add_subcommand(name, what);
  added->footer(std::move(footer));
  added->callback([&arguments, run] { arguments.run = run; });
  return added;
}

void show(ConfigArguments& arguments) {
  Config& config = arguments.config;
  read_config(config, arguments.file);
  (void)options_of(config);
  const std::vector<ConfigValue> values = config.values();
  if (arguments.json) {
    boost::json::object all;
    for (const ConfigValue& value : values) {
      boost::json::value shown = value.value.empty() ? boost::json::value(nullptr) : boost::json::value(value.value);
      all[value.name] = boost::json::object{
          {"value", std::move(shown)}, {"level", to_string(value.origin.level)}, {"source", value.origin.where}};
    }
    boost::json::array ignored;
    for (const std::string& name : config.ignored_variables()) ignored.emplace_back(name);
    print_json({{"options", std::move(all)}, {"ignored_variables", std::move(ignored)}});
    return;
  }
  std::size_t name_columns = 0;
  std::size_t value_columns = 0;
  constexpr std::size_t value_columns_max = 24;
  for (const ConfigValue& value : values) {
    name_columns = std::max(name_columns, value.name.size());
    value_columns = std::max(value_columns, std::min(value.value.size(), value_columns_max));
  }
  for (const ConfigValue& value : values) {
    print("{}\n", fmt::format("{:<{}}  {:<{}}  {}", value.name, name_columns, value.value.empty() ? "-" : value.value,
                              value_columns, value.origin.where));
  }
  for (const std::string& name : config.ignored_variables()) print("{} is not an option of Terrace: ignored\n", name);
}

void check(ConfigArguments& arguments) {
  as_usage([&] {
    Config config;
    config.read_file(arguments.file);
    (void)config.options();
  });
  print("{}: correct\n", arguments.file.string());
}

[[noreturn]] void fail(const std::filesystem::path& file, int error) {
  throw std::runtime_error{fmt::format("{}: cannot be written: {}", file.string(), std::generic_category().message(error))};
}

/// Writes the whole text to a new file. Throws UsageError if the file exists.
void write_new(const std::filesystem::path& target, const std::filesystem::path& shown, std::string_view text) {
  const int fd = ::open(target.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (fd < 0 && errno == EEXIST) throw UsageError{fmt::format("{}: exists; --force replaces it", shown.string())};
  if (fd < 0) fail(shown, errno);
  int error = write_whole(fd, text) ? 0 : errno;
  if (::close(fd) != 0 && error == 0) error = errno;
  if (error == 0) return;
  ::unlink(target.c_str());
  fail(shown, error);
}

void init(ConfigArguments& arguments) {
  const std::string text = commented_config(Config{});
  const std::filesystem::path& file = arguments.file;
  if (file == "-") return write_output(text);
  if (!arguments.force) return write_new(file, file, text);
  if (is_no_ordinary_file(file)) throw UsageError{fmt::format("{}: is no ordinary file", file.string())};
  // The old file stays until the new one is complete.
  const std::filesystem::path beside = file.string() + fmt::format(".{}.new", ::getpid());
  write_new(beside, file, text);
  if (::rename(beside.c_str(), file.c_str()) == 0) return;
  const int error = errno;
  ::unlink(beside.c_str());
  fail(file, error);
}

void reference(ConfigArguments& /*arguments*/) { write_output(reference_page(Config{})); }

}  // namespace

void add_config_commands(CLI::App& command, ConfigArguments& arguments) {
  command.require_subcommand(1);
  command.footer(std::string{exit_statuses} + "\n`terrace config COMMAND --help` has examples.");
  CLI::App* const shown =
      add_part(command, arguments, show, "show", "Shows each value in effect, and where it comes from", show_help);
  shown->set_help_all_flag("--help-all", "Print all options, and exit");
  shown->add_flag("--json", arguments.json, "One JSON object on standard output");
  add_config_flags(*shown, arguments.config, arguments.file);
  CLI::App* const checked = add_part(command, arguments, check, "check", "Checks a file", check_help);
  checked->add_option("file", arguments.file, "The file to check")->type_name("FILE")->required();
  CLI::App* const made = add_part(command, arguments, init, "init", "Writes a file with all options, as comments", init_help);
  made->add_option("file", arguments.file, "The file to write")->type_name("FILE")->required();
  made->add_flag("--force", arguments.force, "Replace the file if it exists");
  add_part(command, arguments, reference, "reference", "Prints the reference page, in Markdown",
           "\nExample:\n  terrace config reference > docs/configuration.md");
}

}  // namespace terrace::tools
