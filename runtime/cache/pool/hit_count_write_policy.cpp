#include "runtime/cache/pool/hit_count_write_policy.hpp"

namespace terrace {

void HitCountWritePolicy::on_settings() {
  const bool counts = config_.stores_by(WritePolicy::selective) && config_.selective_hits > 1;
  if (counts && hits_.empty()) hits_.resize(places_wanted_);
}

void HitCountWritePolicy::on_hits(Prefix prefix) {
  if (!config_.stores_by(WritePolicy::selective) || prefix.length == 0 || residency_.copy(prefix.last(), Tier::storage).present())
    return;
  const PrefixTree& tree = residency_.tree();
  std::uint32_t length = prefix.length;  // length of the prefix to store
  if (config_.selective_hits > 1) {
    // Blocks in storage are the first ones of the prefix.
    std::uint32_t first = prefix.length - 1;
    while (first > 0 && !residency_.copy({prefix.node, first - 1}, Tier::storage).present()) --first;
    length = 0;
    for (std::uint32_t i = first; i < prefix.length; ++i) {
      const HitCounts::Counted counted = hits_.count(tree.key({prefix.node, i}), config_.selective_hits);
      if (counted.begun) ++stats_.backup_candidates;
      if (counted.hits >= config_.selective_hits) length = i + 1;
    }
    if (length == 0) return;
  }
  const std::uint32_t before = storage_writer_.in_flight();
  (void)storage_writer_.begin(tree.at(prefix, length - 1));
  stats_.backed_up += storage_writer_.in_flight() - before;
}

}  // namespace terrace
