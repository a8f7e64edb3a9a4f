#include "storage/format/format.hpp"

#include "base/check.hpp"
#include "storage/io/little_endian.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>

namespace terrace {
namespace {

constexpr std::array<char, 8> magic{'t', 'e', 'r', 'r', 'a', 'c', 'e', '\0'};
constexpr std::size_t superblock_sum_at = sector_bytes - 8;
constexpr std::size_t record_sum_at = record_bytes - 8;
constexpr std::uint64_t flag_stored = 1;
constexpr unsigned group_shift = 16;
constexpr std::uint64_t slots_max = 0xFFFF'FFFE;  // the number above it means "no slot"

static_assert(sector_bytes % record_bytes == 0, "a record must not straddle a sector");

}  // namespace

void encode(const Superblock& superblock, std::span<std::byte> page) {
  TERRACE_CHECK(page.size() == catalog_page_bytes);
  std::byte* const at = page.data();
  std::memset(at, 0, page.size());
  std::memcpy(at, magic.data(), magic.size());
  store_le32(at + 8, superblock.version);
  store_le64(at + 16, superblock.block_bytes);
  store_le64(at + 24, superblock.slots);
  store_le64(at + 32, superblock.slots_per_file);
  store_le64(at + 40, superblock.generation);
  std::memcpy(at + 48, superblock.fingerprint.data(), superblock.fingerprint.size());
  store_le64(at + 80, superblock.open_slots);
  if (superblock.version == striped_format_version) {
    store_le32(at + 88, superblock.directories);
    store_le32(at + 92, superblock.stripe_slots);
    store_le64(at + 96, superblock.id);
  }
  const std::string_view meaning = std::string_view{superblock.meaning}.substr(0, meaning_bytes_max);
  std::memcpy(at + 104, meaning.data(), meaning.size());
  store_le64(at + superblock_sum_at, plain_checksum(page.first(superblock_sum_at)));
}

Result<Superblock> decode_superblock(std::span<const std::byte> bytes) {
  if (bytes.size() < sector_bytes) return Errc::corrupt;
  const std::span<const std::byte> page = bytes.first(sector_bytes);
  const std::byte* const at = page.data();
  if (std::memcmp(at, magic.data(), magic.size()) != 0) return Errc::corrupt;
  if (load_le64(at + superblock_sum_at) != plain_checksum(page.first(superblock_sum_at))) return Errc::corrupt;
  Superblock superblock;
  superblock.version = load_le32(at + 8);
  superblock.block_bytes = load_le64(at + 16);
  superblock.slots = load_le64(at + 24);
  superblock.slots_per_file = load_le64(at + 32);
  superblock.generation = load_le64(at + 40);
  std::memcpy(superblock.fingerprint.data(), at + 48, superblock.fingerprint.size());
  superblock.open_slots = load_le64(at + 80);
  if (superblock.version == striped_format_version) {
    superblock.directories = load_le32(at + 88);
    superblock.stripe_slots = load_le32(at + 92);
    superblock.id = load_le64(at + 96);
  }
  for (const std::byte byte : page.subspan(104, meaning_bytes_max)) {
    const char letter = static_cast<char>(byte);
    if (letter < ' ' || letter > '~') break;
    superblock.meaning += letter;
  }
  return superblock;
}

bool all_zero(std::span<const std::byte> bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{0}; });
}

void encode(const CatalogRecord& record, std::span<std::byte> bytes) {
  TERRACE_CHECK(bytes.size() == record_bytes);
  std::byte* const at = bytes.data();
  std::memcpy(at, record.block.key.bytes.data(), record.block.key.bytes.size());
  std::memcpy(at + 32, record.block.parent.bytes.data(), record.block.parent.bytes.size());
  store_le64(at + 64, record.block.tenant.value());
  store_le32(at + 72, record.block.depth);
  store_le32(at + 76, record.length);
  store_le64(at + 80, record.checksum);
  store_le64(at + 88, record.fingerprint_prefix);
  store_le64(at + 96, record.generation);
  store_le64(at + 104, flag_stored | std::uint64_t{record.block.group.value()} << group_shift);
  store_le64(at + 112, record.slot);
  store_le64(at + record_sum_at, plain_checksum(bytes.first(record_sum_at)));
}

std::optional<CatalogRecord> decode_record(std::span<const std::byte> bytes) {
  TERRACE_CHECK(bytes.size() == record_bytes);
  const std::byte* const at = bytes.data();
  const std::uint64_t flags = load_le64(at + 104);
  const GroupId group{static_cast<std::uint16_t>(flags >> group_shift)};
  if (flags != (flag_stored | std::uint64_t{group.value()} << group_shift)) return std::nullopt;
  if (load_le64(at + record_sum_at) != plain_checksum(bytes.first(record_sum_at))) return std::nullopt;
  if (load_le64(at + 112) > slots_max) return std::nullopt;
  CatalogRecord record;
  std::memcpy(record.block.key.bytes.data(), at, record.block.key.bytes.size());
  std::memcpy(record.block.parent.bytes.data(), at + 32, record.block.parent.bytes.size());
  record.block.tenant = TenantId{load_le64(at + 64)};
  record.block.depth = load_le32(at + 72);
  record.block.group = group;
  record.length = load_le32(at + 76);
  record.checksum = load_le64(at + 80);
  record.fingerprint_prefix = load_le64(at + 88);
  record.generation = load_le64(at + 96);
  record.slot = static_cast<std::uint32_t>(load_le64(at + 112));
  return record;
}

BlockKey key_of_record(std::span<const std::byte> bytes) {
  TERRACE_CHECK(bytes.size() == record_bytes);
  BlockKey key;
  std::memcpy(key.bytes.data(), bytes.data(), key.bytes.size());
  return key;
}

std::uint64_t fingerprint_prefix(const Fingerprint& fingerprint) { return load_le64(fingerprint.data()); }

std::uint32_t StoreLayout::slots_in(std::uint32_t directory) const {
  if (directories == 1) return slots;
  const std::uint32_t stripes = slots / stripe_slots;
  const std::uint32_t whole = stripes / directories + (directory < stripes % directories ? 1 : 0);
  return whole * stripe_slots + (directory == stripes % directories ? slots % stripe_slots : 0);
}

std::uint32_t StoreLayout::data_files() const {
  // A directory never has fewer slots than a later one. So the directories that have a file in the last row come first.
  const std::uint32_t rows = parts(slots_in(0), slots_per_file);
  if (rows == 0) return 0;
  std::uint32_t last = 1;
  while (last < directories && parts(slots_in(last), slots_per_file) == rows) ++last;
  return (rows - 1) * directories + last;
}

Bytes StoreLayout::data_file_bytes(std::uint32_t file) const {
  const std::uint32_t before = file / directories * slots_per_file;
  return Bytes{std::min(slots_in(file % directories) - before, slots_per_file) * block_bytes};
}

Bytes StoreLayout::total_bytes() const {
  const std::uint32_t pages = directories == 1 ? 1 : 2 * directories;
  return Bytes{slots * block_bytes} + catalog_bytes() + Bytes{pages * std::uint64_t{catalog_page_bytes}};
}

std::uint32_t slots_within(Bytes capacity, std::uint64_t block_bytes, std::uint32_t directories) {
  // One page for the superblock, and at least one page for a lock file.
  constexpr std::uint64_t fixed = 2 * catalog_page_bytes;
  if (count(capacity) <= fixed) return 0;
  const std::uint64_t estimate = (count(capacity) - fixed) / (block_bytes + record_bytes);
  auto slots = static_cast<std::uint32_t>(std::min(estimate, slots_max));
  // The estimate does not count the unused part of the last page of records.
  while (slots > 0 && capacity_for(slots, Bytes{block_bytes}, directories) > capacity) --slots;
  return slots;
}

Bytes capacity_for(std::uint32_t slots, Bytes block_bytes, std::uint32_t directories) {
  return StoreLayout{count(block_bytes), slots, slots, directories, 1}.total_bytes();
}

}  // namespace terrace
