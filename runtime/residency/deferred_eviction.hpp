#pragma once

#include "radix/eviction/eviction_policy.hpp"
#include "runtime/residency/residency.hpp"
#include "runtime/types/request.hpp"

namespace terrace {

/// Copies going: at once, or when the last transfer that reads them has ended. Threads: the manager's.
class DeferredEviction {
 public:
  DeferredEviction(const ManagerConfig& config, Residency& residency, ManagerStats& stats)
      : keeps_nothing_{config.store_uncached}, residency_{residency}, stats_{stats} {}

  /// Marks the copy as evicting and holds it, until reader_gone() takes the hold back.
  void hold_evicting(BlockRef block, Tier tier);
  /// A transfer does not read the copy any more. With the last one, a copy that is evicting goes, unless a request has pinned
  /// it meanwhile; so does one that has lost its support.
  void reader_gone(BlockRef block, Tier tier);
  /// Gives up a copy that came too late: what it stands on has gone meanwhile.
  void drop_unsupported(BlockRef block, Tier tier);
  /// Gives up a copy that nothing reads or pins, with what loses its support.
  void drop_now(BlockRef block, Tier tier);
  /// The same for a run of the device's victims, of which all or none (`clean`) have a copy in the tiers below, and none that
  /// others stand on.
  void drop_now(Run victims, bool clean);
  /// A request, or whoever stored the block, is through with it. Where the manager stores without caching
  /// (ManagerConfig::store_uncached), what nobody needs any more goes: the copies of this block, and then of those before it, as
  /// far as nothing pins or reads them, wishes to store them, or stands on them.
  void not_needed(BlockRef block);

 private:
  bool keeps_nothing_;
  Residency& residency_;
  ManagerStats& stats_;
};

}  // namespace terrace
