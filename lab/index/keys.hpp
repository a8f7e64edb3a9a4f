#pragma once

#include "lab/rows.hpp"

#include <cstdint>
#include <vector>

namespace terrace::tools {

struct KeysBenchOptions {
  std::vector<std::uint32_t> block_tokens{16, 32, 64, 128, 256};
  std::uint32_t prompt_tokens = 4096;
  std::uint32_t prompts = 16;
  unsigned rounds = 51;
};

/// Measures how long it takes to make keys from tokens, compared with the digests alone, for each size of block:
///
/// - digest: one SHA-256 digest by OpenSSL for each block; its message is made before;
/// - append: KeyChain::append.
///
/// The two take turns in each round, over the same prompts. Prints the medians in nanoseconds for each block, and returns them.
/// Throws std::invalid_argument if a prompt is shorter than a block or if there is nothing to do.
[[nodiscard]] Row bench_keys(const KeysBenchOptions& options);

}  // namespace terrace::tools
