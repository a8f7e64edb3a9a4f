#pragma once

#include "base/block_key.hpp"
#include "base/strong_id.hpp"
#include "base/tier.hpp"
#include "tools/replay/engine/token_range.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace terrace::tools {

/// What a launch of the device computes, complete in itself: what it reads, what it writes.
struct ComputeBatch {
  struct HitBlock {
    BlockKey key;
    SlotId slot;
    Tier found_in = Tier::device;
  };
  /// The leading blocks that a request was given by the cache: whoever computes what follows reads them all.
  struct Hits {
    std::uint64_t request = 0;  ///< its number in the trace, from 1
    std::vector<HitBlock> blocks;
    std::uint64_t compared = 0;  ///< by compute; to be read once it is through
  };
  /// Tokens of one block that are computed: their share of the block's bytes is written.
  struct Part {
    BlockKey key;
    SlotId slot;
    std::uint32_t from = 0;  ///< tokens within the block
    std::uint32_t to = 0;
  };

  std::vector<Hits> hits;
  std::vector<Part> parts;
  std::uint64_t token_count = 0;  ///< of all parts

  /// A request's hits: of its table as much as there are tiers.
  void add_hits(std::uint64_t request, std::span<const BlockKey> keys, std::span<const Tier> tiers,
                std::span<const SlotId> table);
  /// Tokens of a request. A block behind the last of `keys` will not be full: what it holds is nobody else's.
  void add_tokens(std::uint64_t request, std::span<const BlockKey> keys, std::span<const SlotId> table,
                  std::uint32_t block_tokens, TokenRange tokens);
};

}  // namespace terrace::tools
