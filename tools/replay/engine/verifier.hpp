#pragma once

#include "terrace/device.hpp"
#include "terrace/types.hpp"
#include "tools/replay/engine/tokens.hpp"
#include "tools/replay/options/options.hpp"

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <string>
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

/// The shape of a block: each of its tokens has an equal share of its bytes.
struct BlockShape {
  Bytes bytes{};
  std::uint32_t tokens = 1;
  /// If each rank has a part of a block: the offset of this rank's part in the block. `bytes` is the size of the part. A multiple
  /// of eight.
  Bytes begin = {};
  std::uint32_t layers = 1;  ///< of equal size, a multiple of eight

  /// The offset at which the share of a token begins; for `tokens` it is the end of the block. Each word belongs to one token
  /// only.
  [[nodiscard]] std::size_t offset_of(std::uint32_t token) const;
};

/// A hit block whose content does not match its key.
struct Mismatch {
  std::uint64_t request = 0;
  std::size_t block = 0;
  BlockKey key;
  Source found_in = Source::device;
  SlotId slot;
  std::size_t byte = 0;  ///< the first byte that differs
};

[[nodiscard]] std::string describe(const Mismatch& mismatch);

/// Totals of a verifier so far, on the device's thread. Includes hits of requests that were aborted later, or that came back
/// after a preemption.
struct VerifierTotals {
  std::uint64_t compared = 0;
  std::uint64_t group_blocks = 0;    ///< hit blocks of groups other than the first that were compared
  std::uint64_t layered_blocks = 0;  ///< hit blocks of which single layers were compared, once for each time
  std::uint64_t mismatches = 0;
  std::optional<Mismatch> first_mismatch;
  double verify_seconds = 0;   ///< spent on comparing
  double content_seconds = 0;  ///< spent on writing content
};

/// Takes the place of a model. It compares the blocks that a request got from the cache with their expected content, and writes
/// the content of computed tokens. Each rank has its own verifier. Threads: run() from the compute thread of the device, one call
/// at a time; totals() from any.
class Verifier {
 public:
  Verifier(Verify verify, const BlockShape& shape) : Verifier{verify, std::vector{shape}} {}
  /// `shapes`: those of the blocks, by GroupId.
  Verifier(Verify verify, std::vector<BlockShape> shapes);

  /// Compares the hits and then writes the parts. The batch must not read a block that it also writes. Stores in the batch how
  /// many hits were compared.
  void run(ComputeBatch& batch, BlockAccess& access);

  [[nodiscard]] VerifierTotals totals() const;

 private:
  void compare(ComputeBatch::Hits& hits, BlockAccess& access);
  void write(const ComputeBatch::Part& part, BlockAccess& access);
  [[nodiscard]] bool chosen();

  const Verify verify_;
  const std::vector<BlockShape> shapes_;

  // Used by run() only.
  std::uint64_t hits_ = 0;
  std::vector<std::byte> scratch_;

  mutable std::mutex mutex_;  ///< guards totals_
  VerifierTotals totals_;
};

}  // namespace terrace::tools
