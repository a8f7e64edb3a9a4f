#pragma once

#include <span>
#include <string>
#include <string_view>

namespace terrace {

/// Returns the known name that is most similar to `word`, or an empty view if none is similar. Two names are similar if few
/// letters must be inserted, removed, replaced or swapped with their neighbour to turn one into the other: at most one third of
/// the letters of `word`, or one. The view is into `known`.
[[nodiscard]] std::string_view nearest_name(std::string_view word, std::span<const std::string> known);

/// Returns "; did you mean NAME?" with the nearest name, or an empty text if no name is similar.
[[nodiscard]] std::string suggestion(std::string_view word, std::span<const std::string> known);

}  // namespace terrace
