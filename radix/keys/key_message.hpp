#pragma once

#include "terrace/keys.hpp"
#include "terrace/types.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

struct evp_md_ctx_st;  // OpenSSL's EVP_MD_CTX

namespace terrace {

/// Writes the message of a key into a buffer, which is reused for the next message. terrace/keys.hpp defines the form of a
/// message. Threads: one at a time.
class KeyMessage {
 public:
  void begin_root(const RootFields& fields);
  void begin_block(const BlockKey& parent, std::span<const TokenId> tokens);
  void begin_opaque(const BlockKey& parent, std::span<const std::byte> name);
  void begin_unchained(std::span<const std::byte> key_namespace, std::span<const std::byte> name);
  void add_extras(std::span<const ExtraKey> extras);

  [[nodiscard]] std::span<const std::byte> bytes() const { return {buffer_.data(), size_}; }

 private:
  /// Makes room for `size` more bytes. put() does not check the size of the buffer.
  void make_room(std::size_t size);
  void put_start(char kind);
  void put_field(std::uint8_t tag, std::span<const std::byte> value);
  /// Writes tag and length. The value must follow.
  void put_head(std::uint8_t tag, std::size_t value_size);
  void put_u64(std::uint64_t value);
  void put(const void* from, std::size_t size);

  std::vector<std::byte> buffer_;  ///< never shrinks, so that the next message does not clear memory first
  std::size_t size_ = 0;
};

/// Computes the SHA-256 digests of messages, which are keys. OpenSSL's context is reused for the next message. Threads: one at a
/// time.
class KeyDigest {
 public:
  KeyDigest();
  ~KeyDigest();
  KeyDigest(const KeyDigest&) = delete;
  KeyDigest& operator=(const KeyDigest&) = delete;

  [[nodiscard]] BlockKey operator()(std::span<const std::byte> message);

 private:
  evp_md_ctx_st* context_;
};

}  // namespace terrace
