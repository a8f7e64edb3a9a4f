#pragma once

#include "base/result.hpp"

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <string_view>

namespace terrace {

/// The name of a block: 32 bytes that identify the block's content and all blocks before it. radix/keys/block_keys.hpp makes
/// keys; all other code only compares them. A plain value.
struct BlockKey {
  std::array<std::byte, 32> bytes{};

  /// Compares whole words. The default comparison would compare the array byte by byte.
  friend bool operator==(const BlockKey& a, const BlockKey& b) noexcept {
    return std::memcmp(a.bytes.data(), b.bytes.data(), sizeof a.bytes) == 0;
  }
  friend auto operator<=>(const BlockKey&, const BlockKey&) = default;

  /// Returns the key's first eight bytes as a number. A key is a digest, so these bytes serve as a hash.
  [[nodiscard]] std::uint64_t prefix64() const noexcept {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data(), sizeof word);
    return word;
  }
};

/// Returns the key as 64 lower-case hexadecimal digits.
[[nodiscard]] std::string to_hex(const BlockKey& key);
/// The inverse of to_hex(). Fails: invalid_argument.
[[nodiscard]] Result<BlockKey> parse_block_key(std::string_view hex);

}  // namespace terrace

template <>
struct std::hash<terrace::BlockKey> {
  std::size_t operator()(const terrace::BlockKey& key) const noexcept { return key.prefix64(); }
};
