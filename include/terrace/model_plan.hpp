#pragma once

#include "terrace/export.hpp"
#include "terrace/groups.hpp"
#include "terrace/options.hpp"
#include "terrace/types.hpp"

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace terrace {

/// The type of one value in the KV of a model.
enum class KvType : std::uint8_t { float32, float16, bfloat16, float8, int8, int4 };
[[nodiscard]] TERRACE_API std::uint32_t bits_of(KvType type);
[[nodiscard]] TERRACE_API std::string_view to_string(KvType type);

/// The scales of quantised KV: one for each `values_per_scale` values of one head and token.
struct QuantisationScales {
  enum class Place : std::uint8_t {
    inside_block,  ///< beside the values of their layer
    own_group,     ///< in their own blocks, in the KV cache group after the group of the values
  };
  KvType type = KvType::float32;
  std::uint32_t values_per_scale = 0;  ///< 0: one scale for all values of a head (or a latent)
  Place place = Place::inside_block;
};

/// Layers of the same shape. Counts are for the whole model, before it is divided among ranks. Set `kv_heads` and `head_size`, or
/// `latent_size`, or (for kind recurrent) `state_bytes`.
struct LayerShape {
  GroupKind kind = GroupKind::full;
  std::uint32_t layers = 0;
  std::uint32_t block_tokens = 16;
  std::uint32_t span_tokens = 0;      ///< GroupConfig::span_tokens
  bool optional = false;              ///< GroupConfig::optional
  std::uint32_t kv_heads = 0;         ///< heads that have a K and a V
  std::uint32_t head_size = 0;        ///< values of K in one head, and of V unless value_head_size is set
  std::uint32_t value_head_size = 0;  ///< values of V in one head; 0: head_size
  std::uint32_t latent_size = 0;      ///< values for one token of MLA, K and V together
  Bytes state_bytes{};                ///< the state of one layer
  KvType type = KvType::bfloat16;
  std::optional<QuantisationScales> scales{};
};

/// The KV of a model.
struct ModelShape {
  std::vector<LayerShape> layers{};  ///< one entry for each kind of layer
  /// Tensor-parallel ranks. Heads and states are divided among them. If there are fewer heads than ranks, several ranks hold the
  /// same head. Each rank holds all of a latent.
  std::uint32_t ranks = 1;
};

/// A typical sequence.
struct TypicalSequence {
  std::uint32_t tokens = 0;        ///< prompt and output together
  std::uint32_t chunk_tokens = 0;  ///< the most tokens per step; a window group holds them in addition to its window
  std::uint32_t encoder_tokens = 0;
};

/// The memory that a cache may use.
struct MemoryBudget {
  Bytes device{};  ///< of one rank
  Bytes host{};    ///< of all ranks together, staging included
  /// Staging slots of each pool; 0 if there is no storage.
  Blocks staging_blocks{};
  /// Block sizes must be a multiple of this: 4 KiB with file storage.
  Bytes block_unit{1};
};

/// Block sizes and counts for a model within a budget.
struct TERRACE_API GroupPlan {
  std::vector<GroupConfig> groups{};  ///< in the order of ModelShape::layers; a group of scales follows the group of its values
  std::vector<PoolOptions> pools{};
  RankPayload rank_payload = RankPayload::sharded;
  std::uint32_t ranks = 1;
  Bytes device_used{};          ///< on one rank, including null blocks
  Bytes host_used{};            ///< all ranks together, including staging
  std::uint32_t sequences = 0;  ///< typical sequences that fit the device at the same time

  /// Sets groups, pools, rank_payload, and the number of ranks. Ranks that the options already have keep their device and
  /// regions.
  void apply_to(CacheSystemOptions& options) const;
};

/// Derives block sizes from the shape, and counts from the budget, so that all pools become full at the same time if sequences
/// are typical (plan_pools()). Groups share a pool if their blocks have the same size and number of layers. Blocks have no
/// padding: all layers of a block are adjacent, each with the bytes of one rank.
///
/// Throws std::invalid_argument with one sentence that says what does not fit and what would fit.
///
/// Example: 32 layers of 8 heads with 128 values of bfloat16, in blocks of 16 tokens, on 2 ranks: a block has 2 MiB, and each
/// rank holds 1 MiB of it.
[[nodiscard]] TERRACE_API GroupPlan plan_groups(const ModelShape& model, const TypicalSequence& typical,
                                                const MemoryBudget& budget);

}  // namespace terrace
