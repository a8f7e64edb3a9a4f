#include "storage/shared/sealing.hpp"

#include "base/check.hpp"

#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/kdf.h>
#include <openssl/params.h>
#include <openssl/rand.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>
#include <string_view>

namespace terrace {
namespace {

constexpr std::string_view salt_of_secrets = "terrace shared secret";
constexpr std::string_view name_of_values = "terrace shared value 1";

/// The largest number of bytes in one call of OpenSSL, because its lengths have type int.
constexpr std::size_t piece_bytes_max = std::size_t{1} << 30;

// Algorithms are fetched only once, because OpenSSL's lookup by name takes as long as processing a small block.
const EVP_CIPHER* aes_256_gcm() {
  static EVP_CIPHER* const algorithm = EVP_CIPHER_fetch(nullptr, "AES-256-GCM", nullptr);
  TERRACE_CHECK(algorithm != nullptr);
  return algorithm;
}

EVP_KDF* hkdf() {
  static EVP_KDF* const algorithm = EVP_KDF_fetch(nullptr, "HKDF", nullptr);
  TERRACE_CHECK(algorithm != nullptr);
  return algorithm;
}

unsigned char* bytes_of(std::byte* at) { return reinterpret_cast<unsigned char*>(at); }
const unsigned char* bytes_of(const std::byte* at) { return reinterpret_cast<const unsigned char*>(at); }

/// One of the two steps of HKDF-SHA256. `extra` is the salt of the extract step, or the information of the expand step.
SharedSecret::Key derive(int mode, std::span<const std::byte> from, std::span<const std::byte> extra) {
  EVP_KDF_CTX* const context = EVP_KDF_CTX_new(hkdf());
  TERRACE_CHECK(context != nullptr);
  std::string digest = "SHA256";
  const char* const extra_name = mode == EVP_KDF_HKDF_MODE_EXTRACT_ONLY ? OSSL_KDF_PARAM_SALT : OSSL_KDF_PARAM_INFO;
  // OpenSSL does not write to the memory of these parameters.
  const std::array parameters{
      OSSL_PARAM_construct_int(OSSL_KDF_PARAM_MODE, &mode),
      OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, digest.data(), 0),
      OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_KEY, const_cast<std::byte*>(from.data()), from.size()),
      OSSL_PARAM_construct_octet_string(extra_name, const_cast<std::byte*>(extra.data()), extra.size()),
      OSSL_PARAM_construct_end()};
  SharedSecret::Key key;
  const int derived = EVP_KDF_derive(context, bytes_of(key.data()), key.size(), parameters.data());
  EVP_KDF_CTX_free(context);
  TERRACE_CHECK(derived == 1);
  return key;
}

}  // namespace

SharedSecret::SharedSecret(std::span<const std::byte> secret) {
  if (secret.size() < bytes_min) {
    throw std::invalid_argument{"the secret of a shared store needs at least " + std::to_string(bytes_min) + " bytes"};
  }
  extracted_ = derive(EVP_KDF_HKDF_MODE_EXTRACT_ONLY, secret, std::as_bytes(std::span{salt_of_secrets}));
}

SharedSecret::~SharedSecret() { OPENSSL_cleanse(extracted_.data(), extracted_.size()); }

SharedSecret::Key SharedSecret::key_of(const BlockKey& block, const Fingerprint& fingerprint) const {
  std::array<std::byte, name_of_values.size() + sizeof fingerprint + sizeof block.bytes> information;
  std::byte* at = information.data();
  std::memcpy(at, name_of_values.data(), name_of_values.size());
  std::memcpy(at += name_of_values.size(), fingerprint.data(), fingerprint.size());
  std::memcpy(at += fingerprint.size(), block.bytes.data(), block.bytes.size());
  return derive(EVP_KDF_HKDF_MODE_EXPAND_ONLY, extracted_, information);
}

SealingCipher::SealingCipher() : context_{EVP_CIPHER_CTX_new()} { TERRACE_CHECK(context_ != nullptr); }

SealingCipher::~SealingCipher() { EVP_CIPHER_CTX_free(context_); }

void SealingCipher::begin(To what, const SharedSecret::Key& key, const Nonce& nonce, std::span<const std::byte> associated) {
  const int begun = EVP_CipherInit_ex2(context_, aes_256_gcm(), bytes_of(key.data()), bytes_of(nonce.data()),
                                       what == To::seal ? 1 : 0, nullptr);
  TERRACE_CHECK(begun == 1);
  int taken = 0;
  const int added = EVP_CipherUpdate(context_, nullptr, &taken, bytes_of(associated.data()), static_cast<int>(associated.size()));
  TERRACE_CHECK(added == 1);
}

void SealingCipher::add(std::span<const std::byte> in, std::byte* out) {
  while (!in.empty()) {
    const std::size_t bytes = std::min(in.size(), piece_bytes_max);
    int done = 0;
    TERRACE_CHECK(EVP_CipherUpdate(context_, bytes_of(out), &done, bytes_of(in.data()), static_cast<int>(bytes)) == 1);
    TERRACE_CHECK(static_cast<std::size_t>(done) == bytes);
    in = in.subspan(bytes);
    out += bytes;
  }
}

SealingCipher::Tag SealingCipher::end_sealing() {
  int rest = 0;
  std::array<unsigned char, 16> none;  // GCM has no padding
  TERRACE_CHECK(EVP_CipherFinal_ex(context_, none.data(), &rest) == 1);
  Tag tag;
  TERRACE_CHECK(EVP_CIPHER_CTX_ctrl(context_, EVP_CTRL_AEAD_GET_TAG, static_cast<int>(tag.size()), tag.data()) == 1);
  return tag;
}

bool SealingCipher::end_opening(const Tag& tag) {
  Tag expected = tag;
  TERRACE_CHECK(EVP_CIPHER_CTX_ctrl(context_, EVP_CTRL_AEAD_SET_TAG, static_cast<int>(expected.size()), expected.data()) == 1);
  int rest = 0;
  std::array<unsigned char, 16> none;
  return EVP_CipherFinal_ex(context_, none.data(), &rest) == 1;
}

void fill_randomly(std::span<std::byte> bytes) {
  TERRACE_CHECK(RAND_bytes(bytes_of(bytes.data()), static_cast<int>(bytes.size())) == 1);
}

}  // namespace terrace
