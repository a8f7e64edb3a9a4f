#pragma once

#include "storage/io/checksum.hpp"
#include "terrace/types.hpp"

#include <cstdint>
#include <string>

namespace terrace {

/// Identifies one of several stores that share a directory, by model and geometry, KV cache group and rank.
struct StoreIdentity {
  Fingerprint fingerprint{};
  GroupId group{};
  std::uint32_t rank = 0;
};

/// The fingerprint of the store itself. It covers group and rank too. Blocks of different ranks have the same keys. If the files
/// of one rank are moved to the place of another rank, the fingerprint differs and the store is refused, like a store of another
/// model.
[[nodiscard]] Fingerprint store_fingerprint(const StoreIdentity& identity);

/// A value for FileStoreConfig::name: 32 hexadecimal digits of store_fingerprint(). The name does not reveal its input.
[[nodiscard]] std::string store_directory_name(const StoreIdentity& identity);

}  // namespace terrace
