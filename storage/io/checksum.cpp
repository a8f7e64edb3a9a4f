#include "storage/io/checksum.hpp"

#include "storage/io/little_endian.hpp"

#define XXH_STATIC_LINKING_ONLY  // makes XXH3_state_t a complete type
// If xxHash was built with it, this header chooses the widest vector instructions of the processor at run time.
#if defined(__x86_64__) && __has_include(<xxh_x86dispatch.h>)
#include <xxh_x86dispatch.h>
#else
#include <xxhash.h>
#endif

#include <new>

namespace terrace {
namespace {

XXH3_state_t& state_in(std::array<std::byte, 576>& memory) {
  static_assert(sizeof(XXH3_state_t) <= sizeof memory && alignof(XXH3_state_t) <= 64);
  return *reinterpret_cast<XXH3_state_t*>(memory.data());
}

}  // namespace

void PayloadChecksum::begin(const BlockKey& key, const Fingerprint& fingerprint, std::uint64_t payload_bytes) noexcept {
  std::array<std::byte, sizeof key.bytes + sizeof fingerprint + 8> head;
  std::memcpy(head.data(), key.bytes.data(), key.bytes.size());
  std::memcpy(head.data() + key.bytes.size(), fingerprint.data(), fingerprint.size());
  store_le64(head.data() + key.bytes.size() + fingerprint.size(), payload_bytes);
  XXH3_64bits_reset(::new (state_.data()) XXH3_state_t);
  XXH3_64bits_update(&state_in(state_), head.data(), head.size());
}

void PayloadChecksum::add(std::span<const std::byte> piece) noexcept {
  XXH3_64bits_update(&state_in(state_), piece.data(), piece.size());
}

std::uint64_t PayloadChecksum::value() const noexcept {
  return XXH3_64bits_digest(reinterpret_cast<const XXH3_state_t*>(state_.data()));
}

std::uint64_t payload_checksum(const BlockKey& key, const Fingerprint& fingerprint, std::span<const std::byte> payload) noexcept {
  PayloadChecksum sum;
  sum.begin(key, fingerprint, payload.size());
  sum.add(payload);
  return sum.value();
}

std::uint64_t plain_checksum(std::span<const std::byte> bytes) noexcept { return XXH3_64bits(bytes.data(), bytes.size()); }

}  // namespace terrace
