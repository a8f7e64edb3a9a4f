#include "storage/shared/shared_value.hpp"

#include "base/check.hpp"
#include "storage/io/little_endian.hpp"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstring>

namespace terrace {
namespace {

constexpr std::array<std::byte, 4> magic{std::byte{'T'}, std::byte{'R'}, std::byte{'S'}, std::byte{'V'}};
constexpr std::byte sealed{1};

constexpr std::size_t at_version = 4;
constexpr std::size_t at_flags = 5;
constexpr std::size_t at_part = 6;
constexpr std::size_t at_parts = 7;
constexpr std::size_t at_group = 8;
constexpr std::size_t at_depth = 12;
constexpr std::size_t at_length = 16;
constexpr std::size_t at_write_id = 20;
constexpr std::size_t at_fingerprint = 32;
constexpr std::size_t at_key = 48;
constexpr std::size_t at_parent = 80;
constexpr std::size_t at_checksum = 112;
constexpr std::size_t at_header_checksum = 120;
constexpr std::size_t fingerprint_bytes = at_key - at_fingerprint;
constexpr std::size_t associated_bytes = at_checksum;

constexpr std::uint64_t two_parts_from = std::uint64_t{16} << 10;
/// Header (128 bytes), and the engine's overhead for each value.
constexpr std::uint64_t room_beside_payload = 192;

/// Makes a header with all fields that do not depend on the part and the write.
SharedValueHeader common_header(const StoredBlock& block, const Fingerprint& fingerprint, std::uint64_t block_bytes,
                                const SharedParts& parts, bool seals) {
  SharedValueHeader header{};
  std::memcpy(header.data(), magic.data(), magic.size());
  header[at_version] = std::byte{shared_value_version};
  if (seals) header[at_flags] = sealed;
  header[at_parts] = static_cast<std::byte>(parts.count);
  store_le32(&header[at_group], block.group.value());
  store_le32(&header[at_depth], block.depth);
  store_le32(&header[at_length], static_cast<std::uint32_t>(block_bytes));
  std::memcpy(&header[at_fingerprint], fingerprint.data(), fingerprint_bytes);
  std::memcpy(&header[at_key], block.key.bytes.data(), block.key.bytes.size());
  std::memcpy(&header[at_parent], block.parent.bytes.data(), block.parent.bytes.size());
  return header;
}

std::span<const std::byte> associated_with(const SharedValueHeader& header) { return std::span{header}.first(associated_bytes); }

std::uint64_t header_checksum(std::span<const std::byte> header) { return plain_checksum(header.first(at_header_checksum)); }

SealingCipher::Nonce nonce_of(const SharedValueHeader& header) {
  SealingCipher::Nonce nonce;
  std::memcpy(nonce.data(), &header[at_write_id], nonce.size());
  nonce.back() ^= header[at_part];
  return nonce;
}

bool agree(std::span<const std::byte> header, const SharedValueHeader& wanted, std::size_t from, std::size_t to) {
  return std::memcmp(header.data() + from, wanted.data() + from, to - from) == 0;
}

constexpr std::size_t prefix_length_max = 64;
constexpr std::size_t name_fingerprint_bytes = 16;

void append_number(std::string& out, std::uint32_t number, int base) {
  std::array<char, 16> text;
  const auto end = std::to_chars(text.data(), text.data() + text.size(), number, base);
  out.append(text.data(), end.ptr);
}

}  // namespace

const char* to_string(SharedMismatch mismatch) noexcept {
  switch (mismatch) {
    case SharedMismatch::format: return "format";
    case SharedMismatch::key: return "key";
    case SharedMismatch::fingerprint: return "fingerprint";
    case SharedMismatch::length: return "length";
    case SharedMismatch::checksum: return "checksum";
    case SharedMismatch::seal: return "seal";
  }
  return "unknown";
}

SharedWriteId SharedWriteIds::next() {
  const SharedWriteId id = next_;
  store_le64(next_.data(), load_le64(next_.data()) + 1);
  return id;
}

// ---- parts -------------------------------------------------------------------------------------------------------------

SharedParts shared_parts(std::uint64_t block_bytes) noexcept {
  if (block_bytes < two_parts_from) return {1, {block_bytes, 0}};
  const std::uint64_t step = std::bit_floor(block_bytes) / 4;
  const std::uint64_t first = block_bytes / step * step - room_beside_payload;
  return {2, {first, block_bytes - first}};
}

// ---- names -------------------------------------------------------------------------------------------------------------

bool SharedValueNames::is_prefix(std::string_view prefix) noexcept {
  return !prefix.empty() && prefix.size() <= prefix_length_max && std::ranges::all_of(prefix, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view{"-_.:/"}.find(c) != std::string_view::npos;
  });
}

SharedValueNames::SharedValueNames(std::string_view prefix, const Fingerprint& fingerprint) : start_{prefix} {
  TERRACE_CHECK(is_prefix(prefix));
  start_ += ':';
  append_number(start_, shared_value_version, 10);
  start_ += ':';
  use(fingerprint);
}

void SharedValueNames::use(const Fingerprint& fingerprint) {
  with_fingerprint_ = start_;
  with_fingerprint_ += to_hex(BlockKey{fingerprint}).substr(0, 2 * name_fingerprint_bytes);
  with_fingerprint_ += ":{";
}

std::string SharedValueNames::name(const BlockKey& key, GroupId group, std::uint32_t part) const {
  std::string text = with_fingerprint_;
  append_number(text, group.value(), 16);
  text += ':';
  text += to_hex(key);
  text += "}:";
  append_number(text, part, 10);
  return text;
}

// ---- writer ------------------------------------------------------------------------------------------------------------

void SharedValueWriter::begin(const StoredBlock& block, const Fingerprint& fingerprint, std::span<const std::byte> from,
                              const SharedWriteId& id) {
  TERRACE_CHECK(from.size() <= shared_block_bytes_max);
  fingerprint_ = fingerprint;
  from_ = from;
  parts_ = shared_parts(from.size());
  header_ = common_header(block, fingerprint, from.size(), parts_, seals());
  std::memcpy(&header_[at_write_id], id.data(), id.size());
  if (secret_) key_ = secret_->key_of(block.key, fingerprint);
}

SharedValueWriter::Part SharedValueWriter::make(std::uint32_t part, std::span<std::byte> scratch) {
  TERRACE_CHECK(part < parts_.count);
  Part made{header_, from_.subspan(parts_.offset(part), parts_.bytes[part])};
  made.header[at_part] = static_cast<std::byte>(part);
  if (secret_) {
    TERRACE_CHECK(scratch.size() >= made.payload.size());
    cipher_.begin(SealingCipher::To::seal, key_, nonce_of(made.header), associated_with(made.header));
    cipher_.add(made.payload, scratch.data());
    made.payload = scratch.first(made.payload.size());
    const SealingCipher::Tag tag = cipher_.end_sealing();
    std::memcpy(&made.header[at_checksum], tag.data(), tag.size());
  } else {
    BlockKey key;
    std::memcpy(key.bytes.data(), &header_[at_key], key.bytes.size());
    store_le64(&made.header[at_checksum], payload_checksum(key, fingerprint_, made.payload));
    store_le64(&made.header[at_header_checksum], header_checksum(made.header));
  }
  return made;
}

// ---- reader ------------------------------------------------------------------------------------------------------------

void SharedValueReader::begin(const StoredBlock& wanted, const Fingerprint& fingerprint, std::uint64_t block_bytes) {
  TERRACE_CHECK(block_bytes <= shared_block_bytes_max);
  fingerprint_ = fingerprint;
  parts_ = shared_parts(block_bytes);
  wanted_ = common_header(wanted, fingerprint, block_bytes, parts_, secret_ != nullptr);
  if (secret_) key_ = secret_->key_of(wanted.key, fingerprint);
  mismatch_.reset();
  write_id_.reset();
  verified_ = 0;
  left_ = 0;
}

SharedValueReader::Mismatch SharedValueReader::check(std::uint32_t part, std::uint64_t value_bytes,
                                                     std::span<const std::byte> header) const {
  if (value_bytes < shared_header_bytes || header.size() < shared_header_bytes) return SharedMismatch::format;
  if (!agree(header, wanted_, 0, at_flags)) return SharedMismatch::format;
  const std::byte flags = header[at_flags];
  if ((flags & ~sealed) != std::byte{}) return SharedMismatch::format;
  if (flags != wanted_[at_flags]) return SharedMismatch::seal;
  if (!secret_ && load_le64(&header[at_header_checksum]) != header_checksum(header)) return SharedMismatch::checksum;
  if (!agree(header, wanted_, at_fingerprint, at_key)) return SharedMismatch::fingerprint;
  if (!agree(header, wanted_, at_key, at_checksum) || !agree(header, wanted_, at_group, at_length)) return SharedMismatch::key;
  if (!agree(header, wanted_, at_length, at_write_id) || header[at_parts] != wanted_[at_parts]) return SharedMismatch::length;
  if (header[at_part] != static_cast<std::byte>(part) || value_bytes != parts_.value_bytes(part)) return SharedMismatch::length;
  if (write_id_ && std::memcmp(write_id_->data(), &header[at_write_id], write_id_->size()) != 0) return SharedMismatch::length;
  return std::nullopt;
}

SharedValueReader::Mismatch SharedValueReader::fail(SharedMismatch why) {
  if (!mismatch_) mismatch_ = why;
  return mismatch_;
}

SharedValueReader::Mismatch SharedValueReader::begin_part(std::uint32_t part, std::uint64_t value_bytes,
                                                          std::span<const std::byte> header) {
  TERRACE_CHECK(part < parts_.count && left_ == 0);
  if (mismatch_) return mismatch_;
  if (const Mismatch why = check(part, value_bytes, header)) return fail(*why);
  std::memcpy(header_.data(), header.data(), header_.size());
  if (!write_id_) std::memcpy(write_id_.emplace().data(), &header_[at_write_id], sizeof(SharedWriteId));
  part_ = part;
  left_ = parts_.bytes[part];
  if (secret_) {
    cipher_.begin(SealingCipher::To::open, key_, nonce_of(header_), associated_with(header_));
  } else {
    BlockKey key;
    std::memcpy(key.bytes.data(), &wanted_[at_key], key.bytes.size());
    checksum_.begin(key, fingerprint_, left_);
  }
  return std::nullopt;
}

void SharedValueReader::add(std::span<std::byte> piece) {
  if (mismatch_) return;
  TERRACE_CHECK(piece.size() <= left_);
  left_ -= piece.size();
  if (secret_) cipher_.add(piece, piece.data());
  else checksum_.add(piece);
}

SharedValueReader::Mismatch SharedValueReader::end_part() {
  if (mismatch_) return mismatch_;
  if (left_ != 0) {
    left_ = 0;
    return fail(SharedMismatch::length);
  }
  if (secret_) {
    SealingCipher::Tag tag;
    std::memcpy(tag.data(), &header_[at_checksum], tag.size());
    if (!cipher_.end_opening(tag)) return fail(SharedMismatch::seal);
  } else if (checksum_.value() != load_le64(&header_[at_checksum])) {
    return fail(SharedMismatch::checksum);
  }
  verified_ |= 1U << part_;
  return std::nullopt;
}

SharedValueReader::Mismatch SharedValueReader::finish() const {
  if (mismatch_) return mismatch_;
  if (verified_ != (1U << parts_.count) - 1) return SharedMismatch::length;
  return std::nullopt;
}

}  // namespace terrace
