#pragma once

#include "base/vector_pool.hpp"
#include "terrace/block_store.hpp"
#include "terrace/clock.hpp"
#include "terrace/types.hpp"
#include "transfer/device/transfer.hpp"

#include <cstddef>
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

/// Bytes to be copied between a slot of the host arena and memory that a caller has named.
struct MemoryCopy {
  std::uint64_t token = 0;
  SlotId slot;
  std::byte* memory = nullptr;
  Direction direction = Direction::swap_in;  ///< swap_in: from the slot to the memory
};

/// A later deadline for a transfer.
struct Postponement {
  TransferId id;
  TimePoint deadline;  ///< `never`: it has none any more
};

/// The work that the manager wants done, in the order of the members. The manager itself uses no device, no disk and no queue:
/// after each call, its owner takes the actions, has them carried out, and clears this struct.
struct Actions {
  std::vector<Transfer> transfers;
  std::vector<TransferId> cancels;
  std::vector<TransferId> raises;  ///< move to the lane of transfers that a request waits for
  std::vector<Postponement> postponements;
  std::vector<BlockKey> touches;
  std::vector<WriteOrder> writes;
  std::vector<BlockKey> removes;  ///< from storage, with all blocks that follow them
  std::vector<ReadOrder> reads;
  std::vector<MemoryCopy> copies;
  std::vector<std::uint64_t> flushes;  ///< rounds of storage flushes to begin
  VectorPool<SlotRun> spare_runs;      ///< runs of ended transfers, whose memory the next ones use

  [[nodiscard]] bool empty() const {
    return transfers.empty() && cancels.empty() && raises.empty() && postponements.empty() && touches.empty() && writes.empty() &&
           removes.empty() && reads.empty() && copies.empty() && flushes.empty();
  }
  /// The vectors keep their memory.
  void clear() {
    transfers.clear();
    cancels.clear();
    raises.clear();
    postponements.clear();
    touches.clear();
    writes.clear();
    removes.clear();
    reads.clear();
    copies.clear();
    flushes.clear();
  }
};

}  // namespace terrace
