#include "terrace/types.hpp"

#include <boost/algorithm/hex.hpp>
#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>
#include <iterator>
#include <limits>

namespace terrace {
namespace {

struct Unit {
  std::string_view name;
  unsigned shift;
};
constexpr std::array<Unit, 5> units{{{"B", 0}, {"KiB", 10}, {"MiB", 20}, {"GiB", 30}, {"TiB", 40}}};

}  // namespace

Result<Bytes> parse_bytes(std::string_view text) {
  std::uint64_t whole = 0;
  const char* const end = text.data() + text.size();
  auto [rest, error] = std::from_chars(text.data(), end, whole);
  if (error != std::errc{}) return Errc::invalid_argument;

  // A fraction is read as digits / 10^n, so that 1.5KiB is exact and 0.1B is refused.
  std::uint64_t fraction = 0;
  std::uint64_t scale = 1;
  if (rest != end && *rest == '.') {
    const char* const digits = rest + 1;
    auto [after, fraction_error] = std::from_chars(digits, end, fraction);
    if (fraction_error != std::errc{} || after - digits > 9) return Errc::invalid_argument;
    for (auto n = after - digits; n > 0; --n) scale *= 10;
    rest = after;
  }

  const std::string_view unit_name = rest == end ? "B" : std::string_view{rest, static_cast<std::size_t>(end - rest)};
  for (const Unit& unit : units) {
    if (unit.name != unit_name) continue;
    const unsigned __int128 part = static_cast<unsigned __int128>(fraction) << unit.shift;
    if (part % scale != 0) return Errc::invalid_argument;
    const unsigned __int128 total = (static_cast<unsigned __int128>(whole) << unit.shift) + part / scale;
    if (total > std::numeric_limits<std::uint64_t>::max()) return Errc::invalid_argument;
    return Bytes{static_cast<std::uint64_t>(total)};
  }
  return Errc::invalid_argument;
}

std::string to_string(Bytes size) {
  const std::uint64_t n = count(size);
  for (auto unit = units.rbegin(); unit != units.rend(); ++unit) {
    const std::uint64_t one = std::uint64_t{1} << unit->shift;
    if (n < one && unit->shift != 0) continue;
    if (n % one == 0) return fmt::format("{}{}", n >> unit->shift, unit->name);
    const double value = static_cast<double>(n) / static_cast<double>(one);
    // Rounding could give 1024 of this unit. Return 1 of the next unit instead.
    if (value >= 1023.5 && unit != units.rbegin()) return fmt::format("1{}", std::prev(unit)->name);
    return value < 999.5 ? fmt::format("{:.3g}{}", value, unit->name) : fmt::format("{:.0f}{}", value, unit->name);
  }
  return "0B";
}

std::string to_hex(const BlockKey& key) {
  std::string text;
  const auto* bytes = reinterpret_cast<const unsigned char*>(key.bytes.data());
  boost::algorithm::hex_lower(bytes, bytes + key.bytes.size(), std::back_inserter(text));
  return text;
}

Result<BlockKey> parse_block_key(std::string_view hex) {
  BlockKey key;
  if (hex.size() != 2 * key.bytes.size()) return Errc::invalid_argument;
  try {
    boost::algorithm::unhex(hex, reinterpret_cast<unsigned char*>(key.bytes.data()));
  } catch (const boost::algorithm::hex_decode_error&) {
    return Errc::invalid_argument;
  }
  return key;
}

}  // namespace terrace
