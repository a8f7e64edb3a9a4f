#include "storage/format/store_label.hpp"

#include "storage/io/checksum.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace terrace {
namespace {

constexpr std::string_view version_line = "label 1\n";

std::uint64_t sum_of(std::string_view text) { return plain_checksum(std::as_bytes(std::span{text})); }

/// Removes `word` and the rest of its line from the front of the text. Returns nothing if the text does not start so.
std::optional<std::string_view> take_line(std::string_view& text, std::string_view word) {
  const std::size_t end = text.find('\n');
  if (end == std::string_view::npos || !text.starts_with(word)) return std::nullopt;
  const std::string_view value = text.substr(word.size(), end - word.size());
  text.remove_prefix(end + 1);
  return value;
}

std::optional<StoreLabel> label_in(std::span<const std::byte> sectors, std::size_t n) {
  if (sectors.size() < (n + 1) * label_bytes) return std::nullopt;
  return parse_label({reinterpret_cast<const char*>(sectors.data()) + n * label_bytes, label_bytes});
}

}  // namespace

std::string printable_text(std::string_view text, std::size_t letters_max) {
  std::string clean{text.substr(0, letters_max)};
  std::ranges::replace_if(
      clean, [](char c) { return c < ' ' || c > '~'; }, '?');
  return clean;
}

TenantId tenant_of(std::string_view label) { return label.empty() ? TenantId{} : TenantId{sum_of(printable_text(label))}; }

std::string to_text(const StoreLabel& label) {
  const std::string lines =
      fmt::format("{}opened {}\ntext {}\n", version_line, printable_text(label.opened, 40), printable_text(label.text));
  return fmt::format("{:<{}}", fmt::format("{}sum {:016x}\n", lines, sum_of(lines)), label_bytes);
}

std::optional<StoreLabel> parse_label(std::string_view text) {
  std::string_view rest = text;
  if (!rest.starts_with(version_line)) return std::nullopt;
  rest.remove_prefix(version_line.size());
  const auto opened = take_line(rest, "opened ");
  const auto label = opened ? take_line(rest, "text ") : std::nullopt;
  if (!label) return std::nullopt;
  // Compare the whole text, so that the checksum and the bytes after it are checked, too.
  StoreLabel found{std::string{*label}, std::string{*opened}};
  if (to_text(found) != text) return std::nullopt;
  return found;
}

std::vector<StoreLabel> parse_labels(std::span<const std::byte> sectors) {
  std::vector<StoreLabel> labels;
  for (std::size_t n = 0; n < labels_max; ++n) {
    if (auto label = label_in(sectors, n)) labels.push_back(*std::move(label));
  }
  std::ranges::stable_sort(labels, std::ranges::greater{}, &StoreLabel::opened);
  return labels;
}

std::size_t sector_for(std::span<const std::byte> sectors, std::string_view label) {
  std::size_t best = 0;
  std::string first_opened = "~";  // after all times
  for (std::size_t n = 0; n < labels_max; ++n) {
    const std::optional<StoreLabel> there = label_in(sectors, n);
    if (there && there->text == label) return n;
    const std::string opened = there ? there->opened : "";
    if (opened >= first_opened) continue;
    first_opened = opened;
    best = n;
  }
  return best;
}

}  // namespace terrace
