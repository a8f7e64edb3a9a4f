#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace terrace::events {

/// Returns the address of a data-parallel rank: the rank is added to a port that is not 0, and appended to a path ("_dp1").
/// Throws std::invalid_argument, with the name of the option, if the address is neither "tcp://ADDRESS:PORT" nor "ipc://PATH", or
/// the sum is no port.
[[nodiscard]] std::string endpoint_of_rank(std::string_view option, const std::string& endpoint, std::uint32_t rank);

}  // namespace terrace::events
