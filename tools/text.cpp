#include "tools/text.hpp"

#include <boost/json.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <system_error>

namespace terrace::tools {
namespace {

struct Character {
  std::size_t bytes = 1;
  std::uint32_t code = 0;
  bool well_formed = false;
};

/// Returns the first character of `text`, which must not be empty. A byte that begins no character is returned as not well
/// formed.
Character first_of(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned lead = byte(0);
  if (lead < 0x80) return {1, lead, true};
  const std::size_t bytes = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || text.size() < bytes) return {};
  std::uint32_t code = lead & (0x7fU >> bytes);
  for (std::size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return {};
    code = code << 6 | (byte(i) & 0x3fU);
  }
  constexpr std::uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};  // a longer form than necessary is not well formed
  const bool surrogate = code >= 0xd800 && code <= 0xdfff;
  if (code < least[bytes] || code > 0x10ffff || surrogate) return {};
  return {bytes, code, true};
}

/// Control characters of ASCII (C0 and DEL) and of Latin-1 (C1); some terminals obey the latter too.
bool is_control(std::uint32_t code) { return code < 0x20 || (code >= 0x7f && code < 0xa0); }

/// Boost.JSON writes every fraction with an exponent: 4.7E-2. People read these numbers, too.
std::string with_plain_fractions(std::string_view json) {
  std::string out;
  out.reserve(json.size());
  bool in_string = false;
  for (std::size_t at = 0; at < json.size();) {
    const char c = json[at];
    const bool begins_number = !in_string && (c == '-' || (c >= '0' && c <= '9'));
    const std::size_t end = begins_number ? std::min(json.find_first_not_of("-+.eE0123456789", at), json.size()) : at + 1;
    const std::string_view token = json.substr(at, end - at);
    double number = 0;
    if (token.find('E') != std::string_view::npos && begins_number &&
        std::from_chars(token.data(), token.data() + token.size(), number).ec == std::errc{}) {
      const std::string plain = fmt::format("{}", number);
      out += plain;
      if (plain.find_first_of(".e") == std::string::npos) out += ".0";  // still a fraction for who reads it again
    } else {
      out += token;
    }
    if (in_string && c == '\\') out += json[end];
    at = in_string && c == '\\' ? end + 1 : end;
    in_string = in_string != (c == '"');
  }
  return out;
}

}  // namespace

std::string printable(std::string_view text) {
  std::string shown;
  while (!text.empty()) {
    const Character first = first_of(text);
    if (first.well_formed && !is_control(first.code)) {
      shown += text.substr(0, first.bytes);
    } else {
      for (const char c : text.substr(0, first.bytes)) shown += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    }
    text.remove_prefix(first.bytes);
  }
  return shown;
}

std::string json_text(const boost::json::value& value) { return safe_json(with_plain_fractions(boost::json::serialize(value))); }

/// DEL and characters outside ASCII occur in JSON only inside strings, so the text can be corrected as a whole.
std::string safe_json(std::string_view text) {
  std::string valid;
  valid.reserve(text.size());
  for (std::string_view rest = text; !rest.empty();) {
    const Character first = first_of(rest);
    if (first.code == '\n') {
      valid += '\n';
    } else if (!first.well_formed) {
      valid += "\\ufffd";
    } else if (is_control(first.code)) {
      valid += fmt::format("\\u{:04x}", first.code);
    } else {
      valid += rest.substr(0, first.bytes);
    }
    rest.remove_prefix(first.bytes);
  }
  return valid;
}

std::string shortened(std::string_view text, std::size_t columns) {
  const auto begin_of = [&](std::size_t characters) {
    std::size_t at = 0;
    while (characters-- > 0 && at < text.size()) at += first_of(text.substr(at)).bytes;
    return at;
  };
  if (begin_of(columns) >= text.size()) return std::string{text};
  constexpr std::string_view dots = "...";
  const std::size_t kept = columns - std::min(columns, dots.size());
  return std::string{text.substr(0, begin_of(kept))} + std::string{dots.substr(0, columns - kept)};
}

std::string wrapped(std::string_view text, std::size_t at, std::size_t indent, std::size_t columns) {
  std::string out;
  bool first = true;
  while (!text.empty()) {
    const std::string_view word = text.substr(0, text.find(' '));
    text.remove_prefix(std::min(text.size(), word.size() + 1));
    if (!first && at + 1 + word.size() > columns) {
      out += '\n' + std::string(indent, ' ');
      at = indent;
    } else if (!first) {
      out += ' ';
      ++at;
    }
    first = false;
    out += word;
    at += word.size();
  }
  return out;
}

}  // namespace terrace::tools
