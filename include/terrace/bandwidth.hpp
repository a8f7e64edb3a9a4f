#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace terrace {

/// Bytes per second, so that a bandwidth is never mixed up with a size. 0 stands for "no limit" where an option says so.
enum class BytesPerSecond : std::uint64_t {};

[[nodiscard]] constexpr std::uint64_t count(BytesPerSecond b) { return static_cast<std::uint64_t>(b); }

/// Reads a size per second: `50MiB/s`, `1.5GiB/s`. The `/s` may be left out. Returns nothing if the text is no bandwidth.
[[nodiscard]] std::optional<BytesPerSecond> parse_bandwidth(std::string_view text);

/// Returns the exact bandwidth in the largest unit that divides it: `50MiB/s`.
[[nodiscard]] std::string to_string(BytesPerSecond bandwidth);

}  // namespace terrace
