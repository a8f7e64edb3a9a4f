#pragma once

#include <string>

namespace CLI {
class App;
}

namespace terrace::tools {

/// The manual page terrace(1) in the format of man(7). Commands, options and examples are those of `app`, the parser of the
/// command line, so the page cannot differ from --help. The text depends on nothing else: two builds make the same page.
[[nodiscard]] std::string man_page(const CLI::App& app);

}  // namespace terrace::tools
