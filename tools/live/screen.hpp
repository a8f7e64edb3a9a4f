#pragma once

#include <boost/json.hpp>

#include <optional>
#include <string>

namespace terrace::tools {

/// One screen of `terrace top` from answers of `/v1/status`, at most 80 columns wide. `before` is an earlier answer: rates are
/// those of the time between; without it they are those since the start. `seconds` is the time between the two.
[[nodiscard]] std::string screen_of(const std::string& name, const boost::json::object& now,
                                    const std::optional<boost::json::object>& before, double seconds);

}  // namespace terrace::tools
