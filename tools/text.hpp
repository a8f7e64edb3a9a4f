#pragma once

#include <boost/json/fwd.hpp>

#include <cstddef>
#include <string>
#include <string_view>

namespace terrace::tools {

// Names come from the command line, from traces and from stores, and may contain any bytes except zero. These functions make them
// safe to show.

/// Returns `text` for a terminal. Control characters (of ASCII and of Unicode), including line ends, and bytes that are not UTF-8
/// become \xNN. Other text is unchanged, so a second call does no harm.
[[nodiscard]] std::string printable(std::string_view text);

/// Returns `value` as JSON text that every parser accepts: bytes that are not UTF-8 become U+FFFD. The text has no control
/// characters, so it is safe on a terminal too.
[[nodiscard]] std::string json_text(const boost::json::value& value);

/// Breaks `text` between words for a screen of 80 columns. The first line begins at column `at`, the others at column `indent`.
/// The last line has no line end.
[[nodiscard]] std::string wrapped(std::string_view text, std::size_t at, std::size_t indent);

}  // namespace terrace::tools
