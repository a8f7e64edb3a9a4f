#pragma once

#include "tools/replay/options/options.hpp"

namespace CLI {
class App;
}

namespace terrace::tools {

/// Adds the options of `terrace replay` and their help to `command`. Parsing fills `into`, which must outlive the command.
void add_replay_options(CLI::App& command, ReplayArguments& into);

}  // namespace terrace::tools
