#pragma once

#include "base/block_key.hpp"
#include "base/strong_id.hpp"
#include "base/vector_pool.hpp"
#include "storage/index/block_store.hpp"
#include "transfer/device/transfer.hpp"

#include <cstdint>
#include <vector>

namespace terrace {

/// A block to be read from storage into a slot of the host arena.
struct ReadOrder {
  std::uint64_t token = 0;
  BlockKey key;
  SlotId into;
};

/// A block to be written to storage from a slot of the host arena.
struct WriteOrder {
  std::uint64_t token = 0;
  StoredBlock block;
  SlotId from;
};

/// What the manager wants done, in this order. Whoever owns the manager takes them after each call and has them done; the
/// manager touches no device, no disk and no queue itself.
struct Actions {
  std::vector<Transfer> transfers;
  std::vector<TransferId> cancels;
  std::vector<TransferId> raises;  ///< somebody waits for these now
  std::vector<BlockKey> touches;
  std::vector<WriteOrder> writes;
  std::vector<BlockKey> removes;  ///< from storage, with all that follows them
  std::vector<ReadOrder> reads;
  std::vector<std::uint64_t> flushes;  ///< of storage, by round
  VectorPool<SlotRun> spare_runs;      ///< of transfers that have ended, for the next ones

  [[nodiscard]] bool empty() const {
    return transfers.empty() && cancels.empty() && raises.empty() && touches.empty() && writes.empty() && removes.empty() &&
           reads.empty() && flushes.empty();
  }
  /// Keeps the memory.
  void clear() {
    transfers.clear();
    cancels.clear();
    raises.clear();
    touches.clear();
    writes.clear();
    removes.clear();
    reads.clear();
    flushes.clear();
  }
};

}  // namespace terrace
