#pragma once

#include "runtime/cache/index/residency.hpp"
#include "terrace/policies.hpp"
#include "terrace/request.hpp"
#include "terrace/statistics.hpp"
#include "terrace/types.hpp"

#include <boost/unordered/unordered_flat_map.hpp>

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace terrace {

/// Drops copies: at once, or when the last transfer that reads them has ended. Counts what it drops. Threads: the manager's.
class DeferredEviction {
 public:
  DeferredEviction(const ManagerConfig& config, Residency& residency, ManagerStats& stats)
      : keeps_nothing_{config.store_uncached}, residency_{residency}, stats_{stats} {}

  /// A transfer does not read the copy any more. If it was the last reader, the copy is dropped if it is evicting or not
  /// supported any more (Residency::supported), unless a request has pinned it since.
  void reader_gone(BlockRef block, Tier tier);
  /// Drops the copy if it is ready, not pinned, and not supported: the block before it may have lost its copy while this one was
  /// filled.
  void drop_unsupported(BlockRef block, Tier tier);
  /// Drops a copy that nothing reads or pins. Also drops the copies that are not supported without it.
  void drop_now(BlockRef block, Tier tier);
  /// The same for a run of victims on which no copy depends. `clean`: number of the blocks that have a copy in another tier; only
  /// for statistics.
  void drop_now(Run victims, Tier tier, std::uint32_t clean);
  /// The same, and drops blocks that are of no use after that (drop_useless).
  void drop_victims(Run victims, Tier tier, std::uint32_t clean);
  /// Call this before the block loses its copy in this tier, and drop_useless() afterwards: it drops the blocks before it after
  /// which no hit can end (Residency::ends_no_hit), if no copy of the block is left.
  void will_drop(BlockRef block, Tier tier) {
    if (residency_.needs_companions()) pin_before(block, tier);
  }
  void drop_useless() {
    while (!before_dropped_.empty()) drop_useless_before();
  }
  /// Call this when a request, or a write of the block, does not need the block any more. If the manager stores without caching
  /// (ManagerConfig::store_uncached), it drops the device copy of the block, and then those of the blocks before it. It stops at
  /// the first block that is pinned, read, to be stored, protected by keep(), in the host, or needed by another copy. Otherwise
  /// it does nothing.
  void not_needed(BlockRef block);
  [[nodiscard]] bool keeps_nothing() const { return keeps_nothing_; }
  /// Protects blocks with these keys from not_needed() until end_keep() has been called as often for them. Eviction ignores this.
  /// Only for a manager that stores without caching; otherwise keep() and end_keep() do nothing.
  void keep(std::span<const BlockKey> keys);
  void end_keep(std::span<const BlockKey> keys);

 private:
  void pin_before(BlockRef block, Tier tier);
  void drop_useless_before();

  bool keeps_nothing_;
  Residency& residency_;
  ManagerStats& stats_;
  std::vector<Prefix> before_dropped_;                                            ///< pinned
  boost::unordered_flat_map<BlockKey, std::uint32_t, std::hash<BlockKey>> kept_;  ///< calls of keep() without end_keep()
};

}  // namespace terrace
