#pragma once

#include "storage/io/checksum.hpp"
#include "terrace/types.hpp"

#include <array>
#include <cstddef>
#include <span>

struct evp_cipher_ctx_st;  // OpenSSL's EVP_CIPHER_CTX

namespace terrace {

/// The secret of a deployment. Other users of the engine can neither read nor forge values that are sealed with it. The object
/// keeps a key that HKDF-SHA256 (RFC 5869) extracts from the secret, and overwrites it at the end. Threads: any, after
/// construction.
class SharedSecret {
 public:
  static constexpr std::size_t bytes_min = 32;
  using Key = std::array<std::byte, 32>;

  /// Throws std::invalid_argument if there are fewer than `bytes_min` bytes, because HKDF does not make a weak secret stronger.
  explicit SharedSecret(std::span<const std::byte> secret);
  ~SharedSecret();
  SharedSecret(const SharedSecret&) = delete;
  SharedSecret& operator=(const SharedSecret&) = delete;

  /// Returns the key for the values of one block. Each block has its own key, so only two writes of the same block could use the
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

  enum class To : bool { open, seal };
  /// Begins a message. `associated` is authenticated, but not encrypted.
  void begin(To what, const SharedSecret::Key& key, const Nonce& nonce, std::span<const std::byte> associated);
  /// Encrypts or decrypts the next piece. `out` must have room for it, and may be the same memory.
  void add(std::span<const std::byte> in, std::byte* out);
  [[nodiscard]] Tag end_sealing();
  /// Returns true if the message and its associated bytes are authentic. Do not use the output of add() before this.
  [[nodiscard]] bool end_opening(const Tag& tag);

 private:
  evp_cipher_ctx_st* context_;
};

/// Fills the bytes from the operating system's source of random numbers, through OpenSSL's generator. Threads: any.
void fill_randomly(std::span<std::byte> bytes);

}  // namespace terrace
