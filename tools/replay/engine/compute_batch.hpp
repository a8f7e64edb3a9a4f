#pragma once

#include "terrace/types.hpp"
#include "tools/replay/engine/token_range.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace terrace::tools {

/// The work of one launch of the device: the blocks that it reads and the parts that it writes. It needs no other data.
struct ComputeBatch {
  struct HitBlock {
    BlockKey key;
    SlotId slot;
    Source found_in = Source::device;
  };
  /// The leading blocks that the cache gave to a request. The computation of its other blocks reads them all.
  struct Hits {
    std::uint64_t request = 0;  ///< the request's number in the trace, from 1
    std::vector<HitBlock> blocks;
    std::uint64_t compared = 0;  ///< set by the computation; to be read when the launch is done
  };
  /// Tokens of one block that are computed. The bytes of the block that belong to these tokens are written.
  struct Part {
    BlockKey key;
    SlotId slot;
    std::uint32_t from = 0;  ///< tokens within the block
    std::uint32_t to = 0;
  };

  std::vector<Hits> hits;
  std::vector<Part> parts;
  std::uint64_t token_count = 0;  ///< the sum over all parts

  /// Adds a request's hits: the first entries of its block table, as many as there are `sources`.
  void add_hits(std::uint64_t request, std::span<const BlockKey> keys, std::span<const Source> sources,
                std::span<const SlotId> table);
  /// Adds tokens of a request. A block beyond the end of `keys` will not become full, so no other request reads it.
  void add_tokens(std::uint64_t request, std::span<const BlockKey> keys, std::span<const SlotId> table,
                  std::uint32_t block_tokens, TokenRange tokens);
};

}  // namespace terrace::tools
