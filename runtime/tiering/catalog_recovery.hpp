#pragma once

#include "base/block_key.hpp"
#include "runtime/residency/residency.hpp"
#include "runtime/tiering/flush_scheduler.hpp"
#include "storage/index/block_store.hpp"

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace terrace {

/// Brings back into the tree what storage holds from before. Blocks come depth first, as BlockStore::adopt_all() shows them: what
/// a block builds on is then on the prefix that was followed last, and whole runs of a prefix are added at once. Threads: the
/// manager's.
class CatalogRecovery {
 public:
  CatalogRecovery(Residency& residency, FlushScheduler& flushes) : residency_{residency}, flushes_{flushes} {}

  /// Before the first blocks of a store.
  void begin() { trail_.clear(); }
  /// Sets each block's number, to be used as the token of its events; none of one whose parent was not shown before it, or that
  /// is in storage already.
  void add(std::span<const StoredBlock> blocks, std::span<std::optional<std::uint64_t>> numbers);

 private:
  void add_run(std::span<const StoredBlock> run, std::span<std::optional<std::uint64_t>> numbers);

  Residency& residency_;
  FlushScheduler& flushes_;
  Prefix at_;                    ///< that was followed last
  std::vector<BlockKey> trail_;  ///< its keys
};

}  // namespace terrace
