#include "tests/fuzz/fuzzed.hpp"

#include "base/check.hpp"
#include "terrace/config.hpp"
#include "terrace/options.hpp"

#include <string>

namespace terrace::test {
namespace {

bool is_one_line(std::string_view text) { return !text.empty() && text.find('\n') == std::string_view::npos; }

}  // namespace

void run_config_text(std::string_view text) {
  Config config;
  try {
    config.read_text(text, "t.toml");
    (void)config.options();
  } catch (const ConfigError& error) {
    TERRACE_CHECK(is_one_line(error.what()));
    return;
  }
  // Values that are shown can be given as flags, and mean the same. Those of arrays of tables are checked if there is one pool.
  Config again;
  for (const ConfigOption& option : config.table()) {
    if (option.flag.empty() || option.repeated) continue;
    const std::string name = option.table.empty() ? option.key : option.table + "." + option.key;
    const std::string value = config.value(name);
    if (value.empty() || option.type == "DIR") continue;
    again.set(option.flag, value);
    TERRACE_CHECK(again.value(name) == value);
  }
}

}  // namespace terrace::test
