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

}  // namespace terrace::tools
