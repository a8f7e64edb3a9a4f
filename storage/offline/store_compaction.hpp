#pragma once

#include "base/bytes.hpp"
#include "storage/io/io_engine.hpp"

#include <cstdint>
#include <filesystem>

namespace terrace {

struct Compaction {
  std::uint64_t blocks = 0;      ///< kept
  std::uint64_t cleared = 0;     ///< records cleared: damaged, orphans', superseded
  std::uint64_t free_slots = 0;  ///< without a block now
  Bytes given_back{};            ///< of the disk
};

/// Gives the disk what a stopped store has and does not use: the room of every slot without a block. Blocks stay where they
/// are. Records that a store which starts would not take are cleared first. The next start takes the whole capacity again while
/// it serves, as far as the disk has it (StoreDirectory::has_holes()).
///
/// A crash at any point leaves a store of the same blocks: the cleared records are durable before a slot's room goes, and no
/// slot goes that has a block. Takes the store's lock for as long as it runs; blocks. `engine` has nothing else under way.
/// Throws std::system_error, one sentence: incompatible (no store, or one that StoreReader would refuse), in_use, an errno
/// (EOPNOTSUPP where the file system has no holes; some of the room may have been given back then).
[[nodiscard]] Compaction compact_store(const std::filesystem::path& directory, IoEngine& engine);

}  // namespace terrace
