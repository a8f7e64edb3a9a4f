#pragma once

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

namespace terrace {

/// Appends "<type><number>\r\n".
inline void append_count(std::string& out, char type, std::uint64_t number) {
  char digits[24];
  const auto end = std::to_chars(digits, digits + sizeof digits, number);
  out += type;
  out.append(digits, static_cast<std::size_t>(end.ptr - digits));
  out += "\r\n";
}

inline void append_word(std::string& out, std::string_view word) {
  append_count(out, '$', word.size());
  out += word;
  out += "\r\n";
}

/// Appends a command of the Redis protocol.
inline void append_command(std::string& out, std::initializer_list<std::string_view> words) {
  append_count(out, '*', words.size());
  for (const std::string_view word : words) append_word(out, word);
}

}  // namespace terrace
