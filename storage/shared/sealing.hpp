#pragma once

#include "storage/io/checksum.hpp"
#include "terrace/types.hpp"

#include <array>
#include <cstddef>
#include <span>

struct evp_cipher_ctx_st;  // OpenSSL's EVP_CIPHER_CTX

namespace terrace {

/// The secret of a deployment. Values that are sealed with it can be neither read nor made by others who may write to the engine.
/// It is kept as a key that HKDF-SHA256 (RFC 5869) extracts from it, and that is overwritten at the end. Threads: any, after
/// construction.
class SharedSecret {
 public:
  static constexpr std::size_t bytes_min = 32;
  using Key = std::array<std::byte, 32>;

  /// Throws std::invalid_argument if there are less than `bytes_min` bytes: HKDF makes a weak secret no stronger.
  explicit SharedSecret(std::span<const std::byte> secret);
  ~SharedSecret();
  SharedSecret(const SharedSecret&) = delete;
  SharedSecret& operator=(const SharedSecret&) = delete;

  /// Returns the key for the values of one block. Each block has its own, so only two writes of the same block could take the
  /// same nonce.
  [[nodiscard]] Key key_of(const BlockKey& block, const Fingerprint& fingerprint) const;

 private:
  Key extracted_{};
};

/// AES-256-GCM, piece by piece. OpenSSL's context is kept from one message to the next. Threads: one.
class SealingCipher {
 public:
  using Nonce = std::array<std::byte, 12>;
  using Tag = std::array<std::byte, 16>;

  SealingCipher();
  ~SealingCipher();
  SealingCipher(const SealingCipher&) = delete;
  SealingCipher& operator=(const SealingCipher&) = delete;

  /// Begins a message. `associated` is protected, and not encrypted.
  void begin_sealing(const SharedSecret::Key& key, const Nonce& nonce, std::span<const std::byte> associated);
  void begin_opening(const SharedSecret::Key& key, const Nonce& nonce, std::span<const std::byte> associated);
  /// Encrypts or decrypts the next piece. `out` has room for it, and may be the same memory.
  void add(std::span<const std::byte> in, std::byte* out);
  [[nodiscard]] Tag end_sealing();
  /// Returns true if the message and its associated bytes are what was sealed. What add() gave out means nothing before.
  [[nodiscard]] bool end_opening(const Tag& tag);

 private:
  void begin(const SharedSecret::Key& key, const Nonce& nonce, std::span<const std::byte> associated, bool sealing);

  evp_cipher_ctx_st* context_;
};

/// Fills the bytes from the operating system's source of random numbers, through OpenSSL's generator. Threads: any.
void fill_randomly(std::span<std::byte> bytes);

}  // namespace terrace
