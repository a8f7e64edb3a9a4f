#pragma once

#include "storage/io/io_engine.hpp"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace terrace {

/// Who has a store, as its lock file says: for people. Whether anybody has it, the lock alone decides; the text may be that of
/// an owner who was killed, or, for a moment after a start, of the one before.
struct StoreOwner {
  std::uint64_t pid = 0;
  std::string program;  ///< its name, and its command where it has one: "terrace replay"; this and the next may be empty
  std::string host;
  std::string since;  ///< "2026-11-21 10:00:00 UTC"; empty where it is not known

  friend bool operator==(const StoreOwner&, const StoreOwner&) = default;
};

/// What a lock file holds, in bytes.
inline constexpr std::size_t owner_text_bytes = 512;

[[nodiscard]] StoreOwner this_process();
/// Lines of "pid N", "program NAME", "host NAME", "since TIME", then blanks to owner_text_bytes. Names are cut, and all but
/// printable characters become question marks.
[[nodiscard]] std::string to_text(const StoreOwner& owner);
/// The inverse. Nothing where the text does not begin with a pid; a line that is missing, or makes no sense, is left out.
[[nodiscard]] std::optional<StoreOwner> parse_owner(std::string_view text);
/// "process 1234 (terrace replay on HOST), since 2026-11-21 10:00:00 UTC"
[[nodiscard]] std::string describe(const std::optional<StoreOwner>& owner);

/// Locks the file, DIR/lock, and writes down that it is this process's; it is let go of with the file. The engine has nothing
/// else under way. Waits up to two seconds for the lock of an owner on this machine that is no more, and a fifth of a second
/// where the file names this process, or nobody. Throws std::system_error: in_use, with a sentence that names the owner; else an
/// errno.
void take_lock(IoEngine& engine, FileId lock_file, const std::filesystem::path& directory);

}  // namespace terrace
