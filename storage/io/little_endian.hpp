#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace terrace {

static_assert(std::endian::native == std::endian::little, "the files are little-endian: swap the bytes here on such a machine");

inline void store_le64(std::byte* at, std::uint64_t value) noexcept { std::memcpy(at, &value, sizeof value); }
inline void store_le32(std::byte* at, std::uint32_t value) noexcept { std::memcpy(at, &value, sizeof value); }

[[nodiscard]] inline std::uint64_t load_le64(const std::byte* at) noexcept {
  std::uint64_t value = 0;
  std::memcpy(&value, at, sizeof value);
  return value;
}
[[nodiscard]] inline std::uint32_t load_le32(const std::byte* at) noexcept {
  std::uint32_t value = 0;
  std::memcpy(&value, at, sizeof value);
  return value;
}

}  // namespace terrace
