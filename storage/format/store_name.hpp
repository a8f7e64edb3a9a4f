#pragma once

#include "base/strong_id.hpp"
#include "storage/io/checksum.hpp"

#include <cstdint>
#include <string>

namespace terrace {

/// The sub-directory that a store makes for itself where it is given no other name.
inline constexpr const char* default_store_name = "store";

/// Which one of several stores that share a directory: of which model and geometry, of which group of layers, of which rank.
struct StoreIdentity {
  Fingerprint fingerprint{};
  GroupId group{};
  std::uint32_t rank = 0;
};

/// The fingerprint of that store's own: group and rank are part of it, so that one rank's files in another's place, whose
/// blocks have the same keys, are refused like those of another model.
[[nodiscard]] Fingerprint store_fingerprint(const StoreIdentity& identity);

/// For FileStoreConfig::name: 32 hexadecimal digits of store_fingerprint(). Says nothing of what it is made from.
[[nodiscard]] std::string store_directory_name(const StoreIdentity& identity);

}  // namespace terrace
