#pragma once

#include "terrace/types.hpp"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace terrace {

/// The number of blocks in the group of a path that begins at this depth: 1, 1, 2, 4, 8, then 16 for each group, and from depth
/// 512 on a thirty-second of the depth, up to 1024.
[[nodiscard]] constexpr std::uint32_t sample_group(std::size_t depth) {
  const std::size_t most = std::clamp<std::size_t>(depth / 32, 16, 1024);
  return static_cast<std::uint32_t>(std::bit_floor(std::clamp<std::size_t>(depth, 1, most)));
}

/// Picks few blocks of a path that stand for all of them. The path is cut into groups, and one block of each is picked; its
/// weight is the size of the group. Which one it is follows from the key of the group's first block, so two paths that share the
/// picked block agree on it. Blocks that many paths share are near the root, where groups are small. The parts of a path that
/// were used together are longer than the groups they lie in, or lie in small groups. So the weight of the picked blocks is close
/// to the number of blocks in each such part, while a pick of each block by its own hash (C. A. Waldspurger et al.: "Efficient
/// MRC Construction with SHARDS", FAST 2015) has a large error for blocks that are used much more often than others.
///
/// Calls visit(key, weight) for the picked blocks at depth `from` and deeper, first block first. A path of n blocks has about
/// 5 + n / 16 of them, and about 300 if it has 100,000.
template <class Visit>
void sample_path(std::span<const BlockKey> keys, std::size_t from, Visit visit) {
  for (std::size_t depth = 0; depth < keys.size();) {
    const std::uint32_t group = sample_group(depth);
    if (depth + group > from) {
      std::uint64_t number = 0;  // not the bytes of prefix64(), which name the block
      std::memcpy(&number, keys[depth].bytes.data() + sizeof number, sizeof number);
      const std::size_t picked = depth + (number & (group - 1));
      if (picked >= from && picked < keys.size()) visit(keys[picked], group);
    }
    depth += group;
  }
}

}  // namespace terrace
