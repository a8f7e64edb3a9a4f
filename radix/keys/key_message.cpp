#include "radix/keys/key_message.hpp"

#include "base/check.hpp"

#include <boost/endian/conversion.hpp>
#include <openssl/evp.h>

#include <algorithm>
#include <cstring>
#include <string_view>

namespace terrace {
namespace {

constexpr std::uint8_t format_version = 2;

constexpr std::size_t start_size = 5;  ///< "TRC", version, kind
constexpr std::size_t head_size = 9;   ///< tag, length

constexpr char kind_root = 'R';
constexpr char kind_block = 'B';
constexpr char kind_opaque = 'O';
constexpr char kind_unchained = 'U';

enum Tag : std::uint8_t {
  tag_model_digest = 1,
  tag_fingerprint = 2,
  tag_adapter = 3,
  tag_tenant_salt = 4,
  tag_weight_epoch = 5,
  tag_parent = 16,
  tag_tokens = 17,
  tag_name = 18,
  tag_namespace = 19,
};

/// Returns the SHA-256 algorithm. It is fetched only once, because OpenSSL's lookup by name takes longer than hashing a block.
const EVP_MD* sha256() {
  static EVP_MD* const algorithm = EVP_MD_fetch(nullptr, "SHA256", nullptr);
  TERRACE_CHECK(algorithm != nullptr);
  return algorithm;
}

}  // namespace

void KeyMessage::make_room(std::size_t size) {
  if (size_ + size > buffer_.size()) buffer_.resize(std::max(size_ + size, 2 * buffer_.size()));
}

inline void KeyMessage::put(const void* from, std::size_t size) {
  if (size > 0) std::memcpy(buffer_.data() + size_, from, size);
  size_ += size;
}

inline void KeyMessage::put_u64(std::uint64_t value) {
  const std::uint64_t little = boost::endian::native_to_little(value);
  put(&little, sizeof little);
}

inline void KeyMessage::put_head(std::uint8_t tag, std::size_t value_size) {
  put(&tag, sizeof tag);
  put_u64(value_size);
}

inline void KeyMessage::put_field(std::uint8_t tag, std::span<const std::byte> value) {
  put_head(tag, value.size());
  put(value.data(), value.size());
}

inline void KeyMessage::put_start(char kind) {
  const char start[start_size] = {'T', 'R', 'C', static_cast<char>(format_version), kind};
  put(start, sizeof start);
}

void KeyMessage::begin_root(const RootFields& fields) {
  const auto bytes = [](std::string_view text) { return std::as_bytes(std::span{text}); };
  size_ = 0;
  make_room(start_size + 5 * head_size + fields.model_digest.size() + fields.fingerprint.size() +
            fields.adapter.value_or("").size() + fields.tenant_salt.value_or("").size() + sizeof fields.weight_epoch);
  put_start(kind_root);
  put_field(tag_model_digest, fields.model_digest);
  put_field(tag_fingerprint, fields.fingerprint);
  if (fields.adapter) put_field(tag_adapter, bytes(*fields.adapter));
  if (fields.tenant_salt) put_field(tag_tenant_salt, bytes(*fields.tenant_salt));
  put_head(tag_weight_epoch, sizeof fields.weight_epoch);
  put_u64(fields.weight_epoch);
}

void KeyMessage::begin_block(const BlockKey& parent, std::span<const TokenId> tokens) {
  size_ = 0;
  make_room(start_size + 2 * head_size + parent.bytes.size() + tokens.size_bytes());
  put_start(kind_block);
  put_field(tag_parent, parent.bytes);
  put_head(tag_tokens, tokens.size_bytes());
  if constexpr (boost::endian::order::native == boost::endian::order::little) {
    put(tokens.data(), tokens.size_bytes());
  } else {
    for (const TokenId id : tokens) {
      const TokenId little = boost::endian::native_to_little(id);
      put(&little, sizeof little);
    }
  }
}

void KeyMessage::begin_opaque(const BlockKey& parent, std::span<const std::byte> name) {
  size_ = 0;
  make_room(start_size + 2 * head_size + parent.bytes.size() + name.size());
  put_start(kind_opaque);
  put_field(tag_parent, parent.bytes);
  put_field(tag_name, name);
}

void KeyMessage::begin_unchained(std::span<const std::byte> key_namespace, std::span<const std::byte> name) {
  size_ = 0;
  make_room(start_size + 2 * head_size + key_namespace.size() + name.size());
  put_start(kind_unchained);
  put_field(tag_namespace, key_namespace);
  put_field(tag_name, name);
}

void KeyMessage::add_extras(std::span<const ExtraKey> extras) {
  for (const ExtraKey& extra : extras) {
    const bool has_offset = extra.kind == ExtraKind::media || extra.kind == ExtraKind::embedding_item;
    make_room(head_size + sizeof extra.offset + extra.digest.size());
    put_head(static_cast<std::uint8_t>(extra.kind), extra.digest.size() + (has_offset ? sizeof extra.offset : 0));
    if (has_offset) put_u64(static_cast<std::uint64_t>(extra.offset));
    put(extra.digest.data(), extra.digest.size());
  }
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
