#include "radix/block_keys.hpp"

#include "base/check.hpp"

#include <boost/endian/conversion.hpp>
#include <openssl/evp.h>

#include <algorithm>
#include <cstring>

namespace terrace {
namespace {

constexpr std::uint8_t format_version = 1;

enum class Kind : std::uint8_t { root = 'R', block = 'B', opaque = 'O' };
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

/// Writes a message into a buffer that is kept, and digests it.
class KeyChain::Hasher {
 public:
  Hasher() : context_{EVP_MD_CTX_new()} { TERRACE_CHECK(context_ != nullptr); }
  ~Hasher() { EVP_MD_CTX_free(context_); }
  Hasher(const Hasher&) = delete;
  Hasher& operator=(const Hasher&) = delete;

  void begin(Kind kind) {
    message_.clear();
    append_bytes("TRRC", 4);
    append_byte(format_version);
    append_byte(static_cast<std::uint8_t>(kind));
  }

  void field(std::uint8_t tag, std::span<const std::byte> value) {
    append_byte(tag);
    append_u64(value.size());
    append_bytes(value.data(), value.size());
  }
  void field(std::uint8_t tag, std::string_view value) { field(tag, std::as_bytes(std::span{value})); }
  void field(std::uint8_t tag, std::uint64_t value) {
    append_byte(tag);
    append_u64(sizeof value);
    append_u64(value);
  }

  void tokens(std::span<const TokenId> ids) {
    append_byte(tag_tokens);
    append_u64(ids.size() * sizeof(TokenId));
    if constexpr (boost::endian::order::native == boost::endian::order::little) {
      append_bytes(ids.data(), ids.size_bytes());
    } else {
      for (const TokenId id : ids) {
        const TokenId little = boost::endian::native_to_little(id);
        append_bytes(&little, sizeof little);
      }
    }
  }

  void extras(std::span<const ExtraKey> keys) {
    for (const ExtraKey& key : keys) {
      const bool has_offset = key.kind == ExtraKind::media || key.kind == ExtraKind::embedding_item;
      append_byte(static_cast<std::uint8_t>(key.kind));
      append_u64(key.digest.size() + (has_offset ? sizeof key.offset : 0));
      if (has_offset) append_u64(static_cast<std::uint64_t>(key.offset));
      append_bytes(key.digest.data(), key.digest.size());
    }
  }

  [[nodiscard]] BlockKey digest() {
    BlockKey key;
    unsigned size = 0;
    auto* const out = reinterpret_cast<unsigned char*>(key.bytes.data());
    TERRACE_CHECK(EVP_DigestInit_ex2(context_, sha256(), nullptr) == 1);
    TERRACE_CHECK(EVP_DigestUpdate(context_, message_.data(), message_.size()) == 1);
    TERRACE_CHECK(EVP_DigestFinal_ex(context_, out, &size) == 1);
    TERRACE_CHECK(size == key.bytes.size());
    return key;
  }

 private:
  void append_byte(std::uint8_t value) { message_.push_back(std::byte{value}); }
  void append_u64(std::uint64_t value) {
    const std::uint64_t little = boost::endian::native_to_little(value);
    append_bytes(&little, sizeof little);
  }
  void append_bytes(const void* from, std::size_t size) {
    const std::size_t at = message_.size();
    message_.resize(at + size);
    if (size > 0) std::memcpy(message_.data() + at, from, size);
  }

  EVP_MD_CTX* context_;
  std::vector<std::byte> message_;
};

BlockKey root_key(const RootFields& fields) {
  return KeyChain::make_root(fields);
}

BlockKey KeyChain::make_root(const RootFields& fields) {
  Hasher hasher;
  hasher.begin(Kind::root);
  hasher.field(tag_model_digest, fields.model_digest);
  hasher.field(tag_fingerprint, fields.fingerprint);
  if (fields.adapter) hasher.field(tag_adapter, *fields.adapter);
  if (fields.tenant_salt) hasher.field(tag_tenant_salt, *fields.tenant_salt);
  hasher.field(tag_weight_epoch, fields.weight_epoch);
  return hasher.digest();
}

KeyChain::KeyChain(const BlockKey& root, std::uint32_t block_tokens)
    : root_{root}, block_tokens_{block_tokens}, hasher_{std::make_unique<Hasher>()} {
  TERRACE_CHECK(block_tokens > 0);
}

KeyChain::~KeyChain() = default;
KeyChain::KeyChain(KeyChain&&) noexcept = default;
KeyChain& KeyChain::operator=(KeyChain&&) noexcept = default;

void KeyChain::append(std::span<const TokenId> tokens) {
  if (!waiting_.empty()) {
    const std::size_t missing = std::min<std::size_t>(block_tokens_ - waiting_.size(), tokens.size());
    waiting_.insert(waiting_.end(), tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(missing));
    tokens = tokens.subspan(missing);
    if (waiting_.size() < block_tokens_) return;
    add_block(waiting_, {});
    waiting_.clear();
  }
  for (; tokens.size() >= block_tokens_; tokens = tokens.subspan(block_tokens_)) add_block(tokens.first(block_tokens_), {});
  waiting_.assign(tokens.begin(), tokens.end());
}

Result<void> KeyChain::append_block(std::span<const TokenId> tokens, std::span<const ExtraKey> extra) {
  if (!waiting_.empty() || tokens.size() != block_tokens_) return Errc::invalid_argument;
  add_block(tokens, extra);
  return {};
}

Result<void> KeyChain::append_opaque(std::span<const std::byte> name, std::span<const ExtraKey> extra) {
  if (!waiting_.empty()) return Errc::invalid_argument;
  hasher_->begin(Kind::opaque);
  hasher_->field(tag_parent, tip().bytes);
  hasher_->field(tag_name, name);
  finish_block(extra);
  return {};
}

void KeyChain::add_block(std::span<const TokenId> tokens, std::span<const ExtraKey> extra) {
  hasher_->begin(Kind::block);
  hasher_->field(tag_parent, tip().bytes);
  hasher_->tokens(tokens);
  finish_block(extra);
}

void KeyChain::finish_block(std::span<const ExtraKey> extra) {
  hasher_->extras(items_.next_block(block_tokens_));
  hasher_->extras(extra);
  keys_.push_back(hasher_->digest());
}

}  // namespace terrace
