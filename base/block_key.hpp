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

/// The name of a block's content and of everything before it: 32 opaque bytes. How they come about is radix/keys/block_keys.hpp;
/// everybody else only compares them.
struct BlockKey {
  std::array<std::byte, 32> bytes{};

  /// By words: the default compares an array of bytes byte by byte.
  friend bool operator==(const BlockKey& a, const BlockKey& b) noexcept {
    return std::memcmp(a.bytes.data(), b.bytes.data(), sizeof a.bytes) == 0;
  }
  friend auto operator<=>(const BlockKey&, const BlockKey&) = default;

  /// Eight of the key's bytes. Keys are digests, so any eight serve as a hash.
  [[nodiscard]] std::uint64_t prefix64() const noexcept {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data(), sizeof word);
    return word;
  }
};

/// 64 lower-case hexadecimal digits.
[[nodiscard]] std::string to_hex(const BlockKey& key);
/// The inverse of to_hex. Fails: invalid_argument.
[[nodiscard]] Result<BlockKey> parse_block_key(std::string_view hex);

}  // namespace terrace

template <>
struct std::hash<terrace::BlockKey> {
  std::size_t operator()(const terrace::BlockKey& key) const noexcept { return key.prefix64(); }
};
