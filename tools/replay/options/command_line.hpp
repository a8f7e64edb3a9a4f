#pragma once

#include "tools/replay/options/options.hpp"

namespace CLI {
class App;
}

namespace terrace::tools {

/// Teaches `command` the options of `terrace replay`, with their help; parsing fills `into`, which outlives the command.
void add_replay_options(CLI::App& command, ReplayArguments& into);

}  // namespace terrace::tools
