#pragma once

#include "capi/status.hpp"
#include "terrace.h"
#include "terrace/types.hpp"

#include <cstddef>
#include <cstdint>
#include <span>

namespace terrace::capi {

// A terrace_key and a BlockKey have the same layout, so that arrays of keys need not be copied.
static_assert(sizeof(terrace_key) == sizeof(BlockKey));
static_assert(alignof(terrace_key) == alignof(BlockKey));

/// Throws if the pointer is null although there are keys.
[[nodiscard]] inline std::span<const BlockKey> keys_of(const terrace_key* keys, std::size_t count, const char* name = "keys") {
  if (count > 0) need(keys, name);
  return {reinterpret_cast<const BlockKey*>(keys), count};
}
[[nodiscard]] inline const BlockKey& key_of(const terrace_key& key) { return reinterpret_cast<const BlockKey&>(key); }
[[nodiscard]] inline terrace_key key_to_c(const BlockKey& key) { return reinterpret_cast<const terrace_key&>(key); }

/// Words of a bitmap with one bit for each key.
[[nodiscard]] inline std::span<std::uint64_t> words_of(std::uint64_t* bitmap, std::size_t keys) {
  constexpr std::size_t word = 64;
  return {bitmap, (keys + word - 1) / word};
}

}  // namespace terrace::capi
