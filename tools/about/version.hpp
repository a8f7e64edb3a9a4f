#pragma once

#include <boost/json/fwd.hpp>

#include <string>

namespace terrace::tools {

/// "terrace 0.1.0"
[[nodiscard]] std::string program_version();

/// Facts about this build as JSON: version, compiler, what is compiled in, and the versions of the interfaces and formats.
[[nodiscard]] boost::json::object build_facts();
/// The same for people, one fact a line.
[[nodiscard]] std::string build_text();

}  // namespace terrace::tools
