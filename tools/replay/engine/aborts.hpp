#pragma once

#include "base/random.hpp"

#include <cstdint>
#include <optional>

namespace terrace::tools {

/// Where in its life a request is given up by whoever sent it.
struct AbortPoint {
  /// Before it is admitted; else once it is, and so many of its tokens are there. 0: at once, its blocks may still be coming.
  bool waiting = false;
  std::uint64_t tokens = 0;

  friend bool operator==(const AbortPoint&, const AbortPoint&) = default;
};

/// Draws which requests are aborted, and where: a quarter of them each while they wait, as soon as they are admitted, while
/// their prompt is computed, and while they write. Whoever is through before its point is not aborted. The same for the same
/// seed and the same requests. Threads: one.
class Aborts {
 public:
  /// `rate`: the share of requests, 0 to 1.
  Aborts(std::uint64_t seed, double rate) : random_{seed}, rate_{rate} {}

  [[nodiscard]] std::optional<AbortPoint> draw(std::uint64_t prompt_tokens, std::uint64_t output_tokens);

 private:
  Random random_;
  double rate_;
};

}  // namespace terrace::tools
