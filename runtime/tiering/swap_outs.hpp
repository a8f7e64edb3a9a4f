#pragma once

#include "base/vector_pool.hpp"
#include "runtime/residency/deferred_eviction.hpp"
#include "runtime/residency/residency.hpp"
#include "runtime/tiering/actions.hpp"
#include "runtime/tiering/transfer_table.hpp"
#include "transfer/device/transfer.hpp"

#include <boost/unordered/unordered_flat_map.hpp>

#include <cstdint>
#include <vector>

namespace terrace {

/// What a copy from device to host is for.
enum class SwapOutPurpose : std::uint8_t {
  evict,        ///< the device copy leaves, the host copy takes its place, and somebody waits for the slot
  evict_ahead,  ///< as evict, but nobody waits
  duplicate,    ///< inclusive: the host gets a copy too
  stage,        ///< on its way to storage, through a staging slot
};

[[nodiscard]] constexpr bool leaves(SwapOutPurpose purpose) {
  return purpose == SwapOutPurpose::evict || purpose == SwapOutPurpose::evict_ahead;
}

/// Copies from device to host: collects them into transfers, and takes each to its end. Every begun copy holds a reader on its
/// device copy until it ends. Threads: the manager's.
class SwapOuts {
 public:
  /// A `stage` copy that has ended. If the bytes arrived, the slot belongs to the storage writer from then on. If not, SwapOuts
  /// has freed it.
  struct Staged {
    std::uint32_t write = 0;  ///< as given to begin()
    bool arrived = false;
  };

  SwapOuts(const ManagerConfig& config, Residency& residency, DeferredEviction& deferred_eviction, Actions& actions)
      : inclusion_{config.inclusion}, residency_{residency}, deferred_eviction_{deferred_eviction}, actions_{actions} {}

  /// The device copy must be usable; `host_slot` is held by the caller and goes over to the copy. Reads the device copy from
  /// now on; for evict the copy is evicting.
  void begin(BlockRef block, SlotId host_slot, SwapOutPurpose purpose, std::uint32_t write = 0);
  /// Makes transfers of the copies begun since the last call: one for each urgency. (This is not a flush of storage.)
  void flush(std::uint64_t& last_transfer, PoolId pool);
  /// Requests wait for `slots` slots that no urgent swap-out will free. Raises transfers that were begun ahead of need to the
  /// request lane, the oldest first, until they free as many slots.
  void raise_ahead(std::uint64_t slots);
  /// Blocks under way that make room, for which nobody waits.
  [[nodiscard]] std::uint64_t ahead_blocks() const { return ahead_blocks_; }
  /// True where the event is of a transfer of this object.
  bool on_event(const TransferEvent& event);
  /// The `stage` copies that have ended since the last call, in order. Swaps the vectors, so that their memory is reused.
  void take_staged(std::vector<Staged>& staged) {
    staged.clear();
    staged.swap(staged_);
  }

  [[nodiscard]] bool idle() const { return collected_.empty() && transfers_.empty() && unconfirmed_.empty(); }

 private:
  struct Block {
    BlockRef block;
    SlotId device_slot;
    SlotId host_slot;
    SwapOutPurpose purpose = SwapOutPurpose::evict;
    std::uint32_t write = 0;
  };

  [[nodiscard]] bool on_confirmed(TransferId id);
  [[nodiscard]] Urgency urgency_of(const Block& block) const;
  void finish(const Block& block, BlockOutcome outcome);

  InclusionPolicy inclusion_;
  Residency& residency_;
  DeferredEviction& deferred_eviction_;
  Actions& actions_;
  std::vector<Staged> staged_;  ///< that nobody has taken yet
  std::vector<Block> collected_;
  std::vector<SlotPair> pairs_;  ///< scratch
  VectorPool<Block> spare_;
  TransferTable<std::vector<Block>> transfers_;
  struct Ahead {
    TransferId id;
    std::uint64_t blocks = 0;  ///< that make room
  };
  void forget_ahead(TransferId id);

  std::vector<Ahead> ahead_;  ///< of transfers_, in order, those that make room for which nobody waits
  std::uint64_t ahead_blocks_ = 0;
  /// Blocks whose transfer may still be under way.
  boost::unordered_flat_map<TransferId, std::vector<Block>, std::hash<TransferId>> unconfirmed_;
};

}  // namespace terrace
