#include "runtime/tiering/hit_counts.hpp"

#include <algorithm>
#include <bit>

namespace terrace {

void HitCounts::resize(std::size_t places) {
  constexpr std::size_t places_min = 64;
  places_.assign(std::bit_ceil(std::max(places, places_min)), {});
}

HitCounts::Counted HitCounts::count(const BlockKey& key, std::uint32_t most) {
  const std::uint64_t hash = key.prefix64();
  const auto name = static_cast<std::uint32_t>(hash >> 32);
  Place& place = places_[hash & (places_.size() - 1)];
  const bool begun = place.hits == 0 || place.name != name;
  if (begun) place = {name, 0};
  if (place.hits < most) ++place.hits;
  return {place.hits, begun};
}

}  // namespace terrace
