#pragma once

#include "base/random.hpp"

#include <algorithm>
#include <cstdint>
#include <optional>

namespace terrace::tools {

/// The point in its life at which a client aborts a request.
struct AbortPoint {
  /// True: before the request is admitted. False: after that, when `tokens` of its tokens are computed. With 0 tokens it is
  /// aborted as soon as it is admitted, and its blocks may still be loading.
  bool waiting = false;
  std::uint64_t tokens = 0;

  friend bool operator==(const AbortPoint&, const AbortPoint&) = default;
};

/// Draws which requests are aborted, and when: with equal chances while they wait, as soon as they are admitted, while their
/// prompt is computed, or while their output is written. A request that ends before its abort point is not aborted. The same seed
/// and the same requests give the same result. Threads: one.
class Aborts {
 public:
  /// `rate` is the share of requests that are aborted, from 0 to 1.
  Aborts(std::uint64_t seed, double rate) : random_{seed}, rate_{rate} {}

  [[nodiscard]] std::optional<AbortPoint> draw(std::uint64_t prompt_tokens, std::uint64_t output_tokens) {
    if (!random_.chance(rate_)) return std::nullopt;
    constexpr std::uint64_t one = 1;
    AbortPoint point;
    switch (random_.below(4)) {
      case 0: point.waiting = true; break;
      case 1: break;
      case 2: point.tokens = random_.between(1, std::max(prompt_tokens, one)); break;
      case 3: point.tokens = prompt_tokens + random_.between(1, std::max(output_tokens, one)); break;
    }
    return point;
  }

 private:
  Random random_;
  double rate_;
};

}  // namespace terrace::tools
