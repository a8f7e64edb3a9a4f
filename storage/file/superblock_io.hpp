#pragma once

#include "base/result.hpp"
#include "storage/format/format.hpp"
#include "storage/io/aligned_buffer.hpp"
#include "storage/io/io_engine.hpp"

#include <optional>

namespace terrace {

// A superblock has two places: the catalog's first page, and a copy in the lock file (storage/format/format.hpp). Both of a
// striped store are in its first directory.

/// The superblock of a store, as its files have it.
struct FoundSuperblock {
  std::optional<Superblock> superblock{};  ///< the catalog's where that checks itself, else the copy
  bool from_copy = false;
  bool blank = false;  ///< there is none, and both places are empty or zeros
  ErrorCode error{};   ///< there is none, and a place could not be read
};

/// Blocks. The engine has nothing else under way.
[[nodiscard]] FoundSuperblock read_superblock(IoEngine& engine, FileId catalog, FileId lock);

/// Writes a superblock to both places. The first is durable before the second is touched, and the second before this ends. So a
/// power failure tears one of them at most, and the other one is what the store was before or is now.
///
/// The caller submits operation(), and tells ended() how it went, until is_done(). Owns the bytes that are written, and so
/// outlives the operations.
class SuperblockWrite {
 public:
  void begin(const Superblock& superblock, FileId catalog, FileId lock);
  [[nodiscard]] IoOperation operation() const;
  /// Fails: an errno, or io_failed where too little was written. Then the write is over, and either place may have either value.
  [[nodiscard]] ErrorCode ended(const IoCompletion& completion);
  [[nodiscard]] bool is_done() const { return step_ == steps; }

 private:
  static constexpr unsigned steps = 4;  ///< write and sync, of each place

  AlignedBuffer page_{catalog_page_bytes};
  FileId catalog_;
  FileId lock_;
  unsigned step_ = steps;
};

/// The whole write. Blocks. The engine has nothing else under way.
[[nodiscard]] ErrorCode write_superblock(IoEngine& engine, const Superblock& superblock, FileId catalog, FileId lock);

}  // namespace terrace
