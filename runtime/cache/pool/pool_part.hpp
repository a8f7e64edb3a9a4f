#pragma once

#include "runtime/cache/index/deferred_eviction.hpp"
#include "runtime/cache/index/residency.hpp"
#include "runtime/cache/orders/actions.hpp"
#include "runtime/cache/types/config.hpp"
#include "terrace/block_store.hpp"
#include "terrace/statistics.hpp"

namespace terrace {

/// The base of the parts of a TieredPool: what most of them use. All arguments outlive the parts. `config` may change while the
/// cache serves (TieredPool::on_settings).
class PoolPart {
 public:
  PoolPart(const ManagerConfig& config, Residency& residency, DeferredEviction& deferred_eviction, Actions& actions,
           ManagerStats& stats)
      : config_{config}, residency_{residency}, deferred_eviction_{deferred_eviction}, actions_{actions}, stats_{stats} {}

 protected:
  /// The description of the block by which a store names it.
  [[nodiscard]] StoredBlock as_stored(BlockRef block) const {
    const PrefixTree& tree = residency_.tree();
    const BlockKey parent = tree.parent_key(block).value_or(BlockKey{});
    return {tree.key(block), parent, block.depth, tree.tenant(block), tree.group(block)};
  }

  const ManagerConfig& config_;
  Residency& residency_;
  DeferredEviction& deferred_eviction_;
  Actions& actions_;  ///< the work that the pool wants done
  ManagerStats& stats_;
};

}  // namespace terrace
