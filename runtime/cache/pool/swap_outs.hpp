#pragma once

#include "base/vector_pool.hpp"
#include "runtime/cache/orders/link_guard.hpp"
#include "runtime/cache/orders/transfer_table.hpp"
#include "runtime/cache/pool/pool_part.hpp"
#include "transfer/device/transfer.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace terrace {

/// Purpose of a copy from device to host. It decides the urgency of the transfer, and what becomes of the device copy.
enum class SwapOutPurpose : std::uint8_t {
  evict,        ///< the host copy replaces the device copy, and a request waits for the device slot
  evict_ahead,  ///< the same, but no request waits
  inclusive,    ///< inclusive mode: the host gets a copy, too
  stage,        ///< the block goes to storage, through a staging slot
};

[[nodiscard]] constexpr bool evicts(SwapOutPurpose purpose) {
  return purpose == SwapOutPurpose::evict || purpose == SwapOutPurpose::evict_ahead;
}

/// Copies blocks from device to host: to host copies, or for purpose stage to the staging slots of StorageWriter.
///
///     waiting ---> collected ---> crossing ---> host copy ready, or absent if the transfer failed
///     stage:       collected ---> crossing ---> Staged
///
/// waiting: if there is no slot, HostSlotAllocator keeps the swap-out until there is one, or until it is needless. collected: the
/// host copy is filling. crossing: a transfer copies the block. In all these states the swap-out holds its device copy
/// (Residency::hold). At its end, DeferredEviction::reader_gone drops the device copy if it is still evicting.
///
/// Threads: the manager's.
class SwapOuts : PoolPart {
 public:
  /// A swap-out of purpose stage that has ended. If the bytes arrived, the slot belongs to StorageWriter. If not, SwapOuts frees
  /// it.
  struct Staged {
    std::uint32_t write = 0;  ///< as given to begin()
    bool arrived = false;
  };

  SwapOuts(const PoolPart& part, const LinkGuard& link) : PoolPart{part}, link_{link} {}

  /// Returns false while copies between device and host fail. Do not call begin() then.
  [[nodiscard]] bool allowed() const { return link_.allows(); }

  /// Holds the device copy for a swap-out of this purpose. The copy is evicting from now on if that is an eviction.
  void hold(BlockRef block, SwapOutPurpose purpose);
  /// Begins to copy the block. Its device copy must be usable. The caller holds `host_slot`, and SwapOuts takes it over. If the
  /// purpose is an eviction, the device copy is evicting from now on. `write`: number that comes back in Staged; only for purpose
  /// stage.
  void begin(BlockRef block, SlotId host_slot, SwapOutPurpose purpose, std::uint32_t write = 0);
  /// The same for an eviction of neighbouring blocks of one node, whose copies on the device are ready.
  void begin(Run run, std::span<const SlotId> host_slots, SwapOutPurpose purpose);
  /// Makes transfers of the copies begun since the last call: at most one for each urgency. They are appended to
  /// Actions::transfers. `last_transfer` is the last transfer id in use; it grows.
  void start_transfers(std::uint64_t& last_transfer);
  /// Call this when requests wait for `slots` slots that no urgent swap-out will free. Raises transfers of purpose evict_ahead to
  /// the request lane, the oldest first, until these transfers free `slots` slots.
  void raise_ahead(std::uint64_t slots);
  /// Number of blocks of purpose evict_ahead in transfers that have not been raised.
  [[nodiscard]] std::uint64_t ahead_blocks() const { return ahead_blocks_; }
  /// Returns false if the event is not about a transfer of this object.
  bool on_event(const TransferEvent& event);
  /// The swap-outs of purpose stage that have ended since the last call, in order.
  void take_staged(std::vector<Staged>& staged) { take_all(staged_, staged); }

  /// start_transfers() would change nothing.
  [[nodiscard]] bool rests() const { return collected_.empty(); }
  [[nodiscard]] bool idle() const { return collected_.empty() && transfers_.empty(); }

 private:
  /// Neighbouring blocks whose copies have begun together. A split can move some of them to another node before the copies end.
  struct Blocks {
    Run run;
    SlotId host_slot;  ///< of the first block
    SwapOutPurpose purpose = SwapOutPurpose::evict;
    std::uint32_t write = 0;
    std::uint32_t first_piece = 0;  ///< while they have no transfer: their slots, in pieces_
    std::uint32_t end_piece = 0;
  };

  [[nodiscard]] std::span<const SlotRun> pieces(const Blocks& blocks) const {
    return std::span{pieces_}.subspan(blocks.first_piece, blocks.end_piece - blocks.first_piece);
  }
  [[nodiscard]] Urgency urgency_of(const Blocks& blocks) const;
  [[nodiscard]] bool finish_evicted(Run run);
  void finish(BlockRef block, const Blocks& of, bool arrived);

  const LinkGuard& link_;
  std::vector<Staged> staged_;  ///< not taken yet
  /// Swap-outs that have begun and have no transfer yet. They wait for the end of CacheManager::settle(), so that neighbouring
  /// blocks that different steps evict become one run.
  std::vector<Blocks> collected_;
  std::vector<SlotRun> pieces_;
  VectorPool<Blocks> spare_;
  TransferTable<std::vector<Blocks>> transfers_;
  struct Ahead {
    TransferId id;
    std::uint64_t blocks = 0;  ///< number of blocks of purpose evict_ahead
  };
  void forget_ahead(TransferId id);

  std::vector<Ahead> ahead_;  ///< transfers with blocks of purpose evict_ahead that have not been raised, oldest first
  std::uint64_t ahead_blocks_ = 0;
};

}  // namespace terrace
