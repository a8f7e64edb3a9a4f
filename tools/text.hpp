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
/// The same for JSON text of others, or lines of it.
[[nodiscard]] std::string safe_json(std::string_view text);

/// Breaks `text` between words for a screen of so many columns. The first line begins at column `at`, the others at column
/// `indent`. The last line has no line end.
[[nodiscard]] std::string wrapped(std::string_view text, std::size_t at, std::size_t indent, std::size_t columns = 80);

/// The text, or if it has more characters than there are columns, its begin and "...".
[[nodiscard]] std::string shortened(std::string_view text, std::size_t columns);

}  // namespace terrace::tools
