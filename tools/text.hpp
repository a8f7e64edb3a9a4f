#pragma once

#include <boost/json/fwd.hpp>

#include <string>
#include <string_view>

namespace terrace::tools {

// Names come from the command line, from traces and from stores: any bytes but zero. These two make them safe to show.

/// `text` for a terminal: control characters (of ASCII and of Unicode) and bytes that are not UTF-8 become \xNN, line ends
/// included. Other text is unchanged, so that calling it twice does no harm.
[[nodiscard]] std::string printable(std::string_view text);

/// `value` as JSON text that every parser accepts: bytes that are not UTF-8 become U+FFFD. It has no control characters, so that
/// it is safe on a terminal too.
[[nodiscard]] std::string json_text(const boost::json::value& value);

}  // namespace terrace::tools
