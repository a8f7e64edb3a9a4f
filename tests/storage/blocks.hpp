#pragma once

#include "storage/io/aligned_buffer.hpp"
#include "terrace/block_store.hpp"
#include "terrace/types.hpp"
#include "tests/seed.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

namespace terrace::test {

/// Two pages, so that the write of a block differs from the write of a catalog page.
inline constexpr std::size_t block_size = 8192;

/// Keys that differ in their first bytes, as digests do.
inline BlockKey key_of(std::uint64_t n) {
  BlockKey key;
  for (std::size_t i = 0; i < 4; ++i) {
    n = (n + 0x9E37'79B9'7F4A'7C15ULL) * 0xBF58'476D'1CE4'E5B9ULL;
    n ^= n >> 29;
    std::memcpy(key.bytes.data() + 8 * i, &n, 8);
  }
  return key;
}

/// Another key with the same first eight bytes, the part that hash tables use (BlockKey::prefix64).
inline BlockKey with_prefix64_of(const BlockKey& key, std::uint64_t n) {
  BlockKey other = key_of(n);
  std::copy_n(key.bytes.begin(), sizeof(std::uint64_t), other.bytes.begin());
  return other;
}

inline StoredBlock root_block(std::uint64_t n) { return {key_of(n), {}, 0, TenantId{7}}; }
inline StoredBlock child_of(const StoredBlock& parent, std::uint64_t n) {
  return {key_of(n), parent.key, parent.depth + 1, parent.tenant};
}
/// Blocks `first`, `first` + 1, ..., each the parent of the next one.
inline std::vector<StoredBlock> prefix_of(std::uint64_t first, std::size_t length) {
  std::vector<StoredBlock> prefix{root_block(first)};
  while (prefix.size() < length) prefix.push_back(child_of(prefix.back(), first + prefix.size()));
  return prefix;
}

/// Fills in the content of a block. It depends on the key, and begins with it.
inline void fill(std::span<std::byte> bytes, const BlockKey& key) {
  std::uint64_t word = key.prefix64();
  for (std::size_t at = 0; at < bytes.size(); at += 8) {
    word = word * 6364136223846793005ULL + 1442695040888963407ULL;
    std::memcpy(bytes.data() + at, &word, std::min<std::size_t>(8, bytes.size() - at));
  }
  std::memcpy(bytes.data(), key.bytes.data(), key.bytes.size());
}

inline bool holds(std::span<const std::byte> bytes, const BlockKey& key) {
  std::vector<std::byte> expected(bytes.size());
  fill(expected, key);
  return std::equal(bytes.begin(), bytes.end(), expected.begin());
}

inline AlignedBuffer content_of(const BlockKey& key) {
  AlignedBuffer buffer{block_size};
  fill(buffer.span(), key);
  return buffer;
}

}  // namespace terrace::test
