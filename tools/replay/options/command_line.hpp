#pragma once

#include "tools/replay/options/options.hpp"

namespace CLI {
class App;
}

namespace terrace::tools {

/// Adds the options of `terrace replay` and their help to `command`. Parsing converts and checks each value by
/// itself, and stores it in `into`, which must outlive the command. Parsing throws UsageError for a wrong value, and
/// CLI::ParseError for everything else.
void add_replay_options(CLI::App& command, ReplayArguments& into);

}  // namespace terrace::tools
