#pragma once

#include "base/block_key.hpp"
#include "base/bytes.hpp"
#include "storage/file/store_owner.hpp"
#include "storage/format/catalog_scan.hpp"
#include "storage/format/format.hpp"
#include "storage/io/aligned_buffer.hpp"
#include "storage/io/posix_calls.hpp"

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

/// A file store looked at from outside: reads, and never writes, locks, makes or resizes anything, so that it works beside the
/// store's owner as well as without one. The catalog is read once, when this is made; data are read when they are asked for, a
/// piece at a time. Where the superblock is damaged, its copy is believed.
///
/// Trusts nothing: whatever the files say, the memory that this takes grows with what they really hold. Holes of a catalog are
/// passed over unread.
///
/// Beside an owner. Pages of the catalog go out one by one, so that what was read is not one moment's truth: a block may lack
/// a parent that was stored a moment later, and count as an orphan. A record that was caught while it was being written does
/// not check itself, and is read again. A block's data may be another block's by the time they are read: verify() therefore
/// looks at the record again where data do not verify. If it is another one, the block has `changed`. If it is the same, that
/// is still no proof, since an owner that becomes smaller gives a slot's room back before it clears the record
/// (storage/format/format.hpp, "Order"): while there is an owner, the answer is `doubtful`, and becomes `corrupt` only if it
/// stays so for longer than owners take to write a page. Whether there is an owner is found out before the record is read again,
/// so that an owner who ends in between has written the record that is then read.
///
/// Without an owner all of it is exact, with one exception that a power failure leaves, or the end by force of an owner that was
/// becoming smaller: a block that it had given up may still have its record, and then does not verify.
///
/// Threads: verify(), record() and in_use() from any; the rest is constant.
class StoreReader {
 public:
  /// `directory`: the store's own, or the one in which a store of the default name has its own.
  /// Throws std::system_error, one sentence: an errno (no such directory, not readable), or incompatible (no store, another
  /// version, a catalog that is cut short or whose superblock is damaged). `go_on` is asked before each piece of the catalog;
  /// where it returns false this throws ECANCELED. `calls` outlives it.
  explicit StoreReader(
      std::filesystem::path directory, PosixCalls& calls = PosixCalls::system(),
      const std::function<bool()>& go_on = [] { return true; });
  ~StoreReader();
  StoreReader(const StoreReader&) = delete;
  StoreReader& operator=(const StoreReader&) = delete;

  /// The store's own.
  [[nodiscard]] const std::filesystem::path& directory() const { return directory_; }
  /// Of a store that is striped, the further ones, in their order; where a link is missing, the link.
  [[nodiscard]] std::vector<std::filesystem::path> more_directories() const;
  /// Of those, the ones that were not there, or held no part of this store, when this was made. What the catalog says of their
  /// blocks is taken as true.
  [[nodiscard]] std::vector<std::filesystem::path> missing_directories() const;
  /// Whether the block lies in one of them.
  [[nodiscard]] bool missing(const CatalogRecord& block) const { return missing_[layout_.directory_of(SlotId{block.slot})]; }
  /// Of catalog().blocks(), those.
  [[nodiscard]] std::uint64_t missing_blocks() const;
  [[nodiscard]] const Superblock& superblock() const { return superblock_; }
  [[nodiscard]] const StoreLayout& layout() const { return layout_; }
  [[nodiscard]] const CatalogScan& catalog() const { return *survey_; }
  /// The block, or orphan, of this key.
  [[nodiscard]] const CatalogRecord* find(const BlockKey& key) const;

  /// Whether somebody has the store now.
  [[nodiscard]] bool in_use() const;
  /// What the lock file says, which means something only while the store is in use.
  [[nodiscard]] std::optional<StoreOwner> owner() const;

  struct Location {
    std::filesystem::path file;
    std::uint64_t offset = 0;
  };
  [[nodiscard]] Location location(std::uint32_t slot) const;
  /// What the store's files take of the disk now.
  [[nodiscard]] Bytes allocated() const;

  enum class Verdict : unsigned char { verified, changed, doubtful, corrupt, unreadable, missing };
  struct Verified {
    Verdict verdict = Verdict::verified;
    int error = 0;  ///< of `unreadable`: an errno, or 0 where the file ended
  };
  /// Memory for verify(): a piece of a block, or all of it.
  [[nodiscard]] AlignedBuffer make_scratch() const;
  /// Reads the block's data, through `scratch`, and compares them with its checksum. `scratch` is aligned to io_alignment, and a
  /// multiple of that long.
  [[nodiscard]] Verified verify(const CatalogRecord& block, std::span<std::byte> scratch) const;
  /// The same; what is doubtful is read again until it is not, or is corrupt when `patience` has passed. Blocks so long.
  [[nodiscard]] Verified verify(const CatalogRecord& block, std::chrono::milliseconds patience) const;

  /// The slot's record as it is now; nothing where there is none that checks itself. Fails: an errno.
  [[nodiscard]] Result<std::optional<CatalogRecord>> record(std::uint32_t slot) const;

 private:
  struct File {
    int fd = -1;
    bool direct = false;
    int error = 0;  ///< why it is not open
    std::uint64_t bytes = 0;
  };

  [[nodiscard]] File open(const std::filesystem::path& path, bool direct) const;
  /// Opened when it is asked for first; stays open.
  [[nodiscard]] File data_file(std::uint32_t number) const;
  /// The bytes that were there, or an errno.
  [[nodiscard]] Result<std::uint64_t> read(int fd, std::span<std::byte> into, std::uint64_t offset) const;
  void open_catalog();
  void read_superblock();
  void find_missing();
  void read_records(const std::function<bool()>& go_on);
  /// Where the catalog's next data begin, from a page on that is not beyond `end`; `end` where there are none.
  [[nodiscard]] std::uint64_t next_data(std::uint64_t at, std::uint64_t end) const;
  /// The block's checksum, or no value where its file ends too soon. Fails: an errno.
  [[nodiscard]] Result<std::optional<std::uint64_t>> checksum(const File& file, const CatalogRecord& block,
                                                              std::span<std::byte> scratch) const;
  void close() noexcept;
  [[nodiscard]] std::filesystem::path data_path(std::uint32_t number) const;

  std::filesystem::path directory_;
  PosixCalls& calls_;
  Superblock superblock_;
  StoreLayout layout_;
  std::vector<bool> missing_;  ///< by directory
  std::optional<CatalogScan> survey_;
  std::vector<std::pair<BlockKey, const CatalogRecord*>> by_key_;  ///< sorted
  File catalog_;
  File lock_;
  mutable std::mutex opening_;
  mutable std::map<std::uint32_t, File> data_;  ///< opening_'s
};

}  // namespace terrace
