#pragma once

#include "terrace/types.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace terrace::tools {

/// The content of a block in a replay is a sequence of 64-bit words a + i * b, little-endian. a and b are two words of the
/// block's key, and b is made odd. So two blocks differ in nearly every word, the words of one block differ from each other, and
/// the content is written and compared at memory speed. If the size is no multiple of eight, the last word is cut.
///
/// Fills the part of a block that begins at `offset`, which must be a multiple of eight. A block that is filled in several parts
/// gets the same content.
void fill_content(std::span<std::byte> part, const BlockKey& key, std::size_t offset = 0);

/// Compares the part of a block that begins at `offset` with the content for the key. Returns the position within the block of
/// the first different byte, or nothing if all bytes are equal.
[[nodiscard]] std::optional<std::size_t> first_difference(std::span<const std::byte> part, const BlockKey& key,
                                                          std::size_t offset = 0);

}  // namespace terrace::tools
