#include "runtime/config/table/nearest_name.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <vector>

namespace terrace {
namespace {

/// The number of letters that must be inserted, removed, replaced or swapped with their neighbour to turn `a` into `b`.
std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<std::size_t>> d(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
  for (std::size_t i = 0; i <= a.size(); ++i) {
    for (std::size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        d[i][j] = i + j;
        continue;
      }
      d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0U : 1U)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
    }
  }
  return d[a.size()][b.size()];
}

}  // namespace

std::string_view nearest_name(std::string_view word, std::span<const std::string> known) {
  constexpr std::size_t longest = 64;
  if (word.size() > longest || known.empty()) return "";
  const auto nearest = std::ranges::min_element(known, {}, [&](const std::string& each) { return distance(word, each); });
  if (distance(word, *nearest) > std::max<std::size_t>(1, word.size() / 3)) return "";
  return *nearest;
}

std::string suggestion(std::string_view word, std::span<const std::string> known) {
  const std::string_view name = nearest_name(word, known);
  return name.empty() ? std::string{} : fmt::format("; did you mean {}?", name);
}

}  // namespace terrace
