#pragma once

#include "terrace/device.hpp"
#include "terrace/types.hpp"
#include "tools/replay/engine/tokens.hpp"

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace terrace::tools {

/// The KV cache group whose blocks are added. The default is the only group of a model, in its only pool.
struct BatchGroup {
  GroupId id{};
  PoolId pool{};
  bool counted = true;           ///< its hits and tokens are those that are counted
  std::uint32_t units = 1;       ///< hash units of a block
  std::uint32_t layers = 1;      ///< layers of a block
  std::uint32_t first = 0;       ///< the first block that the hits of the request need
  std::optional<SlotId> null{};  ///< the null block of the pool
};

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
    GroupId group{};
    PoolId pool{};
    std::uint32_t first = 0;  ///< number of the first of `blocks` in the sequence
    /// Hash units that a compared block counts for. 0 in groups other than the counted one, and for single layers, so that each
    /// hit counts once.
    std::uint32_t units = 1;
    std::optional<LayerRange> layers{};  ///< only these layers have arrived, and are compared
    std::vector<HitBlock> blocks;
    std::uint64_t compared = 0;  ///< set by the computation; to be read when the launch is done
  };
  /// Tokens of one block that are computed. The bytes of the block that belong to these tokens are written.
  struct Part {
    BlockKey key;
    SlotId slot;
    std::uint32_t from = 0;  ///< tokens within the block
    std::uint32_t to = 0;
    GroupId group{};
    PoolId pool{};
  };

  std::vector<Hits> hits;
  std::vector<Part> parts;
  std::uint64_t token_count = 0;  ///< the sum over all parts

  /// Adds a request's hits in the group: the blocks of its table from `group.first` on that `sources` covers. `keys` and
  /// `sources` have one entry for each hash unit. With `layers`, only those of these layers are compared that the group has.
  void add_hits(std::uint64_t request, std::span<const BlockKey> keys, std::span<const Source> sources,
                std::span<const SlotId> table, const BatchGroup& group = {}, std::optional<LayerRange> layers = std::nullopt);
  /// Adds tokens of a request. A block beyond the end of `keys` will not become full, so no other request reads it.
  /// Null blocks are left out.
  void add_tokens(std::uint64_t request, std::span<const BlockKey> keys, std::span<const SlotId> table,
                  std::uint32_t block_tokens, TokenRange tokens, const BatchGroup& group = {});
};

}  // namespace terrace::tools
