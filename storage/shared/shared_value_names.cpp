#include "storage/shared/shared_value_names.hpp"

#include "base/check.hpp"
#include "storage/shared/shared_value.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <span>

namespace terrace {
namespace {

constexpr std::size_t prefix_length_max = 64;
constexpr std::size_t name_fingerprint_bytes = 16;

void append_hex(std::string& out, std::span<const std::byte> bytes) {
  constexpr std::string_view digits = "0123456789abcdef";
  for (const std::byte byte : bytes) {
    out += digits[std::to_integer<std::size_t>(byte >> 4)];
    out += digits[std::to_integer<std::size_t>(byte & std::byte{15})];
  }
}

void append_number(std::string& out, std::uint32_t number, int base) {
  std::array<char, 16> text;
  const auto end = std::to_chars(text.data(), text.data() + text.size(), number, base);
  out.append(text.data(), end.ptr);
}

}  // namespace

bool SharedValueNames::is_prefix(std::string_view prefix) noexcept {
  return !prefix.empty() && prefix.size() <= prefix_length_max && std::ranges::all_of(prefix, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view{"-_.:/"}.find(c) != std::string_view::npos;
  });
}

SharedValueNames::SharedValueNames(std::string_view prefix) : start_{prefix} {
  TERRACE_CHECK(is_prefix(prefix));
  start_ += ':';
  append_number(start_, shared_value_version, 10);
  start_ += ':';
  use({});
}

void SharedValueNames::use(const Fingerprint& fingerprint) {
  with_fingerprint_ = start_;
  append_hex(with_fingerprint_, std::span{fingerprint}.first(name_fingerprint_bytes));
  with_fingerprint_ += ":{";
}

void SharedValueNames::append(std::string& out, const BlockKey& key, GroupId group, std::uint32_t part) const {
  out += with_fingerprint_;
  append_number(out, group.value(), 16);
  out += ':';
  append_hex(out, key.bytes);
  out += "}:";
  append_number(out, part, 10);
}

std::string SharedValueNames::name(const BlockKey& key, GroupId group, std::uint32_t part) const {
  std::string text;
  append(text, key, group, part);
  return text;
}

}  // namespace terrace
