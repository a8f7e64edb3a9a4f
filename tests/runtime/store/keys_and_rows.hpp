#pragma once

#include "terrace/tier_store.hpp"

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

inline std::vector<std::uint32_t> rows_from(std::uint32_t first, std::size_t count) {
  std::vector<std::uint32_t> rows(count);
  std::iota(rows.begin(), rows.end(), first);
  return rows;
}

}  // namespace terrace::test
