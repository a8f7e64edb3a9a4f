#pragma once

#include "base/descriptor.hpp"
#include "storage/file/store_owner.hpp"
#include "storage/format/catalog_scan.hpp"
#include "storage/format/format.hpp"
#include "storage/format/store_label.hpp"
#include "storage/io/aligned_buffer.hpp"
#include "storage/io/posix_calls.hpp"
#include "terrace/types.hpp"

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

namespace terrace {

/// Returns the directories of the stores in `directory`: `directory` itself, or store directories up to three levels below it,
/// sorted. Further directories of striped stores, symbolic links, and unreadable directories are left out.
[[nodiscard]] std::vector<std::filesystem::path> stores_below(const std::filesystem::path& directory);

/// Reads a file store from outside. It never writes, locks, makes or resizes a file, so it works with or without a process that
/// has the store open (its owner). The constructor reads the catalog once; data are read on request, piece by piece. If the
/// superblock is damaged, its copy is used.
///
/// Threads: verify(), record() and in_use() from any; everything else is constant. Errors: see the constructor and verify(). The
/// files may contain any bytes. Memory use depends on the actual contents of the files, not on numbers in them. Holes in the
/// catalog are not read.
///
/// With an owner. The owner writes the catalog page by page, so the result is not a snapshot: a block may count as an orphan
/// because its parent was stored a moment later. A record that was read during its write has a wrong checksum, and is read again.
/// The data of a block may have been replaced before they are read. So if data do not match, verify() reads the record again. If
/// the record has changed, the result is `changed`. If it is the same, the mismatch may be harmless, because an owner that makes
/// the store smaller returns a slot's space before it clears the record (storage/format/format.hpp, "Order of writes"). So while
/// there is an owner, the result is `doubtful`. It becomes `corrupt` only if it stays `doubtful` for longer than an owner needs
/// to write a page. The check for an owner comes before the second read of the record, so that an owner that ends in between has
/// written the record that is then read.
///
/// Without an owner the result is exact, with one exception: after a power failure, or after an owner was killed while it made
/// the store smaller, an evicted block may still have its record, which then does not match the data.
class StoreReader {
 public:
  /// `directory` is the store's own directory, or a directory in which a store with the default name has its own. Throws
  /// std::system_error with one sentence: an errno (no such directory, not readable), or incompatible (no store, another version,
  /// a truncated catalog, a damaged superblock). `go_on` is called before each piece of the catalog; if it returns false, this
  /// throws ECANCELED. `calls` must outlive this object.
  explicit StoreReader(
      std::filesystem::path directory, PosixCalls& calls = PosixCalls::system(),
      const std::function<bool()>& go_on = [] { return true; });

  /// The store's own directory.
  [[nodiscard]] const std::filesystem::path& directory() const { return directory_; }
  /// The further directories of a striped store, in their order. If a link cannot be read, the path of the link itself.
  [[nodiscard]] std::vector<std::filesystem::path> more_directories() const;
  /// The further directories that did not exist, or held no part of this store, when the constructor ran. The records of blocks
  /// in them are assumed to be valid.
  [[nodiscard]] std::vector<std::filesystem::path> missing_directories() const;
  /// Returns true if the block lies in a missing directory.
  [[nodiscard]] bool missing(const CatalogRecord& block) const { return missing_[layout_.directory_of(SlotId{block.slot})]; }
  /// Returns how many blocks in catalog().blocks() lie in missing directories.
  [[nodiscard]] std::uint64_t missing_blocks() const;
  [[nodiscard]] const Superblock& superblock() const { return superblock_; }
  [[nodiscard]] const StoreLayout& layout() const { return layout_; }
  [[nodiscard]] const CatalogScan& catalog() const { return *scan_; }
  /// Returns the block or orphan with this key, or null.
  [[nodiscard]] const CatalogRecord* find(const BlockKey& key) const;

  /// Returns true if a process has the store open now.
  [[nodiscard]] bool in_use() const;
  /// Returns the owner that the lock file names. This is meaningful only while the store is in use.
  [[nodiscard]] std::optional<StoreOwner> owner() const;
  /// Returns the recorded users of the store, the last one first.
  [[nodiscard]] std::vector<StoreLabel> labels() const;
  /// Returns when a file of the store was last written. A serving store writes at least when it makes blocks durable.
  [[nodiscard]] std::chrono::system_clock::time_point last_written() const;

  struct Location {
    std::filesystem::path file;
    std::uint64_t offset = 0;
  };
  [[nodiscard]] Location location(std::uint32_t slot) const;
  /// The disk space that the store's files use now.
  [[nodiscard]] Bytes allocated() const;

  enum class Verdict : unsigned char { verified, changed, doubtful, corrupt, unreadable, missing };
  struct Verified {
    Verdict verdict = Verdict::verified;
    int error = 0;  ///< for `unreadable`: an errno, or 0 if the file is too short
  };
  /// Makes a buffer for verify(). It holds a whole block, or a piece of one if blocks are large.
  [[nodiscard]] AlignedBuffer make_scratch() const;
  /// Reads the data of the block through `scratch` and compares their checksum with the record. `scratch` must be aligned to
  /// io_alignment, and its size must be a multiple of that.
  [[nodiscard]] Verified verify(const CatalogRecord& block, std::span<std::byte> scratch) const;
  /// Does the same, but reads a `doubtful` block again until it has another verdict. After `patience` the verdict is `corrupt`.
  /// Blocks until then.
  [[nodiscard]] Verified verify(const CatalogRecord& block, std::chrono::milliseconds patience) const;

  /// Reads the current record of the slot. Returns nothing if the slot has no valid record. Fails with an errno.
  [[nodiscard]] Result<std::optional<CatalogRecord>> record(std::uint32_t slot) const;

 private:
  struct File {
    Descriptor fd{};
    bool direct = false;
    int error = 0;  ///< why the file is not open
    std::uint64_t bytes = 0;
  };

  [[nodiscard]] File open(const std::filesystem::path& path, bool direct) const;
  /// Opens the file at its first use; it stays open.
  [[nodiscard]] const File& data_file(std::uint32_t number) const;
  /// Returns how many bytes were read (none, if the file is not open), or an errno.
  [[nodiscard]] Result<std::uint64_t> read(const File& file, std::span<std::byte> into, std::uint64_t offset) const;
  void open_catalog();
  void read_superblock();
  void find_missing();
  void read_records(const std::function<bool()>& go_on);
  /// Returns the first page at or after `at` that has data, or `end` if no page before `end` has any.
  [[nodiscard]] std::uint64_t next_data(std::uint64_t at, std::uint64_t end) const;
  /// Returns the checksum of the block's data, or no value if the file is too short. Fails with an errno.
  [[nodiscard]] Result<std::optional<std::uint64_t>> checksum(const File& file, const CatalogRecord& block,
                                                              std::span<std::byte> scratch) const;
  [[nodiscard]] std::filesystem::path data_path(std::uint32_t number) const;
  /// Calls visit(struct stat) for each entry of the store's directories.
  template <class Visit>
  void for_each_entry(Visit visit) const;

  std::filesystem::path directory_;
  PosixCalls& calls_;
  Superblock superblock_;
  StoreLayout layout_;
  std::vector<bool> missing_;  ///< by directory
  std::optional<CatalogScan> scan_;
  std::vector<std::pair<BlockKey, const CatalogRecord*>> by_key_;  ///< sorted
  File catalog_;
  File lock_;
  mutable std::mutex opening_;
  mutable std::map<std::uint32_t, File> data_;  ///< guarded by opening_
};

}  // namespace terrace
