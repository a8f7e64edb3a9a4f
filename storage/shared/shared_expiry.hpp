#pragma once

#include "terrace/clock.hpp"

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace terrace {

/// How long an engine keeps values that nobody uses. Each use renews the time. The deeper a block, the shorter its time: an
/// engine that evicts what expires first takes the end of a prefix before its beginning.
struct SharedExpiry {
  Duration after = std::chrono::hours{24};              ///< of a block without blocks before it; 0: it never expires
  Duration per_depth = std::chrono::milliseconds{200};  ///< this much less for each block before it, down to half of `after`

  [[nodiscard]] bool expires() const { return after > Duration::zero(); }
  [[nodiscard]] Duration of(std::uint32_t depth) const {
    // A depth is not multiplied before it is known to be small enough.
    const bool is_deep = per_depth > Duration::zero() && depth > after / 2 / per_depth;
    return is_deep ? after / 2 : after - depth * per_depth;
  }
};

}  // namespace terrace
