#pragma once

#include "base/vector_pool.hpp"
#include "terrace/block_store.hpp"
#include "terrace/clock.hpp"
#include "terrace/types.hpp"
#include "transfer/device/transfer.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
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
  TimePoint deadline;  ///< `never`: it has no deadline any more
};

/// The work that the manager wants the shared store to do, in the order of the members. The tokens of each kind of work are
/// numbers below 2^30. A token can be used again after the event.
struct SharedActions {
  /// A question of SharedQuestions (Asker::requests) or of SharedWriter. The asker keeps the keys, and the memory of the last two
  /// members, until the event comes.
  struct Probe {
    enum class Asker : std::uint8_t { requests, writer };
    Asker asker = Asker::requests;
    std::uint32_t token = 0;
    std::span<const BlockKey> keys;
    GroupId group;
    TimePoint deadline = never;
    std::span<const GroupId> groups{};  ///< SharedProbe::groups
    std::span<std::uint8_t> there{};    ///< SharedProbe::there
  };
  struct Read {
    std::uint32_t token = 0;
    StoredBlock block;
    SlotId into;
    TimePoint deadline = never;
  };
  struct Write {
    std::uint32_t token = 0;
    StoredBlock block;
    SlotId from;
    TimePoint deadline = never;
  };

  std::vector<Probe> probes;
  std::vector<Write> writes;
  std::vector<Read> reads;
  std::vector<StoredBlock> renewals;
  std::vector<std::uint32_t> cancelled_probes;  ///< probes of requests
  std::vector<std::uint32_t> cancelled_reads;

  [[nodiscard]] bool empty() const {
    return probes.empty() && writes.empty() && reads.empty() && renewals.empty() && cancelled_probes.empty() &&
           cancelled_reads.empty();
  }
  /// The vectors keep their memory.
  void clear() {
    probes.clear();
    writes.clear();
    reads.clear();
    renewals.clear();
    cancelled_probes.clear();
    cancelled_reads.clear();
  }
};

/// The work that the manager wants done, in the order of the members. The manager itself uses no device, no disk and no queue:
/// after each call, its owner takes the actions, has them carried out, and clears this struct.
struct Actions {
  std::vector<Transfer> transfers;  ///< made by TieredPool::start_transfers; while transfers are paused, they wait here
  std::vector<TransferId> cancels;
  std::vector<TransferId> raises;  ///< move to the lane of transfers that a request waits for
  std::vector<Postponement> postponements;
  std::vector<BlockKey> touches;
  std::vector<WriteOrder> writes;
  std::vector<BlockKey> removes;  ///< from storage, with all blocks that follow them
  std::vector<ReadOrder> reads;
  std::vector<MemoryCopy> copies;
  std::vector<std::uint64_t> flushes;  ///< rounds of storage flushes to begin
  VectorPool<SlotRun> spare_runs;      ///< runs of ended transfers; the next transfers use their memory
  /// Carried out separately: empty() and clear() of this struct do not include it.
  SharedActions shared;

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
