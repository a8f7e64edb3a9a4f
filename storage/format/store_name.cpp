#include "storage/format/store_name.hpp"

#include "storage/io/little_endian.hpp"
#include "terrace/types.hpp"

#include <array>
#include <cstring>

namespace terrace {

Fingerprint store_fingerprint(const StoreIdentity& identity) {
  // The result is four checksums of 64 bits over the same message, each with a different number in front. The input is already a
  // digest. Like all checksums in the files, the result only has to detect accidents.
  std::array<std::byte, 8 + sizeof(Fingerprint) + 16> message{};
  std::memcpy(message.data() + 8, identity.fingerprint.data(), sizeof(Fingerprint));
  store_le64(message.data() + 8 + sizeof(Fingerprint), identity.group.value());
  store_le64(message.data() + 16 + sizeof(Fingerprint), identity.rank);
  Fingerprint own{};
  for (std::size_t part = 0; part < 4; ++part) {
    store_le64(message.data(), part);
    store_le64(own.data() + 8 * part, plain_checksum(message));
  }
  return own;
}

std::string store_directory_name(const StoreIdentity& identity) {
  return to_hex(BlockKey{store_fingerprint(identity)}).substr(0, 32);
}

}  // namespace terrace
