#pragma once

#include "base/result.hpp"

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

namespace terrace {

/// A size in bytes, never a count of blocks.
enum class Bytes : std::uint64_t {};

[[nodiscard]] constexpr std::uint64_t count(Bytes b) { return static_cast<std::uint64_t>(b); }
[[nodiscard]] constexpr Bytes operator+(Bytes a, Bytes b) { return Bytes{count(a) + count(b)}; }
[[nodiscard]] constexpr Bytes operator-(Bytes a, Bytes b) { return Bytes{count(a) - count(b)}; }
[[nodiscard]] constexpr Bytes operator*(Bytes a, std::uint64_t n) { return Bytes{count(a) * n}; }
[[nodiscard]] constexpr std::uint64_t operator/(Bytes a, Bytes b) { return count(a) / count(b); }
constexpr Bytes& operator+=(Bytes& a, Bytes b) { return a = a + b; }

inline constexpr Bytes KiB{std::uint64_t{1} << 10};
inline constexpr Bytes MiB{std::uint64_t{1} << 20};
inline constexpr Bytes GiB{std::uint64_t{1} << 30};
inline constexpr Bytes TiB{std::uint64_t{1} << 40};

/// Reads `64GiB`, `1.5MiB`, `512B` or `4096` (plain bytes). All units are binary; `GB` is an error, because its meaning is
/// ambiguous. Fails: invalid_argument (not a number, unknown unit, not a whole number of bytes, over 2^64 - 1, or more than nine
/// digits after the point).
[[nodiscard]] Result<Bytes> parse_bytes(std::string_view text);

/// Returns the size in the largest unit that fits, exactly or rounded to at least three digits: `64GiB`, `1.5MiB`, `517B`.
[[nodiscard]] std::string to_string(Bytes size);

}  // namespace terrace
