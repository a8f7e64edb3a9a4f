#pragma once

#include "runtime/cache/index/residency.hpp"
#include "runtime/cache/orders/flush_scheduler.hpp"
#include "terrace/block_store.hpp"
#include "terrace/types.hpp"

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace terrace {

/// Adds the blocks that a store holds from an earlier process to the tree. The blocks come depth first, as
/// BlockStore::adopt_all() reports them. So the parent of a block is always on the prefix that was added last, and a run of
/// blocks is added at once.
///
/// Threads: the manager's.
class CatalogRecovery {
 public:
  CatalogRecovery(Residency& residency, FlushScheduler& flushes) : residency_{residency}, flushes_{flushes} {}

  /// Call it before add() gets the first blocks of a store.
  void begin() { trail_.clear(); }
  /// Adds blocks. numbers[i] gets the number of block i, which is the token of its later events. It stays empty if the parent of
  /// the block was not added before it, or if the tree knows already that storage has the block.
  void add(std::span<const StoredBlock> blocks, std::span<std::optional<std::uint64_t>> numbers);

 private:
  void add_run(std::span<const StoredBlock> run, std::span<std::optional<std::uint64_t>> numbers);

  Residency& residency_;
  FlushScheduler& flushes_;
  Prefix at_;                    ///< the prefix that was added last
  std::vector<BlockKey> trail_;  ///< its keys
};

}  // namespace terrace
