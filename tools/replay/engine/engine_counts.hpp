#pragma once

#include "tools/replay/engine/token_range.hpp"

#include <algorithm>
#include <cstdint>

namespace terrace::tools {

/// What serving the requests took beyond their prompts' blocks. Tokens and blocks of all requests, aborted ones included.
struct EngineCounts {
  std::uint64_t steps = 0;              ///< in which something was computed; none in loop mode
  std::uint64_t requests_in_steps = 0;  ///< requests that were part of a step, all steps together
  std::uint64_t prefilled = 0;          ///< prompt tokens computed, for the first time
  std::uint64_t decoded = 0;            ///< output tokens
  std::uint64_t recomputed = 0;         ///< of both: again, after a preemption
  std::uint64_t preemptions = 0;
  std::uint64_t hits_again = 0;     ///< blocks that preempted requests found when they came back
  std::uint64_t aborted = 0;        ///< requests
  std::uint64_t output_blocks = 0;  ///< full of output, and shared

  /// Tokens of a request that are computed, by where they stand: before the furthest that was, in its prompt, or behind that.
  void add(TokenRange tokens, std::uint64_t furthest, std::uint64_t prompt_tokens) {
    const std::uint64_t first_new = std::clamp(furthest, tokens.from, tokens.to);
    const std::uint64_t first_written = std::clamp(prompt_tokens, first_new, tokens.to);
    recomputed += first_new - tokens.from;
    prefilled += first_written - first_new;
    decoded += tokens.to - first_written;
  }

  /// Requests in a step, on average.
  [[nodiscard]] double running_mean() const {
    return steps == 0 ? 0 : static_cast<double>(requests_in_steps) / static_cast<double>(steps);
  }
};

}  // namespace terrace::tools
