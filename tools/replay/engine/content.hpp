#pragma once

#include "base/block_key.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace terrace::tools {

/// What a block holds in a replay: 64-bit words a + i·b, little-endian, where a and b are words of the block's key and b is
/// odd. So any two blocks differ in nearly every word, a block's words differ from one another, and both making and comparing
/// them run at memory speed. The last word is cut where the size is no multiple of eight.
///
/// Fills the part of a block that begins at `offset`, a multiple of eight: what is computed token by token comes to the same.
void fill_content(std::span<std::byte> part, const BlockKey& key, std::size_t offset = 0);

/// Where in the block the first byte stands that the key's content has not, of the part that begins at `offset`; nothing where
/// all agree.
[[nodiscard]] std::optional<std::size_t> first_difference(std::span<const std::byte> part, const BlockKey& key,
                                                          std::size_t offset = 0);

}  // namespace terrace::tools
