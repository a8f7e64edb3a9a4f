#include "tools/replay/engine/aborts.hpp"

#include <algorithm>

namespace terrace::tools {

std::optional<AbortPoint> Aborts::draw(std::uint64_t prompt_tokens, std::uint64_t output_tokens) {
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

}  // namespace terrace::tools
