#pragma once

#include "storage/io/checksum.hpp"
#include "terrace/types.hpp"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

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

/// Identifies the part of a striped store that a directory holds. Each directory has it in the file `stripe`, so that directories
/// are not mixed up, and no directory is used by two stores.
struct StorePart {
  std::uint64_t store = 0;  ///< equal to Superblock::id
  std::uint32_t part = 0;   ///< counted from 1
  std::uint32_t of = 0;

  friend bool operator==(const StorePart&, const StorePart&) = default;
};

/// The size of the file `stripe`.
inline constexpr std::size_t part_text_bytes = 512;

/// The path of directory `number` as seen from the first directory: a symbolic link in it. Number 0 is the first directory
/// itself.
[[nodiscard]] std::filesystem::path part_directory(const std::filesystem::path& first, std::uint32_t number);

/// Returns "store 0123456789abcdef part 2 of 4" and a newline, padded with blanks to part_text_bytes.
[[nodiscard]] std::string to_text(const StorePart& part);
/// The inverse of to_text(). Returns nothing if the text has any other form.
[[nodiscard]] std::optional<StorePart> parse_part(std::string_view text);

}  // namespace terrace
