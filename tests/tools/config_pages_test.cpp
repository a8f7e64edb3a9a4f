// The texts that are made from the table of options.
#include "terrace/options.hpp"
#include "tests/paths.hpp"
#include "tools/config/flags.hpp"
#include "tools/config/pages.hpp"

#include <gtest/gtest.h>

#include <cctype>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>
#include <string>

namespace terrace::tools {
namespace {

/// The commented file with every option uncommented.
std::string uncommented(const std::string& text) {
  std::istringstream lines{text};
  std::string out;
  for (std::string line; std::getline(lines, line);) {
    const bool is_option = line.size() > 1 && line[0] == '#' && line[1] != ' ';
    out += (is_option ? line.substr(1) : line) + '\n';
  }
  return out;
}

TEST(ConfigPages, commented_file_changes_nothing) {
  Config config;
  config.read_text(commented_config(Config{}), "t.toml");
  for (const ConfigValue& value : config.values()) EXPECT_EQ(value.origin.level, ConfigLevel::by_default) << value.name;
}

TEST(ConfigPages, commented_file_has_every_default) {
  const Config defaults;
  Config config;
  config.read_text(uncommented(commented_config(defaults)), "t.toml");
  EXPECT_NO_THROW((void)config.options());
  std::set<std::string> expected;
  for (const ConfigOption& option : config.table()) {
    if (!option.default_value.empty()) expected.insert(option.table.empty() ? option.key : option.table + "." + option.key);
  }
  for (const std::string& name : expected) {
    EXPECT_EQ(config.origin(name).level, ConfigLevel::file) << name;
    if (!name.starts_with("group.")) {
      EXPECT_EQ(config.value(name), defaults.value(name)) << name;
    }
  }
}

TEST(ConfigPages, examples_are_valid) {
  for (const ConfigOption& option : Config{}.table()) {
    if (!option.default_value.empty()) continue;
    const std::string header = option.table.empty() ? ""
                               : option.repeated    ? "[[" + option.table + "]]\n"
                                                    : "[" + option.table + "]\n";
    Config config;
    EXPECT_NO_THROW(config.read_text(header + option.key + " = " + option.example, "t.toml")) << option.key;
  }
}

TEST(ConfigPages, say_that_the_variable_of_an_option_is_its_flag_in_capitals) {
  for (const ConfigOption& option : Config{}.table()) {
    std::string variable = option.flag.empty() ? "" : "TERRACE_" + option.flag.substr(2);
    for (char& c : variable) c = c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    EXPECT_EQ(option.environment, variable) << option.key;
  }
}

TEST(ConfigPages, docs_configuration_md_is_the_page_that_terrace_config_reference_prints) {
  std::ifstream file{std::string{test::paths.source} + "/docs/configuration.md"};
  const std::string page(std::istreambuf_iterator<char>{file}, {});
  EXPECT_TRUE(page == reference_page(Config{})) << "run: terrace config reference > docs/configuration.md";
}

}  // namespace
}  // namespace terrace::tools
