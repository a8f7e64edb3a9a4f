#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace terrace {

/// Returns the difference of two snapshots of counters. Counters are never reset, so any number of readers can use them: each
/// reader keeps its last snapshot and subtracts it. `Counters` is a struct of std::uint64_t members only. Threads: any.
///
///     const ManagerStats before = cache.stats();
///     ...
///     const std::uint64_t acquired_meanwhile = (cache.stats() - before).acquired;
template <class Counters>
[[nodiscard]] constexpr Counters difference(const Counters& now, const Counters& before) {
  static_assert(std::has_unique_object_representations_v<Counters> && sizeof(Counters) % sizeof(std::uint64_t) == 0);
  using Words = std::array<std::uint64_t, sizeof(Counters) / sizeof(std::uint64_t)>;
  auto words = std::bit_cast<Words>(now);
  const auto subtrahends = std::bit_cast<Words>(before);
  for (std::size_t i = 0; i < words.size(); ++i) words[i] -= subtrahends[i];
  return std::bit_cast<Counters>(words);
}

}  // namespace terrace
