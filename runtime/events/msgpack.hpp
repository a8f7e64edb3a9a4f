#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

/// Writes values in MessagePack's format, as far as events need it. Debian's package of the C++ library for it needs a version of
/// Boost that cannot be installed beside Boost 1.81.
namespace terrace::events::msgpack {

/// Appends the `bytes` lowest bytes of the number, the highest first.
inline void put_big_endian(std::string& out, std::uint64_t number, unsigned bytes) {
  while (bytes-- > 0) out.push_back(static_cast<char>(number >> (8 * bytes)));
}

inline void put_nil(std::string& out) { out.push_back('\xc0'); }

inline void put_unsigned(std::string& out, std::uint64_t number) {
  if (number < 0x80) return put_big_endian(out, number, 1);
  const unsigned power = number <= 0xFF ? 0 : number <= 0xFFFF ? 1 : number <= 0xFFFF'FFFF ? 2 : 3;
  out.push_back(static_cast<char>(0xcc + power));
  put_big_endian(out, number, 1U << power);
}

inline void put_double(std::string& out, double number) {
  out.push_back('\xcb');
  put_big_endian(out, std::bit_cast<std::uint64_t>(number), 8);
}

/// Starts a value that has `count` parts. `small` is its first byte if there are fewer than 16 parts; otherwise `large` is the
/// first byte, of the form with 32 bits.
inline void put_header(std::string& out, std::size_t count, unsigned small, unsigned large) {
  if (count < 16) return put_big_endian(out, small | count, 1);
  out.push_back(static_cast<char>(large));
  put_big_endian(out, count, 4);
}
inline void put_array(std::string& out, std::size_t count) { put_header(out, count, 0x90, 0xdd); }
inline void put_map(std::string& out, std::size_t count) { put_header(out, count, 0x80, 0xdf); }

inline void put_text(std::string& out, std::string_view text) {
  put_header(out, text.size(), 0xa0, 0xdb);
  out += text;
}

/// At most 255 bytes.
inline void put_bytes(std::string& out, std::span<const std::byte> bytes) {
  out.push_back('\xc4');
  put_big_endian(out, bytes.size(), 1);
  out.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

}  // namespace terrace::events::msgpack
