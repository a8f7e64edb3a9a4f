#pragma once

#include "terrace/types.hpp"

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace terrace {

/// Says for people who has used a store: one text for each engine, model and revision, as FileStoreConfig::label gives it. The
/// last labels_max of them lie in the first directory's lock file, each in a sector of its own, so that a torn write damages one
/// at most. Nothing depends on them: a label that is damaged is as if it had not been recorded.
struct StoreLabel {
  std::string text;    ///< for example "vLLM 0.33.0, model facebook/opt-125m, weights 4f2a..."
  std::string opened;  ///< when the store was last opened with this label: "2026-11-21 10:00:00 UTC"

  friend bool operator==(const StoreLabel&, const StoreLabel&) = default;
};

inline constexpr std::size_t label_bytes = 512;  ///< a sector
inline constexpr std::size_t labels_max = 6;
inline constexpr std::size_t label_letters_max = 300;

/// The text that is recorded: label_letters_max characters at most, and a question mark for each that is not printable.
[[nodiscard]] std::string printable_label(std::string_view text);
/// The tenant in the records of blocks that were written under this label without a tenant of their own. 0 for an empty one.
[[nodiscard]] TenantId tenant_of(std::string_view label);
/// Returns lines of "label 1", "opened TIME", "text TEXT" and "sum HEX", padded with blanks to label_bytes.
[[nodiscard]] std::string to_text(const StoreLabel& label);
/// The inverse of to_text(). Returns nothing if the text has any other form, or does not match its checksum.
[[nodiscard]] std::optional<StoreLabel> parse_label(std::string_view text);
/// Reads the sectors of all labels. Returns those that are whole; the one that was opened last comes first.
[[nodiscard]] std::vector<StoreLabel> parse_labels(std::span<const std::byte> sectors);
/// Which of the labels_max sectors a label takes: its own, or else one without a label, or else the one that was opened first.
[[nodiscard]] std::size_t sector_for(std::span<const std::byte> sectors, std::string_view label);

}  // namespace terrace
