#include "storage/format/store_name.hpp"

#include "storage/format/format.hpp"
#include "storage/io/little_endian.hpp"
#include "terrace/types.hpp"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cstring>

namespace terrace {
namespace {

/// Removes `word` and the number after it from the front of the text. Returns false if the text does not start with them.
template <class Number>
bool take(std::string_view& text, std::string_view word, int base, Number& number) {
  if (!text.starts_with(word)) return false;
  text.remove_prefix(word.size());
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), number, base);
  if (error != std::errc{}) return false;
  text.remove_prefix(static_cast<std::size_t>(rest - text.data()));
  return true;
}

}  // namespace

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

std::filesystem::path part_directory(const std::filesystem::path& first, std::uint32_t number) {
  return number == 0 ? first : first / fmt::format("stripe-{}", number);
}

std::string to_text(const StorePart& part) {
  return fmt::format("{:<{}}", fmt::format("store {:016x} part {} of {}\n", part.store, part.part, part.of), part_text_bytes);
}

std::optional<StorePart> parse_part(std::string_view text) {
  StorePart part;
  const bool is_one = take(text, "store ", 16, part.store) && take(text, " part ", 10, part.part) &&
                      take(text, " of ", 10, part.of) && text.find_first_not_of("\n ") == std::string_view::npos;
  if (!is_one || part.part == 0 || part.part > part.of || part.of > directories_max) return std::nullopt;
  return part;
}

}  // namespace terrace
