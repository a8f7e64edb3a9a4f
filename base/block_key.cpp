#include "terrace/types.hpp"

#include <boost/algorithm/hex.hpp>

#include <iterator>

namespace terrace {

std::string to_hex(const BlockKey& key) {
  std::string text;
  const auto* bytes = reinterpret_cast<const unsigned char*>(key.bytes.data());
  boost::algorithm::hex_lower(bytes, bytes + key.bytes.size(), std::back_inserter(text));
  return text;
}

Result<BlockKey> parse_block_key(std::string_view hex) {
  BlockKey key;
  if (hex.size() != 2 * key.bytes.size()) return Errc::invalid_argument;
  try {
    boost::algorithm::unhex(hex, reinterpret_cast<unsigned char*>(key.bytes.data()));
  } catch (const boost::algorithm::hex_decode_error&) {
    return Errc::invalid_argument;
  }
  return key;
}

}  // namespace terrace
