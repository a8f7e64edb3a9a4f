#pragma once

#include "storage/io/io_engine.hpp"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace terrace {

/// The owner of a store as its lock file names it, for people. Only the lock itself decides whether the store is in use. The text
/// may name an owner that was killed, or, for a moment after a start, the previous owner.
struct StoreOwner {
  std::uint64_t pid = 0;
  std::string program;  ///< its file name, and its command if there is one: "terrace replay"; this and the next may be empty
  std::string host;
  std::string since;  ///< "2026-11-21 10:00:00 UTC"; empty if it is not known

  friend bool operator==(const StoreOwner&, const StoreOwner&) = default;
};

/// The length of the text in a lock file.
inline constexpr std::size_t owner_text_bytes = 512;

[[nodiscard]] StoreOwner this_process();
/// Returns lines of "pid N", "program NAME", "host NAME", "since TIME", padded with blanks to owner_text_bytes. Long names are
/// cut, and characters that are not printable become question marks.
[[nodiscard]] std::string to_text(const StoreOwner& owner);
/// The inverse of to_text(). Returns nothing if the text does not begin with a pid. A missing or malformed line leaves its field
/// empty.
[[nodiscard]] std::optional<StoreOwner> parse_owner(std::string_view text);
/// Returns for example "process 1234 (terrace replay on HOST), since 2026-11-21 10:00:00 UTC".
[[nodiscard]] std::string describe(const std::optional<StoreOwner>& owner);

/// Locks the file DIR/lock and writes this process as its owner. The lock is released when the file is closed. The engine must
/// have no other operation under way. It waits for the lock for up to 2 s if the file names no process, or an owner on this
/// machine that no longer exists; for up to 0.2 s if the file names this process; and not at all otherwise. Throws
/// std::system_error: in_use, with a sentence that names the owner, or an errno.
void take_lock(IoEngine& engine, FileId lock_file, const std::filesystem::path& directory);

/// Records in the lock file that the store has been opened now, with this label (StoreLabel). The engine must have no other
/// operation under way. The text is for people, so an error does not fail the start: the label is then not recorded.
void record_label(IoEngine& engine, FileId lock_file, std::string_view label);

}  // namespace terrace
