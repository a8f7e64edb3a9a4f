#pragma once

#include "terrace/options.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

namespace terrace {

/// The layout of the bytes of a block, as given by the options of a cache. Blocks with another layout have the same keys and
/// often the same size. So file stores and shared stores include the layout in the fingerprint.
struct BlockLayout {
  std::uint32_t shares = 1;  ///< number of ranks whose shares lie side by side; 1 if all ranks have the same bytes
  /// For a model with several KV cache groups, or with one that has no full attention: kind, size of a block and span of each
  /// group in tokens, and the bytes of its blocks, by GroupId. Empty for any other model.
  std::string groups{};
  /// For each pool with regions of the engine: layer and bytes of each part of a block, in the order of the parts, of each rank.
  /// Neighbouring ranks that are alike are written once, with their number if there are others.
  std::string parts{};
};

[[nodiscard]] BlockLayout layout_of(const CacheSystemOptions& options);

using Digest = std::array<std::byte, 32>;

/// The fingerprint of a file store: SHA-256 over the fingerprint of the options and the layout. The first bytes of the message
/// name the scheme, which gets another number when the fields or their meaning change.
[[nodiscard]] Digest file_fingerprint(const Digest& fingerprint, const BlockLayout& layout);

/// A text for people about the input of file_fingerprint(): "fingerprint 00112233aabbccdd, ranks side by side: 2, parts: 64".
[[nodiscard]] std::string describe(const Digest& fingerprint, const BlockLayout& layout);

/// Everything beside the key that decides what the bytes of a block in a shared store mean.
struct SharedMeaning {
  Digest fingerprint{};  ///< fingerprint of model and geometry (CacheSystemOptions::fingerprint)
  std::string weights_revision{};
  Bytes block_bytes{};
  BlockLayout layout{};
};

/// The fingerprint that SharedStore::use() gets: SHA-256 over the fields, each with its length. Users with equal fields find each
/// other's blocks.
[[nodiscard]] Digest shared_fingerprint(const SharedMeaning& meaning);

}  // namespace terrace
