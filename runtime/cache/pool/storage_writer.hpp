#pragma once

#include "base/fifo.hpp"
#include "base/slab.hpp"
#include "base/vector_pool.hpp"
#include "runtime/cache/orders/flush_scheduler.hpp"
#include "runtime/cache/pool/pool_part.hpp"
#include "runtime/cache/pool/swap_outs.hpp"
#include "runtime/cache/types/write_budget.hpp"
#include "terrace/block_store.hpp"

#include <array>
#include <cstdint>
#include <limits>
#include <vector>

namespace terrace {

/// Writes blocks to storage, ancestors first.
///
///     wish --> staging --> waiting for its parent --> queued --> writing --> stored, or failed with all writes that wait for it
///      |       (a device copy)       (its bytes are in the arena)
///      +-----> waiting for its parent    (a host copy, which is lent)
///
/// A pending write begins as a wish. A wish holds no slot and no copy: the block's copies can be evicted. If the block has no
/// copy left when the wish's turn comes, the wish is dropped, and so are the wishes that depend on it. A pending write that has
/// started has one slot of the staging budget: a staging slot, or a lent host copy (Residency), which can be evicted like any
/// other copy. So its bytes stay available however slow storage is, and no request ever waits for storage to write. A device copy
/// is held only while a swap-out copies it to staging.
///
/// Order: a pending write starts only after its parent is stored or has started, so a started one never waits for a wish. A block
/// is given to the store after its parent. The store makes it readable only after its parent.
///
/// Threads: the manager's.
class StorageWriter : PoolPart {
 public:
  /// The set of clients that want a block stored, one bit each: bit 0 is the write policy, the others are write-back jobs. A
  /// pending write that loses its last bit before it is given to the store is cancelled.
  using Wants = std::uint32_t;
  static constexpr std::uint32_t wants_count = 32;
  static constexpr Wants by_policy = 1;
  /// The result of a pending write that at least one job wanted.
  struct Ended {
    Wants wants = 0;
    BlockKey key;
    ErrorCode error;
  };

  StorageWriter(const PoolPart& part, const PoolSizes& sizes, SwapOuts& swap_outs, WriteBudget& budget, FlushScheduler& flushes)
      : PoolPart{part}, swap_outs_{swap_outs}, budget_{budget}, flushes_{flushes}, block_bytes_{sizes.block_bytes} {}

  [[nodiscard]] Bytes block_bytes() const { return block_bytes_; }

  /// Upper bound of the blocks that the store has been given and has not written yet.
  static constexpr std::uint32_t writes_max = 1024;
  /// Upper bound of the wishes of the write policy. Write-back jobs may add more.
  static constexpr std::uint32_t wishes_max = 32768;

  struct Begun {
    std::uint32_t blocks = 0;  ///< ancestors included
    /// The reason if it stopped before the block itself: cleared, not_found (no copy to write), refused (too many wishes, or
    /// `blocks_max`), full (the daily budget is spent). No error if it did not stop.
    ErrorCode why;
  };
  /// Creates a wish for the block and for each ancestor that is neither stored nor has a pending write. Ancestors come first.
  /// Creates at most `blocks_max` wishes. If it stops before the block itself, the wishes created so far stay.
  Begun begin(BlockRef block, Wants wants = by_policy, std::uint32_t blocks_max = std::numeric_limits<std::uint32_t>::max());
  /// Write policy `write-through`: begins to store the last of `blocks` new blocks, and the new blocks before it.
  void write_through(BlockRef last, std::uint32_t blocks) {
    if (full()) stats_.store_skipped += blocks;
    else (void)begin(last);
  }
  /// The treatment of a victim that is in no other tier, under write policy `write-back`.
  enum class Unsaved : std::uint8_t {
    stays,         ///< it is not evicted
    is_saved,      ///< its write is started; if that is not possible yet, it is not evicted
    evict_anyway,  ///< its write is started if that is possible; it is evicted in any case
  };
  /// The last copy of the block above storage is a victim. Returns true if it may be evicted, as under any other write policy. A
  /// swap-out to staging may have begun; then the copy goes when that ends. Returns false if it stays; if `is_saved`, ask again
  /// when ended() has grown.
  [[nodiscard]] bool lets_go(BlockRef victim, Unsaved unsaved);
  /// Number of pending writes that have ended, with any result. It only grows.
  [[nodiscard]] std::uint64_t ended() const { return ended_count_; }
  /// Adds `wants` to the pending write of the block, and to those of its ancestors.
  void want(BlockRef block, Wants wants);
  /// Removes the bits of `wants` from all pending writes. Appends the keys of the blocks that had one of them to `keys`; the end
  /// of their writes is not reported for these bits any more. A block without any other bit is not stored, unless the store has
  /// been given it already.
  void unwant_all(Wants wants, std::vector<BlockKey>& keys);
  /// There are so many wishes that the write policy adds no more for now.
  [[nodiscard]] bool full() const { return wishes_.size() >= wishes_max; }
  /// Number of pending writes that have this bit.
  [[nodiscard]] std::uint64_t wanted(std::uint32_t bit) const { return wanted_[bit]; }
  /// The store has ended a WriteOrder. `token` is the number of the block (Residency::begin_store).
  void on_written(std::uint32_t token, ErrorCode error);
  /// A swap-out to staging has ended.
  void on_staged(const SwapOuts::Staged& staged);
  /// The results of pending writes that have ended since the last call, in order.
  void take_ended(std::vector<Ended>& ended) { take_all(ended_, ended); }
  /// Stops every pending write that has not been given to the store yet. Such a write ends with `cleared` at its next step.
  void stop_all();
  /// Starts wishes while staging has room, and gives the store blocks while it has fewer than writes_max. Returns true if
  /// anything changed.
  bool pump() {
    const bool started = start_wishes();
    return give_to_store() || started;
  }

  [[nodiscard]] bool idle() const { return in_flight() == 0; }
  /// pump() would change nothing.
  [[nodiscard]] bool rests() const { return wishes_.empty() && queued_.empty(); }
  /// Number of pending writes, wishes included.
  [[nodiscard]] std::uint32_t in_flight() const { return static_cast<std::uint32_t>(pending_.size()); }

 private:
  enum class State : std::uint8_t { wish, staging, waiting_for_parent, queued, writing };
  static constexpr std::uint32_t no_write = 0xFFFF'FFFF;
  struct PendingWrite {
    BlockRef block;
    std::uint32_t number = 0;  ///< number of the block in storage (Residency::begin_store)
    SlotId slot{};             ///< the arena slot with its bytes, once the write is started
    Wants wants = 0;
    ErrorCode stop_with{};  ///< if set, the write ends with this error before its next state
    State state = State::wish;
    /// Linked list of the children that wait until this block is given to the store. `first_child` is the head of this write's
    /// list; `next_sibling` links this write into the list of its parent.
    std::uint32_t first_child = no_write;
    std::uint32_t next_sibling = no_write;
    std::uint64_t turn = 0;  ///< number of its entry in wishes_, for a wish
  };
  /// An entry of the queue of wishes. It is out of date if the pending write is not a wish any more, or has another turn.
  struct Turn {
    std::uint32_t index = 0;
    std::uint64_t turn = 0;
  };

  enum class Saved : std::uint8_t {
    yes,      ///< its bytes are in storage, or will be written from the arena
    later,    ///< staging has too few slots, or an ancestor is still being loaded
    refused,  ///< the daily budget is spent, storage fails, or the block is hidden; the statistics count it
  };
  [[nodiscard]] Saved save_now(BlockRef block);
  void create(BlockRef block, Wants wants);
  void depend_on(BlockRef above, Wants wants);
  void add_wants(PendingWrite& write, Wants wants);
  [[nodiscard]] PendingWrite* pending_write_of(BlockRef block);
  [[nodiscard]] ErrorCode reason_to_drop(const PendingWrite& wish) const;
  /// Returns true if the block's only copy is being swapped out to the host. A read for staging would delay this eviction. The
  /// host has a copy soon, which is lent instead.
  [[nodiscard]] bool is_being_evicted(BlockRef block) const {
    return !residency_.usable(block, Tier::host) && residency_.copy(block, Tier::device).state() == CopyState::evicting;
  }
  [[nodiscard]] bool parent_is_with_store(const PendingWrite& write);
  bool start(std::uint32_t index);
  bool start_wishes();
  bool give_to_store();
  void queue_or_wait(std::uint32_t index);
  void submit(std::uint32_t index);
  void finish(std::uint32_t index, ErrorCode error);
  void count_not_stored(ErrorCode why);
  [[nodiscard]] bool has_source(BlockRef block) const {
    return residency_.usable(block, Tier::host) || residency_.usable(block, Tier::device);
  }
  Saved later_or_refused();

  SwapOuts& swap_outs_;
  WriteBudget& budget_;
  FlushScheduler& flushes_;
  Bytes block_bytes_;         ///< counts against the daily budget of writes
  std::vector<Ended> ended_;  ///< not taken yet
  std::array<std::uint64_t, wants_count> wanted_{};
  Slab<PendingWrite> pending_;
  std::vector<std::uint32_t> by_number_;  ///< index in pending_, by the number of the block in storage
  Fifo<Turn> wishes_;
  std::uint64_t last_turn_ = 0;
  Fifo<std::uint32_t> queued_;   ///< indexes of the pending writes that can be given to the store
  std::vector<BlockRef> chain_;  ///< scratch
  std::uint32_t writing_ = 0;
  std::uint32_t started_ = 0;  ///< pending writes that are not wishes
  std::uint64_t ended_count_ = 0;
  /// The last write of the store failed. Writes that ended with parent_missing do not count.
  bool failing_ = false;
};

}  // namespace terrace
