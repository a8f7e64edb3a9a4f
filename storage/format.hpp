#pragma once

#include "base/bytes.hpp"
#include "base/result.hpp"
#include "base/strong_id.hpp"
#include "storage/block_store.hpp"
#include "storage/checksum.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

/// The file store's format, version 1. All numbers are little-endian.
///
///     DIR/lock          512 bytes of text: who has it, for people (storage/store_owner.hpp); locked while in use, as a whole and
///                       by open file (F_OFD_SETLK), so that the lock ends with its owner, however that ends
///     DIR/catalog       page 0: superblock; then records by slot number, 32 a page of 4096 bytes
///     DIR/blocks-0000   slots of block_bytes, nothing else; slot s lies in file s / slots_per_file
///     DIR/blocks-0001   ...
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
///         80      8  of the slots, how many may hold blocks, where the store was made smaller while it served; 0: all
///        504      8  XXH3-64 of the 504 bytes before
///
/// A page of zeros is a store whose making was interrupted: everything else is written before its superblock.
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
/// Order. A block's record is written after its data. A block that is given up leaves its slot at once, and its record may
/// be cleared later than the next block's data are written: the page goes out when it can, and nobody waits for it. A crash
/// in between leaves a record that its slot's data contradict. That is harmless, for the checksum covers the key: the first
/// read does not verify, and the block, which had been given up anyway, is gone. To clear first would put a write of the
/// catalog before every write into a full store.
namespace terrace {

inline constexpr std::uint32_t format_version = 1;
inline constexpr std::size_t catalog_page_bytes = 4096;
inline constexpr std::size_t sector_bytes = 512;
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
/// Fails: corrupt. A version that is not ours is the caller's affair.
[[nodiscard]] Result<Superblock> decode_superblock(std::span<const std::byte> page);
[[nodiscard]] bool all_zero(std::span<const std::byte> bytes);

/// `at` holds record_bytes, all of which are written.
void encode(const CatalogRecord& record, std::span<std::byte> at);
/// Nothing where there is no block, or where the bytes do not check themselves: a free slot either way.
[[nodiscard]] std::optional<CatalogRecord> decode_record(std::span<const std::byte> at);

[[nodiscard]] std::uint64_t fingerprint_prefix(const Fingerprint& fingerprint);

/// Where things lie, given the three numbers that decide it.
struct StoreLayout {
  std::uint64_t block_bytes = 0;
  std::uint32_t slots = 0;
  std::uint32_t slots_per_file = 0;

  [[nodiscard]] std::uint32_t catalog_pages() const { return parts(slots, records_per_page); }
  [[nodiscard]] Bytes catalog_bytes() const { return Bytes{(std::uint64_t{1} + catalog_pages()) * catalog_page_bytes}; }
  [[nodiscard]] std::uint64_t page_offset(std::uint32_t page) const {
    return (std::uint64_t{1} + page) * catalog_page_bytes;
  }
  [[nodiscard]] std::uint32_t data_files() const { return parts(slots, slots_per_file); }
  [[nodiscard]] Bytes data_file_bytes(std::uint32_t file) const;
  [[nodiscard]] std::uint32_t file_of(SlotId slot) const { return slot.value() / slots_per_file; }
  [[nodiscard]] std::uint64_t offset_of(SlotId slot) const { return slot.value() % slots_per_file * block_bytes; }
  /// Everything: data, catalog, and a page for the lock.
  [[nodiscard]] Bytes total_bytes() const;

 private:
  /// `n` divided by `size`, rounded up; the sum that one would write first may be more than 32 bits hold.
  [[nodiscard]] static std::uint32_t parts(std::uint32_t n, std::uint32_t size) { return n / size + (n % size != 0 ? 1 : 0); }
};

/// The most slots whose store stays within `capacity`; 0 where not even one does. Capped at 2^32 - 2.
[[nodiscard]] std::uint32_t slots_within(Bytes capacity, std::uint64_t block_bytes);
/// The capacity of which a store of this many slots makes use: the inverse of slots_within().
[[nodiscard]] Bytes capacity_for(std::uint32_t slots, Bytes block_bytes);

}  // namespace terrace
