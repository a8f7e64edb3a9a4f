#pragma once

#include "base/random.hpp"

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

  [[nodiscard]] std::optional<AbortPoint> draw(std::uint64_t prompt_tokens, std::uint64_t output_tokens);

 private:
  Random random_;
  double rate_;
};

}  // namespace terrace::tools
