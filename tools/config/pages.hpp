#pragma once

#include "terrace/config.hpp"

#include <string>

namespace terrace::tools {

/// A TOML file in which every option is a comment with its default, so that the defaults apply until a line is uncommented. Lines
/// that begin with '#' and no space are options; all other comments are help.
[[nodiscard]] std::string commented_config(const Config& config);

/// The reference page, docs/configuration.md, in Markdown.
[[nodiscard]] std::string reference_page(const Config& config);

}  // namespace terrace::tools
