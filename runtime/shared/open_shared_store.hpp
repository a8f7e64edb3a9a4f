#pragma once

#include "storage/redis/redis_options.hpp"
#include "terrace/groups.hpp"
#include "terrace/options.hpp"
#include "terrace/shared_store.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace terrace {

/// How the engine is reached that the options name by a URL with redis: or rediss:. Reads the file of the password. Throws
/// std::invalid_argument as open_shared_store() does.
[[nodiscard]] RedisOptions redis_options(const SharedStorage& options);

/// Everything that decides what the bytes of a block in a shared store mean, beside its key.
struct SharedMeaning {
  std::array<std::byte, 32> fingerprint{};  ///< of model and geometry (CacheSystemOptions::fingerprint)
  std::string_view weights_revision{};
  Bytes block_bytes{};
  std::uint32_t ranks = 1;  ///< whose payloads a block has side by side
  /// The differences between the KV cache groups of a model with several (shared_groups()). Empty for any other model.
  std::string_view groups{};
};

/// For a model with several KV cache groups, or with one that has no full attention: kind, size of a block and span of each group
/// in tokens, and the bytes of its blocks, in the order of their GroupIds. Empty for any other model. `block_bytes`: by PoolId.
[[nodiscard]] std::string shared_groups(std::span<const GroupConfig> groups, std::span<const Bytes> block_bytes);

/// The fingerprint that SharedStore::use() gets: SHA-256 over the fields, each with its length. Users with equal fields find each
/// other's blocks.
[[nodiscard]] SharedStore::Fingerprint shared_fingerprint(const SharedMeaning& meaning);

}  // namespace terrace
