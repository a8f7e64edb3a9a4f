#pragma once

#include "terrace/tier_store.hpp"
#include "tests/storage/blocks.hpp"

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

namespace terrace::test {

/// The keys of the blocks named `first` and on.
inline std::vector<BlockKey> keys_of(const TierStore& store, std::uint32_t first, std::uint32_t count) {
  std::vector<BlockKey> keys;
  for (std::uint32_t n = first; n < first + count; ++n) keys.push_back(store.key(std::as_bytes(std::span{&n, 1})));
  return keys;
}

/// The keys of the blocks of these numbers (key_of).
inline std::vector<BlockKey> keys_from(std::uint64_t first, std::size_t count) {
  std::vector<BlockKey> keys;
  for (std::size_t i = 0; i < count; ++i) keys.push_back(key_of(first + i));
  return keys;
}

inline std::vector<std::uint32_t> rows_from(std::uint32_t first, std::size_t count) {
  std::vector<std::uint32_t> rows(count);
  std::iota(rows.begin(), rows.end(), first);
  return rows;
}

}  // namespace terrace::test
