#pragma once

#include "terrace/keys.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <vector>

namespace terrace::test {

/// The keys of a sequence whose blocks differ by one number each.
inline std::vector<BlockKey> keys_of(std::span<const std::uint32_t> names, const BlockKey& root = {}) {
  KeyChain chain{root, 1};
  for (const std::uint32_t name : names) {
    (void)chain.append_opaque(std::as_bytes(std::span{&name, 1}));
  }
  return {chain.keys().begin(), chain.keys().end()};
}

inline std::vector<BlockKey> keys_of(std::initializer_list<std::uint32_t> names) {
  return keys_of(std::span{names.begin(), names.size()});
}

/// The same keys with equal first eight bytes, the part that hash tables use (BlockKey::prefix64). Only a comparison of whole
/// keys tells them apart.
inline std::vector<BlockKey> with_equal_prefix64(std::vector<BlockKey> keys) {
  for (BlockKey& key : keys) std::fill_n(key.bytes.begin(), sizeof(std::uint64_t), std::byte{0x5A});
  return keys;
}

}  // namespace terrace::test
