#pragma once

#include <algorithm>
#include <cstdint>

namespace terrace::tools {

/// Tokens [from, to) of a sequence.
struct TokenRange {
  std::uint64_t from = 0;
  std::uint64_t to = 0;

  [[nodiscard]] std::uint64_t size() const { return to - from; }
};

/// How many tokens of a sequence are computed. The first of the output comes with the last of the prompt, and the last is read by
/// nobody: its own KV is not computed.
[[nodiscard]] constexpr std::uint64_t tokens_computed(std::uint64_t prompt, std::uint64_t output) {
  return prompt + std::max<std::uint64_t>(output, 1) - 1;
}

/// Blocks to acquire for a request that has `known` tokens to begin with, of `end` that it will have computed: one more than they
/// fill, so that it can go on. Acquiring has what is given up for it copied down; extending can only drop it.
[[nodiscard]] constexpr std::uint32_t blocks_to_acquire(std::uint64_t known, std::uint64_t end, std::uint32_t block_tokens) {
  const std::uint64_t tokens = std::min(end, known + block_tokens);
  return static_cast<std::uint32_t>((tokens + block_tokens - 1) / block_tokens);
}

}  // namespace terrace::tools
