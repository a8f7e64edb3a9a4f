#pragma once

#include "terrace/types.hpp"

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace terrace {

/// Names a user of a store for people: one text for each engine, model and revision (FileStoreConfig::label). The last labels_max
/// labels are in the lock file of the first directory, each in its own sector, so that a torn write damages at most one. A
/// damaged label is ignored, because labels are only information.
struct StoreLabel {
  std::string text;    ///< for example "vLLM 0.33.0, model facebook/opt-125m, weights 4f2a..."
  std::string opened;  ///< when the store was last opened with this label: "2026-11-21 10:00:00 UTC"

  friend bool operator==(const StoreLabel&, const StoreLabel&) = default;
};

inline constexpr std::size_t label_bytes = 512;  ///< a sector
inline constexpr std::size_t labels_max = 6;
inline constexpr std::size_t label_letters_max = 300;

/// Returns the text that is recorded: so many characters at most, with a question mark for each unprintable character.
[[nodiscard]] std::string printable_text(std::string_view text, std::size_t letters_max = label_letters_max);
/// Returns the tenant for the records of blocks without a tenant that are written under this label. 0 for an empty label.
[[nodiscard]] TenantId tenant_of(std::string_view label);
/// Returns lines of "label 1", "opened TIME", "text TEXT" and "sum HEX", padded with blanks to label_bytes.
[[nodiscard]] std::string to_text(const StoreLabel& label);
/// The inverse of to_text(). Returns nothing if the text has any other form, or does not match its checksum.
[[nodiscard]] std::optional<StoreLabel> parse_label(std::string_view text);
/// Reads the sectors of all labels. Returns the undamaged labels; the label that was opened last comes first.
[[nodiscard]] std::vector<StoreLabel> parse_labels(std::span<const std::byte> sectors);
/// Returns the sector for a label, out of labels_max: the sector that has this label, or else a sector without a label, or else
/// the sector whose label was opened first.
[[nodiscard]] std::size_t sector_for(std::span<const std::byte> sectors, std::string_view label);

}  // namespace terrace
