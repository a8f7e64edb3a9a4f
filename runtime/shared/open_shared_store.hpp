#pragma once

#include "terrace/options.hpp"
#include "terrace/shared_store.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace terrace {

/// Everything that decides what the bytes of a block in a shared store mean, beside its key.
struct SharedMeaning {
  std::array<std::byte, 32> fingerprint{};  ///< of model and geometry (CacheSystemOptions::fingerprint)
  std::string_view weights_revision{};
  Bytes block_bytes{};
  std::uint32_t ranks = 1;  ///< whose payloads a block has side by side
};

/// The fingerprint that SharedStore::use() gets: SHA-256 over the fields, each with its length. Users with equal fields find each
/// other's blocks.
[[nodiscard]] SharedStore::Fingerprint shared_fingerprint(const SharedMeaning& meaning);

}  // namespace terrace
