#pragma once

#include <string_view>

namespace terrace::test {

/// Reads the text as a configuration. Ends the process if the answer is wrong: an exception that is no ConfigError, a message of
/// several lines, or values that, set again as flags, give other values.
void run_config_text(std::string_view text);

}  // namespace terrace::test
