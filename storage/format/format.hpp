#pragma once

#include "base/bytes.hpp"
#include "base/result.hpp"
#include "base/strong_id.hpp"
#include "storage/index/block_store.hpp"
#include "storage/io/checksum.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

/// The file store's format, version 1; version 2 is the same striped over several directories. All numbers are little-endian.
///
/// DIR is the store's own directory, FileStoreConfig::directory / name, with mode 0700; its files have 0600.
///
///     DIR/lock          512 bytes of text: who has it, for people (storage/file/store_owner.hpp); then, 512 bytes long, a
///                       copy of the superblock. Locked while in use, as a whole and by open file (F_OFD_SETLK), so that
///                       the lock ends with its owner, however that ends
///     DIR/catalog       page 0: superblock; then records by slot number, 32 a page of 4096 bytes
///     DIR/blocks-0000   slots of block_bytes, nothing else; slot s lies in file s / slots_per_file
///     DIR/blocks-0001   ...
///
/// Striped over directories DIR, DIR1, DIR2, ...: each has a lock and data files of its own; stripes of stripe_slots slots go to
/// them in turn, the first to DIR. Within its directory a stripe lies behind those that came there before, and slots_per_file is
/// a multiple of stripe_slots.
///
///     DIR/stripe        512 bytes of text: "store ID part 1 of N" (storage/format/store_part.hpp); in DIR1 "part 2", and so on
///     DIR/stripe-1      a symbolic link to DIR1: where readers look for it; and for people
///     DIR/stripe-2      ...
///
/// Superblock, in the first 512-byte sector of its page so that no torn write leaves half of it:
///
///     offset  bytes
///          0      8  magic, "terrace" and a zero byte
///          8      4  format version
///         12      4  0
///         16      8  block_bytes
///         24      8  slots
///         32      8  slots_per_file
///         40      8  generation: how often the store has been opened
///         48     32  fingerprint of the geometry
///         80      8  of the slots, how many may hold blocks, where the store was made smaller while it served, or has slots
///                    without room; 0: all
///         88      4  directories, of version 2
///         92      4  stripe_slots, of version 2
///         96      8  id of the store, of version 2: the same in all its directories
///        504      8  XXH3-64 of the 504 bytes before
///
/// Two places. A superblock is written to the catalog's first page, and when that is durable to the copy. The catalog's is
/// believed where it checks itself; else the copy is, and the next start writes both. A store of a program that knew no copy has
/// none, and gets it by its next start: the version stays, and that program can open the store again.
///
/// Zeros in both places, and no record behind them, are a store whose making was interrupted: everything else is written before
/// its superblock, and records after it. Zeros in front of records are damage.
///
/// Record, 128 bytes, four a sector and none across two. All zeros where the slot is free:
///
///     offset  bytes
///          0     32  key
///         32     32  parent's key
///         64      8  namespace
///         72      4  depth
///         76      4  length: block_bytes
///         80      8  XXH3-64 over key, fingerprint, length and payload
///         88      8  the fingerprint's first eight bytes
///         96      8  generation: the store's count of calls when the block was placed; of two records of a key the higher
///                    one is true
///        104      8  flags: bit 0, the slot holds a block; bits 16 to 31, its group
///        112      8  slot, so that a record in another's place is none
///        120      8  XXH3-64 of the 120 bytes before
///
/// Order. A block's record is written after its data, and cleared before the next block's data are written to its slot. Nothing
/// is synced for that: it holds of what the system has, and so of a process that is killed. A power failure may keep the data
/// and lose the page. A store that becomes smaller also gives a slot's room back before the record is cleared. Then there is,
/// for a moment or until the next start, a record that its slot's data contradict. That is harmless, for the checksum covers
/// the key: the first read does not verify, and the block, which had been given up anyway, is gone.
namespace terrace {

inline constexpr std::uint32_t format_version = 1;
inline constexpr std::uint32_t striped_format_version = 2;
inline constexpr std::uint32_t directories_max = 64;
inline constexpr std::size_t catalog_page_bytes = 4096;
inline constexpr std::size_t sector_bytes = 512;
inline constexpr std::uint64_t superblock_copy_at = sector_bytes;  ///< in the lock file
inline constexpr std::size_t lock_file_bytes = 2 * sector_bytes;
inline constexpr std::size_t record_bytes = 128;
inline constexpr std::uint32_t records_per_page = catalog_page_bytes / record_bytes;

struct Superblock {
  std::uint32_t version = format_version;
  std::uint64_t block_bytes = 0;
  std::uint64_t slots = 0;
  std::uint64_t slots_per_file = 0;
  std::uint64_t generation = 0;
  Fingerprint fingerprint{};
  std::uint64_t open_slots = 0;
  std::uint32_t directories = 1;
  std::uint32_t stripe_slots = 0;  ///< where there is more than one
  std::uint64_t id = 0;            ///< the same

  friend bool operator==(const Superblock&, const Superblock&) = default;
};

struct CatalogRecord {
  StoredBlock block;
  std::uint32_t length = 0;
  std::uint64_t checksum = 0;
  std::uint64_t fingerprint_prefix = 0;
  std::uint64_t generation = 0;
  std::uint32_t slot = 0;

  friend bool operator==(const CatalogRecord&, const CatalogRecord&) = default;
};

/// `page` holds catalog_page_bytes, all of which are written.
void encode(const Superblock& superblock, std::span<std::byte> page);
/// Reads the first sector of what is given. Fails: corrupt, also where there is less than a sector. A version that is not ours is
/// the caller's affair.
[[nodiscard]] Result<Superblock> decode_superblock(std::span<const std::byte> bytes);
[[nodiscard]] bool all_zero(std::span<const std::byte> bytes);

/// `at` holds record_bytes, all of which are written.
void encode(const CatalogRecord& record, std::span<std::byte> at);
/// Nothing where there is no block, or where the bytes do not check themselves: a free slot either way.
[[nodiscard]] std::optional<CatalogRecord> decode_record(std::span<const std::byte> at);

[[nodiscard]] std::uint64_t fingerprint_prefix(const Fingerprint& fingerprint);

/// Whether this program can read it.
[[nodiscard]] constexpr bool known_version(std::uint32_t version) {
  return version == format_version || version == striped_format_version;
}

/// Where things lie, given the numbers that decide it. Data files are numbered through: file f is the (f / directories)th of
/// directory f % directories, so that those of a store that grows come at the end.
struct StoreLayout {
  std::uint64_t block_bytes = 0;
  std::uint32_t slots = 0;
  std::uint32_t slots_per_file = 0;
  std::uint32_t directories = 1;
  std::uint32_t stripe_slots = 0;  ///< where there is more than one directory

  [[nodiscard]] std::uint32_t catalog_pages() const { return parts(slots, records_per_page); }
  [[nodiscard]] Bytes catalog_bytes() const { return Bytes{(std::uint64_t{1} + catalog_pages()) * catalog_page_bytes}; }
  [[nodiscard]] std::uint64_t page_offset(std::uint32_t page) const { return (std::uint64_t{1} + page) * catalog_page_bytes; }
  [[nodiscard]] std::uint32_t data_files() const;
  [[nodiscard]] Bytes data_file_bytes(std::uint32_t file) const;
  [[nodiscard]] std::uint32_t directory_of(SlotId slot) const {
    return directories == 1 ? 0 : slot.value() / stripe_slots % directories;
  }
  [[nodiscard]] std::uint32_t file_of(SlotId slot) const {
    return place_of(slot) / slots_per_file * directories + directory_of(slot);
  }
  [[nodiscard]] std::uint64_t offset_of(SlotId slot) const { return place_of(slot) % slots_per_file * block_bytes; }
  /// Slots whose blocks lie in this directory.
  [[nodiscard]] std::uint32_t slots_in(std::uint32_t directory) const;
  /// The slot behind those from `slot` on that lie behind each other in a file.
  [[nodiscard]] std::uint64_t end_of_run(SlotId slot) const;
  /// Where the next data file, of each directory, would begin.
  [[nodiscard]] std::uint64_t next_row() const {
    const std::uint64_t row = std::uint64_t{slots_per_file} * directories;
    return (slots / row + 1) * row;
  }
  /// Everything: data, catalog, and a page for each directory's lock, two where there are several.
  [[nodiscard]] Bytes total_bytes() const;

 private:
  /// `n` divided by `size`, rounded up; the sum that one would write first may be more than 32 bits hold.
  [[nodiscard]] static std::uint32_t parts(std::uint32_t n, std::uint32_t size) { return n / size + (n % size != 0 ? 1 : 0); }
  /// Within its directory.
  [[nodiscard]] std::uint32_t place_of(SlotId slot) const {
    if (directories == 1) return slot.value();
    return slot.value() / stripe_slots / directories * stripe_slots + slot.value() % stripe_slots;
  }
};

/// The most slots whose store stays within `capacity`; 0 where not even one does. Capped at 2^32 - 2.
[[nodiscard]] std::uint32_t slots_within(Bytes capacity, std::uint64_t block_bytes, std::uint32_t directories = 1);
/// The capacity of which a store of this many slots makes use: the inverse of slots_within().
[[nodiscard]] Bytes capacity_for(std::uint32_t slots, Bytes block_bytes, std::uint32_t directories = 1);

}  // namespace terrace
