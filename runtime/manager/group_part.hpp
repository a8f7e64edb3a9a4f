#pragma once

#include "base/strong_id.hpp"
#include "radix/tree/prefix_tree.hpp"

#include <cstdint>
#include <vector>

namespace terrace {

/// A block that stands alone in the tree, as a prefix of its own: of a group whose blocks do not hang together.
struct UnchainedBlock {
  std::uint32_t block = 0;  ///< index in its group's table
  Prefix prefix;
  bool duplicate = false;  ///< the request has a slot of its own behind the block, too
};

/// What a request has in one group. Chained groups hold a prefix; others hold unchained blocks, one entry each. Both are pinned.
struct GroupPart {
  Prefix prefix;
  std::vector<UnchainedBlock> unchained;  ///< by ascending block
  /// Hits: blocks [first, end). Before `first` the table has null blocks.
  std::uint32_t first = 0;
  std::uint32_t end = 0;
  /// Blocks from here on are not shared yet: the request's own, or null.
  std::uint32_t committed = 0;
  /// False: an optional group that cannot serve the hit. It has null blocks there, and shares nothing.
  bool serves = true;
  std::vector<SlotId> table;      ///< a slot per block, once the request is ready
  std::vector<SlotId> redundant;  ///< chained: its own slots behind blocks that are shared now
  std::uint32_t given_up = 0;     ///< blocks before this one are null for good

  /// Empties it, but keeps the memory.
  void clear() {
    prefix = {};
    unchained.clear();
    first = end = committed = given_up = 0;
    serves = true;
    table.clear();
    redundant.clear();
  }
};

}  // namespace terrace
