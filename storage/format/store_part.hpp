#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace terrace {

/// Which part of which striped store a directory holds: what its file `stripe` says, so that directories are neither mixed up
/// nor taken by two stores.
struct StorePart {
  std::uint64_t store = 0;  ///< Superblock::id
  std::uint32_t part = 0;   ///< from 1
  std::uint32_t of = 0;

  friend bool operator==(const StorePart&, const StorePart&) = default;
};

/// What such a file holds, in bytes.
inline constexpr std::size_t part_text_bytes = 512;

/// Where the directory of this number (0: the first itself) is found from the first one: by a symbolic link in it.
[[nodiscard]] std::filesystem::path part_directory(const std::filesystem::path& first, std::uint32_t number);

/// "store 0123456789abcdef part 2 of 4", a newline, then blanks to part_text_bytes.
[[nodiscard]] std::string to_text(const StorePart& part);
/// The inverse. Nothing where the text is anything else.
[[nodiscard]] std::optional<StorePart> parse_part(std::string_view text);

}  // namespace terrace
