#pragma once

#include <boost/json.hpp>

#include <cstddef>
#include <optional>
#include <string>

namespace terrace::tools {

/// The room for a screen.
struct ScreenSize {
  std::size_t columns = 80;
  std::size_t lines = 1000;
};

/// One screen of `terrace top` from answers of `/v1/status`; what has no room is left out. `before` is an earlier answer: rates
/// are those of the time between; without it they are those since the start. `seconds` is the time between the two.
///
/// Throws what Boost.JSON throws if the answer lacks something (understood()).
[[nodiscard]] std::string screen_of(const std::string& name, const boost::json::object& now,
                                    const std::optional<boost::json::object>& before, double seconds, ScreenSize room = {});

}  // namespace terrace::tools
