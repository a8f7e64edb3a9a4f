#pragma once

#include <string>

namespace CLI {
class App;
}

namespace terrace::tools {

/// A script for bash that completes commands, options, values of options with a fixed list, and names of files and directories.
/// All of them are those of `app`, the parser of the command line. The script needs bash 4 and no other package.
[[nodiscard]] std::string bash_completion(CLI::App& app);

}  // namespace terrace::tools
