#pragma once

#include "storage/format/format.hpp"
#include "storage/io/aligned_buffer.hpp"
#include "storage/io/io_engine.hpp"
#include "terrace/result.hpp"

#include <filesystem>
#include <optional>

namespace terrace {

// A superblock exists twice: in the catalog's first page, and as a copy in the lock file (storage/format/format.hpp). For a
// striped store both are in its first directory.

/// The superblock of a store, as read from its files.
struct FoundSuperblock {
  std::optional<Superblock> superblock{};  ///< the one in the catalog if its checksum matches, else the copy
  bool from_copy = false;
  bool blank = false;  ///< no superblock was found, and both places are empty or zero
  ErrorCode error{};   ///< no superblock was found, and one of the places could not be read
};

/// Reads the superblock, or its copy. Blocks. The engine must have no other operation under way.
[[nodiscard]] FoundSuperblock read_superblock(IoEngine& engine, FileId catalog, FileId lock);

/// Reads the superblock of a store, or its copy, without its lock and without an engine. Nothing: there is no store in this
/// directory, or none that can be read. Blocks.
[[nodiscard]] std::optional<Superblock> look_at_superblock(const std::filesystem::path& own_directory);

/// Writes a superblock to both places, one after the other. The first is durable before the second is written. So a power failure
/// can damage only one of them, and the other one holds the old or the new superblock.
///
/// The caller submits operation() and passes its completion to ended(), until is_done(). The object owns the bytes that are
/// written, so it must outlive the operations.
class SuperblockWrite {
 public:
  void begin(const Superblock& superblock, FileId catalog, FileId lock);
  [[nodiscard]] IoOperation operation() const;
  /// Fails with an errno, or with io_failed if too few bytes were written. Then the write has ended, and each place may have the
  /// old or the new value.
  [[nodiscard]] ErrorCode ended(const IoCompletion& completion);
  [[nodiscard]] bool is_done() const { return step_ == steps; }

 private:
  static constexpr unsigned steps = 4;  ///< a write and a sync for each place

  AlignedBuffer page_{catalog_page_bytes};
  FileId catalog_;
  FileId lock_;
  unsigned step_ = steps;
};

/// Writes a superblock to both places. Blocks. The engine must have no other operation under way.
[[nodiscard]] ErrorCode write_superblock(IoEngine& engine, const Superblock& superblock, FileId catalog, FileId lock);

}  // namespace terrace
