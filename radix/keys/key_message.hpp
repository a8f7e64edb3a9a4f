#pragma once

#include "base/block_key.hpp"
#include "radix/keys/block_keys.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

struct evp_md_ctx_st;  // OpenSSL's EVP_MD_CTX

namespace terrace {

/// Writes the message of a key, byte by byte, into a buffer that is kept from one message to the next.
/// radix/keys/block_keys.hpp says what a message looks like. Threads: one at a time.
class KeyMessage {
 public:
  void begin_root(const RootFields& fields);
  void begin_block(const BlockKey& parent, std::span<const TokenId> tokens);
  void begin_opaque(const BlockKey& parent, std::span<const std::byte> name);
  void add_extras(std::span<const ExtraKey> extras);

  [[nodiscard]] std::span<const std::byte> bytes() const { return {buffer_.data(), size_}; }

 private:
  /// Makes room for so many more bytes; what is put then needs no look at the buffer's size.
  void make_room(std::size_t size);
  void put_start(char kind);
  void put_parent(const BlockKey& parent);
  void put_field(std::uint8_t tag, std::span<const std::byte> value);
  /// Tag and length; the value has to follow.
  void put_head(std::uint8_t tag, std::size_t value_size);
  void put_u64(std::uint64_t value);
  void put(const void* from, std::size_t size);

  std::vector<std::byte> buffer_;  ///< never shrinks: filling it anew costs no clearing
  std::size_t size_ = 0;
};

/// Digests messages one after another. Threads: one at a time.
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
