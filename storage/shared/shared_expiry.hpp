#pragma once

#include "terrace/clock.hpp"

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace terrace {

/// How long an engine keeps values that are not used. Each use renews the time. Deeper blocks have a shorter time, so an engine
/// that evicts the values that expire first evicts the end of a prefix before its beginning.
struct SharedExpiry {
  Duration after = std::chrono::hours{24};              ///< expiry of a block at depth 0; 0: it never expires
  Duration per_depth = std::chrono::milliseconds{200};  ///< this much less for each block before it, down to half of `after`

  [[nodiscard]] bool expires() const { return after > Duration::zero(); }
  [[nodiscard]] Duration of(std::uint32_t depth) const {
    // Check that the depth is small enough before it is multiplied, to avoid an overflow.
    const bool is_deep = per_depth > Duration::zero() && depth > after / 2 / per_depth;
    return is_deep ? after / 2 : after - depth * per_depth;
  }
};

}  // namespace terrace
