#pragma once

#include "radix/tree/prefix_tree.hpp"
#include "terrace/types.hpp"

#include <cstdint>
#include <vector>

namespace terrace {

/// A block of a group whose blocks do not depend on each other. In the tree it is a prefix of length one.
struct UnchainedBlock {
  std::uint32_t block = 0;  ///< index in the block table of the group
  Prefix prefix;
  bool duplicate = false;  ///< the block table has the request's own slot; the shared copy is in another slot
};

/// The blocks and slots of a request in one group. A chained group has a prefix; any other group has unchained blocks. Both are
/// pinned.
struct GroupPart {
  Prefix prefix;
  std::vector<UnchainedBlock> unchained;  ///< by ascending block
  /// The hits are blocks [first, end) of the table. The blocks before `first` are null blocks.
  std::uint32_t first = 0;
  std::uint32_t end = 0;
  /// Blocks from this one on are not shared yet: each is in a slot that the request owns, or is a null block.
  std::uint32_t committed = 0;
  /// If false, this is an optional group that cannot serve the hit. It has null blocks there, and shares no block.
  bool serves = true;
  /// All hits were on the device when they were pinned, so they stay there, and nothing is loaded.
  bool on_device = false;
  std::vector<SlotId> table;      ///< the block table: one slot for each block
  std::vector<SlotId> redundant;  ///< chained group: slots that the request owns for blocks whose shared copy is in another slot
  /// Blocks [tied_from, tied_to) are tied to blocks with full attention (Requests::tie_companions).
  std::uint32_t tied_from = 0;
  std::uint32_t tied_to = 0;
  std::uint32_t given_up = 0;  ///< the request has given up the blocks before this one; they are null blocks

  /// Empties the part, but keeps the memory of its vectors.
  void clear() {
    prefix = {};
    unchained.clear();
    first = end = committed = given_up = tied_from = tied_to = 0;
    serves = true;
    on_device = false;
    table.clear();
    redundant.clear();
  }
};

}  // namespace terrace
