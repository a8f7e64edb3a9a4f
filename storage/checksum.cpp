#include "storage/checksum.hpp"

#include "storage/little_endian.hpp"

#define XXH_STATIC_LINKING_ONLY  // for a hash state on the stack
// Where the library was built with it, the widest vector unit of the processor at hand is chosen at run time.
#if defined(__x86_64__) && __has_include(<xxh_x86dispatch.h>)
#include <xxh_x86dispatch.h>
#else
#include <xxhash.h>
#endif

namespace terrace {

std::uint64_t payload_checksum(const BlockKey& key, const Fingerprint& fingerprint,
                               std::span<const std::byte> payload) noexcept {
  std::array<std::byte, sizeof key.bytes + sizeof fingerprint + 8> head;
  std::memcpy(head.data(), key.bytes.data(), key.bytes.size());
  std::memcpy(head.data() + key.bytes.size(), fingerprint.data(), fingerprint.size());
  store_le64(head.data() + key.bytes.size() + fingerprint.size(), payload.size());

  XXH3_state_t state;
  XXH3_64bits_reset(&state);
  XXH3_64bits_update(&state, head.data(), head.size());
  XXH3_64bits_update(&state, payload.data(), payload.size());
  return XXH3_64bits_digest(&state);
}

std::uint64_t plain_checksum(std::span<const std::byte> bytes) noexcept { return XXH3_64bits(bytes.data(), bytes.size()); }

}  // namespace terrace
