#include "storage/format/store_part.hpp"

#include "storage/format/format.hpp"

#include <fmt/format.h>

#include <charconv>

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
