#pragma once

#include <algorithm>
#include <cstdint>

namespace terrace::tools {

/// The tokens [from, to) of a sequence.
struct TokenRange {
  std::uint64_t from = 0;
  std::uint64_t to = 0;

  [[nodiscard]] std::uint64_t size() const { return to - from; }
};

/// How many tokens of a sequence are computed. The first output token results from the last prompt token. The last output token
/// is never an input, so its own KV is not computed.
[[nodiscard]] constexpr std::uint64_t tokens_computed(std::uint64_t prompt, std::uint64_t output) {
  return prompt + std::max<std::uint64_t>(output, 1) - 1;
}

/// How many blocks to acquire for a request that has `known` tokens now and will have computed `end`: one block more than they
/// fill, so that it can continue. This is better than a later extend: acquire() copies evicted blocks to the host, and extend()
/// can only drop them.
[[nodiscard]] constexpr std::uint32_t blocks_to_acquire(std::uint64_t known, std::uint64_t end, std::uint32_t block_tokens) {
  const std::uint64_t tokens = std::min(end, known + block_tokens);
  return static_cast<std::uint32_t>((tokens + block_tokens - 1) / block_tokens);
}

/// Counts of the engine's work, in addition to the counts of prompt blocks. All requests count, including aborted ones.
struct EngineCounts {
  std::uint64_t steps = 0;              ///< steps in which something was computed; 0 in loop mode
  std::uint64_t requests_in_steps = 0;  ///< the number of requests in each step, summed over all steps
  std::uint64_t prefilled = 0;          ///< prompt tokens computed for the first time
  std::uint64_t decoded = 0;            ///< output tokens computed for the first time
  std::uint64_t recomputed = 0;         ///< prompt and output tokens computed again after a preemption
  std::uint64_t preemptions = 0;
  std::uint64_t hits_again = 0;     ///< blocks that preempted requests found in the cache when they were admitted again
  std::uint64_t aborted = 0;        ///< aborted requests
  std::uint64_t output_blocks = 0;  ///< full blocks of output that were shared
  std::uint64_t layer_events = 0;   ///< events that said how many layers of a request's hits have arrived

  /// Counts computed tokens of a request. A token before `furthest` is recomputed. Another one is prefilled if it belongs to the
  /// prompt, and decoded if not.
  void add(TokenRange tokens, std::uint64_t furthest, std::uint64_t prompt_tokens) {
    const std::uint64_t first_new = std::clamp(furthest, tokens.from, tokens.to);
    const std::uint64_t first_written = std::clamp(prompt_tokens, first_new, tokens.to);
    recomputed += first_new - tokens.from;
    prefilled += first_written - first_new;
    decoded += tokens.to - first_written;
  }

  /// The mean number of requests in a step.
  [[nodiscard]] double running_mean() const {
    return steps == 0 ? 0 : static_cast<double>(requests_in_steps) / static_cast<double>(steps);
  }
};

}  // namespace terrace::tools
