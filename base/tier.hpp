#pragma once

#include <array>
#include <cstddef>
#include <string_view>

namespace terrace {

/// The places where a copy of a block can be, fastest first.
enum class Tier : unsigned char { device, host, storage };

inline constexpr std::size_t tier_count = 3;
inline constexpr std::array<Tier, tier_count> all_tiers{Tier::device, Tier::host, Tier::storage};

[[nodiscard]] constexpr std::size_t index(Tier t) { return static_cast<std::size_t>(t); }

[[nodiscard]] constexpr std::string_view to_string(Tier t) {
  switch (t) {
    case Tier::device: return "device";
    case Tier::host: return "host";
    case Tier::storage: return "storage";
  }
  return "?";
}

}  // namespace terrace
