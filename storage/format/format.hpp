#pragma once

#include "storage/io/checksum.hpp"
#include "terrace/block_store.hpp"
#include "terrace/result.hpp"
#include "terrace/types.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

/// The format of the file store on disk. Version 1 uses one directory. Version 2 is the same format striped over several
/// directories. All numbers are little-endian.
///
/// DIR is the store's own directory, FileStoreConfig::directory / name. It has mode 0700, and its files have mode 0600.
///
///     DIR/lock          512 bytes of text that name the owner, for people to read (storage/file/store_owner.hpp). Then 512 bytes
///                       with a copy of the superblock. The owner locks the whole file with F_OFD_SETLK. So the lock ends
///                       when the owner's process ends, also if it is killed. Then up to six sectors of text that say who has
///                       used the store (storage/format/store_label.hpp)
///     DIR/catalog       page 0 is the superblock. Then come the records in the order of slot numbers, 32 in a page of 4096 bytes
///     DIR/blocks-0000   slots of block_bytes, and nothing else. Slot s lies in file s / slots_per_file
///     DIR/blocks-0001   ...
///
/// A striped store lies in the directories DIR, DIR1, DIR2, and so on. Each of them has its own lock file and data files. Slots
/// are grouped into stripes of stripe_slots slots. The stripes are distributed over the directories in turn, beginning with DIR.
/// Within a directory the stripes follow each other without gaps. slots_per_file is a multiple of stripe_slots.
///
///     DIR/stripe        512 bytes of text: "store ID part 1 of N" (storage/format/store_name.hpp). DIR1 has "part 2", and so on
///     DIR/stripe-1      a symbolic link to DIR1, for readers (storage/offline/store_reader.hpp) and for people
///     DIR/stripe-2      ...
///
/// The superblock lies in the first 512-byte sector of its page, so that a torn write cannot leave half of it:
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
///         80      8  how many of the slots may hold blocks. It is less than `slots` if the store was made smaller while it
///                    served, or has slots without disk space. 0: all of them
///         88      4  number of directories (version 2 only)
///         92      4  stripe_slots (version 2 only)
///         96      8  id of the store, the same in all its directories (version 2 only)
///        104    128  for people: what the fingerprint was made of, as text with zeros behind it. May be empty
///        504      8  XXH3-64 of the 504 bytes before
///
/// The superblock exists twice. It is written to the first page of the catalog, and when that is durable, to the copy in the lock
/// file. A reader uses the one in the catalog if its checksum matches, and the copy if not; the next start then writes both. A
/// store that was written by an older program has no copy, and gets one at its next start. The version number stays the same, so
/// that the older program can still open the store.
///
/// If both places are zero and no record follows, the creation of the store was interrupted: all other files are written before
/// the superblock, and records are written after it. If both places are zero and a record follows, the store is damaged.
///
/// A record has 128 bytes. A sector holds four records, and no record lies across two sectors. A record is all zeros if its slot
/// is free:
///
///     offset  bytes
///          0     32  key
///         32     32  parent's key
///         64      8  tenant ("namespace" in reports); for a block without one, that of the label under which it was written
///         72      4  depth
///         76      4  length: block_bytes
///         80      8  XXH3-64 over key, fingerprint, length and payload
///         88      8  the fingerprint's first eight bytes
///         96      8  generation: the value of the store's call counter when the block was placed. Of two records with the same
///                    key, the one with the higher generation is valid
///        104      8  flags: bit 0, the slot holds a block; bits 16 to 31, its group
///        112      8  slot number. A record that lies in the place of another slot is invalid
///        120      8  XXH3-64 of the 120 bytes before
///
/// Order of writes. The record of a block is written after its data. It is cleared before the data of the next block are written
/// to the slot. There is no sync between these writes, so only the order of the calls to the operating system is guaranteed. It
/// survives the end of the process, but not a power failure, which may keep the data and lose the page of the catalog. Also, a
/// store that becomes smaller returns the disk space of a slot before it clears the record. In both cases there may be a record
/// that does not match the data in its slot, for a moment or until the next start. This is harmless. The checksum covers the key,
/// so the first read finds the mismatch and drops the block, which had been evicted already.
namespace terrace {

inline constexpr std::uint32_t format_version = 1;
inline constexpr std::uint32_t striped_format_version = 2;
inline constexpr std::uint32_t directories_max = 64;
inline constexpr std::size_t catalog_page_bytes = 4096;
inline constexpr std::size_t sector_bytes = 512;
inline constexpr std::uint64_t superblock_copy_at = sector_bytes;  ///< in the lock file
inline constexpr std::size_t lock_file_bytes = 2 * sector_bytes;   ///< without labels
inline constexpr std::uint64_t labels_at = lock_file_bytes;        ///< in the lock file
inline constexpr std::size_t record_bytes = 128;
inline constexpr std::size_t meaning_bytes_max = 128;
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
  std::uint32_t stripe_slots = 0;  ///< meaningful only if directories > 1
  std::uint64_t id = 0;            ///< meaningful only if directories > 1
  std::string meaning{};           ///< the input of the fingerprint as text; printable ASCII, meaning_bytes_max at most

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

/// `page` holds catalog_page_bytes. The call writes all of them.
void encode(const Superblock& superblock, std::span<std::byte> page);
/// Decodes the first sector of `bytes`. Fails with corrupt if the sector is damaged, or if `bytes` is shorter than a sector. An
/// unknown version is not an error here; the caller checks it with known_version().
[[nodiscard]] Result<Superblock> decode_superblock(std::span<const std::byte> bytes);
[[nodiscard]] bool all_zero(std::span<const std::byte> bytes);

/// `at` holds record_bytes. The call writes all of them.
void encode(const CatalogRecord& record, std::span<std::byte> at);
/// Returns nothing if the record is empty or its checksum does not match. The slot counts as free in both cases.
[[nodiscard]] std::optional<CatalogRecord> decode_record(std::span<const std::byte> at);

/// Returns the key in the record without any check.
[[nodiscard]] BlockKey key_of_record(std::span<const std::byte> at);

[[nodiscard]] std::uint64_t fingerprint_prefix(const Fingerprint& fingerprint);

/// Returns true if this program can read a store of this version.
[[nodiscard]] constexpr bool known_version(std::uint32_t version) {
  return version == format_version || version == striped_format_version;
}

/// Computes the positions of the blocks and files of a store. The data files of all directories share one numbering: file f is
/// file number f / directories of directory f % directories. So new files of a growing store always get the highest numbers.
struct StoreLayout {
  std::uint64_t block_bytes = 0;
  std::uint32_t slots = 0;
  std::uint32_t slots_per_file = 0;
  std::uint32_t directories = 1;
  std::uint32_t stripe_slots = 0;  ///< meaningful only if directories > 1

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
  /// The number of slots whose blocks lie in this directory.
  [[nodiscard]] std::uint32_t slots_in(std::uint32_t directory) const;
  /// The largest number of slots that follow each other in one file.
  [[nodiscard]] std::uint32_t run_slots() const { return directories == 1 ? slots_per_file : stripe_slots; }
  /// The first slot after `slot` that does not follow its predecessor in the same file.
  [[nodiscard]] std::uint64_t end_of_run(SlotId slot) const {
    return (slot.value() / run_slots() + std::uint64_t{1}) * run_slots();
  }
  /// The first slot of the next row of data files. A row has one file in each directory.
  [[nodiscard]] std::uint64_t next_row() const {
    const std::uint64_t row = std::uint64_t{slots_per_file} * directories;
    return (slots / row + 1) * row;
  }
  /// The size of the whole store: data, catalog, and lock files (one page for a single directory, else two pages for each
  /// directory).
  [[nodiscard]] Bytes total_bytes() const;

 private:
  /// Returns `n` divided by `size`, rounded up. The usual form (n + size - 1) / size could overflow 32 bits.
  [[nodiscard]] static std::uint32_t parts(std::uint32_t n, std::uint32_t size) { return n / size + (n % size != 0 ? 1 : 0); }
  /// The position of the slot within its directory.
  [[nodiscard]] std::uint32_t place_of(SlotId slot) const {
    if (directories == 1) return slot.value();
    return slot.value() / stripe_slots / directories * stripe_slots + slot.value() % stripe_slots;
  }
};

/// The largest number of slots whose store fits into `capacity`, at most 2^32 - 2. Returns 0 if not even one slot fits.
[[nodiscard]] std::uint32_t slots_within(Bytes capacity, std::uint64_t block_bytes, std::uint32_t directories = 1);
/// The size of a store with this many slots. It is the inverse of slots_within().
[[nodiscard]] Bytes capacity_for(std::uint32_t slots, Bytes block_bytes, std::uint32_t directories = 1);

}  // namespace terrace
