#pragma once

#include "terrace/types.hpp"

#include <cstdint>
#include <cstring>

namespace terrace::tools {

/// Returns a key that looks random, as real keys do; indexes rely on that. Every step can be undone, so different numbers give
/// different keys.
[[nodiscard]] inline BlockKey numbered_key(std::uint64_t n) {
  std::uint64_t mixed = n * 0x9E37'79B9'7F4A'7C15ULL;
  mixed = (mixed ^ (mixed >> 30U)) * 0xBF58'476D'1CE4'E5B9ULL;
  mixed = (mixed ^ (mixed >> 27U)) * 0x94D0'49BB'1331'11EBULL;
  mixed ^= mixed >> 31U;
  BlockKey key;
  std::memcpy(key.bytes.data(), &mixed, sizeof mixed);
  std::memcpy(key.bytes.data() + sizeof mixed, &n, sizeof n);
  return key;
}

}  // namespace terrace::tools
