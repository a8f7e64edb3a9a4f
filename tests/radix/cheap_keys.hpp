#pragma once

#include "terrace/types.hpp"

#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

namespace terrace::test {

/// Keys for workloads of millions of blocks. They are chained like real keys, but with a mixing function instead of a digest.
class CheapKeys {
 public:
  /// The keys of the prefix whose blocks have these names. Valid until the next call.
  [[nodiscard]] std::span<const BlockKey> of(std::span<const std::uint64_t> names) {
    keys_.clear();
    std::uint64_t state = 0;
    for (const std::uint64_t name : names) {
      state = mix(state ^ mix(name));
      BlockKey key;
      for (std::size_t word = 0; word < 4; ++word) {
        const std::uint64_t bits = mix(state + word);
        std::memcpy(key.bytes.data() + 8 * word, &bits, sizeof bits);
      }
      keys_.push_back(key);
    }
    return keys_;
  }

 private:
  /// splitmix64 by Vigna.
  static std::uint64_t mix(std::uint64_t x) {
    x += 0x9E37'79B9'7F4A'7C15U;
    x = (x ^ (x >> 30U)) * 0xBF58'476D'1CE4'E5B9U;
    x = (x ^ (x >> 27U)) * 0x94D0'49BB'1331'11EBU;
    return x ^ (x >> 31U);
  }

  std::vector<BlockKey> keys_;
};

}  // namespace terrace::test
