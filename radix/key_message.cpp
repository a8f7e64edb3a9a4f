#include "radix/key_message.hpp"

#include "base/check.hpp"

#include <boost/endian/conversion.hpp>
#include <openssl/evp.h>

#include <algorithm>
#include <cstring>

namespace terrace {
namespace {

constexpr std::uint8_t format_version = 1;

constexpr char kind_root = 'R';
constexpr char kind_block = 'B';
constexpr char kind_opaque = 'O';

enum Tag : std::uint8_t {
  tag_model_digest = 1,
  tag_fingerprint = 2,
  tag_adapter = 3,
  tag_tenant_salt = 4,
  tag_weight_epoch = 5,
  tag_parent = 16,
  tag_tokens = 17,
  tag_name = 18,
};

/// SHA-256, fetched once: OpenSSL's lookup by name costs more than hashing a block.
const EVP_MD* sha256() {
  static EVP_MD* const algorithm = EVP_MD_fetch(nullptr, "SHA256", nullptr);
  TERRACE_CHECK(algorithm != nullptr);
  return algorithm;
}

}  // namespace

void KeyMessage::begin_root(const RootFields& fields) {
  begin(kind_root);
  field(tag_model_digest, fields.model_digest);
  field(tag_fingerprint, fields.fingerprint);
  if (fields.adapter) field(tag_adapter, *fields.adapter);
  if (fields.tenant_salt) field(tag_tenant_salt, *fields.tenant_salt);
  head(tag_weight_epoch, sizeof fields.weight_epoch);
  append_u64(fields.weight_epoch);
}

void KeyMessage::begin_block(const BlockKey& parent, std::span<const TokenId> tokens) {
  begin_with_parent(kind_block, parent);
  head(tag_tokens, tokens.size_bytes());
  if constexpr (boost::endian::order::native == boost::endian::order::little) {
    append(tokens.data(), tokens.size_bytes());
  } else {
    for (const TokenId id : tokens) {
      const TokenId little = boost::endian::native_to_little(id);
      append(&little, sizeof little);
    }
  }
}

void KeyMessage::begin_opaque(const BlockKey& parent, std::span<const std::byte> name) {
  begin_with_parent(kind_opaque, parent);
  field(tag_name, name);
}

void KeyMessage::add_extras(std::span<const ExtraKey> extras) {
  for (const ExtraKey& extra : extras) {
    const bool has_offset = extra.kind == ExtraKind::media || extra.kind == ExtraKind::embedding_item;
    head(static_cast<std::uint8_t>(extra.kind), extra.digest.size() + (has_offset ? sizeof extra.offset : 0));
    if (has_offset) append_u64(static_cast<std::uint64_t>(extra.offset));
    append(extra.digest.data(), extra.digest.size());
  }
}

void KeyMessage::begin(char kind) {
  const char start[6] = {'T', 'R', 'R', 'C', static_cast<char>(format_version), kind};
  size_ = 0;
  append(start, sizeof start);
}

void KeyMessage::begin_with_parent(char kind, const BlockKey& parent) {
  begin(kind);
  head(tag_parent, parent.bytes.size());
  append(parent.bytes.data(), parent.bytes.size());
}

void KeyMessage::field(std::uint8_t tag, std::span<const std::byte> value) {
  head(tag, value.size());
  append(value.data(), value.size());
}

void KeyMessage::head(std::uint8_t tag, std::size_t value_size) {
  *grow(1) = std::byte{tag};
  append_u64(value_size);
}

void KeyMessage::append_u64(std::uint64_t value) {
  const std::uint64_t little = boost::endian::native_to_little(value);
  append(&little, sizeof little);
}

void KeyMessage::append(const void* from, std::size_t size) {
  std::byte* const to = grow(size);
  if (size > 0) std::memcpy(to, from, size);
}

std::byte* KeyMessage::grow(std::size_t size) {
  const std::size_t at = size_;
  size_ += size;
  if (size_ > buffer_.size()) buffer_.resize(std::max(size_, 2 * buffer_.size()));
  return buffer_.data() + at;
}

KeyDigest::KeyDigest() : context_{EVP_MD_CTX_new()} { TERRACE_CHECK(context_ != nullptr); }
KeyDigest::~KeyDigest() { EVP_MD_CTX_free(context_); }

BlockKey KeyDigest::operator()(std::span<const std::byte> message) {
  BlockKey key;
  unsigned size = 0;
  auto* const out = reinterpret_cast<unsigned char*>(key.bytes.data());
  TERRACE_CHECK(EVP_DigestInit_ex2(context_, sha256(), nullptr) == 1);
  TERRACE_CHECK(EVP_DigestUpdate(context_, message.data(), message.size()) == 1);
  TERRACE_CHECK(EVP_DigestFinal_ex(context_, out, &size) == 1);
  TERRACE_CHECK(size == key.bytes.size());
  return key;
}

}  // namespace terrace
