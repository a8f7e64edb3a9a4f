#include "runtime/tiering/hit_count_write_policy.hpp"

#include <algorithm>
#include <bit>

namespace terrace {

namespace {

std::size_t places_for(const PoolSizes& sizes) {
  constexpr std::uint64_t places_min = 64;
  const std::uint64_t blocks = std::uint64_t{sizes.device_blocks} + sizes.host_blocks;
  return std::bit_ceil(std::max(blocks, places_min));
}

}  // namespace

HitCountWritePolicy::HitCountWritePolicy(const ManagerConfig& config, const PoolSizes& sizes, Residency& residency,
                                         StorageWriter& storage_writer, ManagerStats& stats)
    : config_{config}, places_wanted_{places_for(sizes)}, residency_{residency}, storage_writer_{storage_writer}, stats_{stats} {
  on_settings();
}

void HitCountWritePolicy::on_settings() {
  const bool counts = config_.stores_by(WritePolicy::selective) && config_.selective_hits > 1;
  if (counts && places_.empty()) places_.resize(places_wanted_);
}

void HitCountWritePolicy::on_hits(Prefix prefix) {
  if (!config_.stores_by(WritePolicy::selective) || prefix.length == 0 || residency_.copy(prefix.last(), Tier::storage).present())
    return;
  const PrefixTree& tree = residency_.tree();
  std::uint32_t length = prefix.length;  // of the prefix to store
  if (config_.selective_hits > 1) {
    // Blocks in storage are the first ones of the prefix.
    std::uint32_t first = prefix.length - 1;
    while (first > 0 && !residency_.copy({prefix.node, first - 1}, Tier::storage).present()) --first;
    length = 0;
    for (std::uint32_t i = first; i < prefix.length; ++i) {
      if (count(tree.key({prefix.node, i})) >= config_.selective_hits) length = i + 1;
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
  if (place.hits < config_.selective_hits) ++place.hits;
  return place.hits;
}

}  // namespace terrace
