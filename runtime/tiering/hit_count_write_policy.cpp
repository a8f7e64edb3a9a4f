#include "runtime/tiering/hit_count_write_policy.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <stdexcept>

namespace terrace {

HitCountWritePolicy::HitCountWritePolicy(const ManagerConfig& config, const PoolSizes& sizes, Residency& residency,
                                         StorageWriter& storage_writer, ManagerStats& stats)
    : on_{config.storage && config.write_policy == WritePolicy::selective},
      hits_wanted_{config.selective_hits},
      residency_{residency},
      storage_writer_{storage_writer},
      stats_{stats} {
  constexpr std::uint32_t hits_max = 255;
  if (hits_wanted_ == 0 || hits_wanted_ > hits_max) {
    throw std::invalid_argument{
        fmt::format("selective_hits is {}: it must be 1 (store at the first hit) to {}", hits_wanted_, hits_max)};
  }
  constexpr std::uint64_t places_min = 64;
  const std::uint64_t blocks = std::uint64_t{sizes.device_blocks} + sizes.host_blocks;
  if (on_ && hits_wanted_ > 1) places_.resize(std::bit_ceil(std::max(blocks, places_min)));
}

void HitCountWritePolicy::on_hits(Prefix prefix) {
  if (!on_ || prefix.length == 0 || residency_.copy(prefix.last(), Tier::storage).present()) return;
  const PrefixTree& tree = residency_.tree();
  std::uint32_t length = prefix.length;  // of the prefix to store
  if (hits_wanted_ > 1) {
    // Blocks in storage are the first ones of the prefix.
    std::uint32_t first = prefix.length - 1;
    while (first > 0 && !residency_.copy({prefix.node, first - 1}, Tier::storage).present()) --first;
    length = 0;
    for (std::uint32_t i = first; i < prefix.length; ++i) {
      if (count(tree.key({prefix.node, i})) >= hits_wanted_) length = i + 1;
    }
    if (length == 0) return;
  }
  const std::uint32_t before = storage_writer_.in_flight();
  (void)storage_writer_.begin(tree.at(prefix, length - 1));
  stats_.backed_up += storage_writer_.in_flight() - before;
}

/// Counts a hit of the block. Returns its hits so far, including this one.
std::uint32_t HitCountWritePolicy::count(const BlockKey& key) {
  const std::uint64_t hash = key.prefix64();
  const auto name = static_cast<std::uint32_t>(hash >> 32);
  Place& place = places_[hash & (places_.size() - 1)];
  if (place.hits == 0 || place.name != name) {
    place = {name, 0};
    ++stats_.backup_candidates;
  }
  if (place.hits < hits_wanted_) ++place.hits;
  return place.hits;
}

}  // namespace terrace
