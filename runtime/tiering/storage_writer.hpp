#pragma once

#include "base/fifo.hpp"
#include "runtime/residency/deferred_eviction.hpp"
#include "runtime/residency/residency.hpp"
#include "runtime/tiering/actions.hpp"
#include "runtime/tiering/flush_scheduler.hpp"
#include "runtime/tiering/swap_outs.hpp"
#include "runtime/tiering/write_budget.hpp"
#include "storage/index/block_store.hpp"

#include <array>
#include <cstdint>
#include <limits>
#include <vector>

namespace terrace {

/// Copies on their way to storage, ancestors first.
///
///     wish --> staging --> waiting for its parent --> queued --> writing --> stored, or failed, with all that wait for it
///      |       (a device copy)       (its bytes are in the arena)
///      +-----> waiting for its parent    (a host copy, which is lent)
///
/// Nothing here is a reason for anybody to wait. A wish holds nothing: the copy may be given up, and then the wish is
/// dropped when its turn comes, with those below it. From its start on a pending write has a slot's worth of the staging budget,
/// and with it memory of its own, however slow storage is: a staging slot, or a lent host copy (Residency), which may be evicted
/// as any other. A device copy is held while the link copies it to staging, and no longer.
///
/// A pending write is started only when its parent is stored or has been started, so that those that are started never wait for a
/// wish. A child is handed to the store once its parent has been; the store itself makes it readable after its parent. Threads:
/// the manager's.
class StorageWriter {
 public:
  /// Who wants a block stored: a bit each. What nobody wants any more, and is not with the store yet, is not stored.
  using Wants = std::uint32_t;
  static constexpr std::uint32_t wants_count = 32;
  static constexpr Wants by_policy = 1;
  /// A write that has ended, of a block that others than the policy wanted.
  struct Ended {
    Wants wants = 0;
    BlockKey key;
    ErrorCode error;
  };

  StorageWriter(Residency& residency, DeferredEviction& deferred_eviction, SwapOuts& swap_outs, Actions& actions,
                ManagerStats& stats, WriteBudget& budget, FlushScheduler& flushes);

  /// Of each block, for the budget.
  void set_block_bytes(Bytes bytes) { block_bytes_ = bytes; }
  [[nodiscard]] Bytes block_bytes() const { return block_bytes_; }

  /// Blocks with the store at a time.
  static constexpr std::uint32_t writes_max = 1024;
  /// Wishes that the policy adds to.
  static constexpr std::uint32_t wishes_max = 32768;

  struct Begun {
    std::uint32_t blocks = 0;  ///< ancestors included
    /// Why not all: cleared, not_found (no copy to take it from), refused (a bound), full (the budget).
    ErrorCode why;
  };
  /// Creates a wish for the block and for each ancestor that is neither stored nor on its way: ancestors first, `blocks_max`
  /// wishes at most. If it stops before the block itself, the wishes created so far stay.
  Begun begin(BlockRef block, Wants wants = by_policy, std::uint32_t blocks_max = std::numeric_limits<std::uint32_t>::max());
  enum class Saved : std::uint8_t {
    yes,      ///< the copy may go as soon as nothing reads it
    later,    ///< staging has no room for all of it, or it builds on what is on its way up: ask again when ended() has grown
    refused,  ///< and counted: the day's budget is spent, storage fails, the block is hidden
  };
  /// The block's last copy above storage is about to go: starts it, with all it builds on, ahead of its turn. Where it is to be
  /// later, what it builds on is wished for.
  [[nodiscard]] Saved save_now(BlockRef block);
  /// Pending writes that have ended, in whatever way. Grows only.
  [[nodiscard]] std::uint64_t ended() const { return ended_count_; }
  /// The block is on its way already: `wants` want it too, and what it builds on.
  void want(BlockRef block, Wants wants);
  /// Withdraws all that the bits of `wants` wanted. Appends the keys of these blocks to `keys`; their end is not reported for
  /// these bits any more. A block that nobody else wants, and that the store has not been given yet, is not stored.
  void unwant_all(Wants wants, std::vector<BlockKey>& keys);
  /// The policy adds no more wishes for now.
  [[nodiscard]] bool full() const { return wishes_.size() >= wishes_max; }
  /// Blocks under way that a bit of `wants` wants.
  [[nodiscard]] std::uint64_t wanted(std::uint32_t bit) const { return wanted_[bit]; }
  /// Of a WriteOrder. `token` is the block's number in storage.
  void on_written(std::uint32_t token, ErrorCode error);
  /// The copy of a device block to staging has ended.
  void on_staged(const SwapOuts::Staged& staged);
  /// The writes that have ended since the last call, in order, as far as others than the policy wanted them. Swaps the vectors,
  /// so that their memory is reused.
  void take_ended(std::vector<Ended>& ended) {
    ended.clear();
    ended.swap(ended_);
  }
  /// Storage gave up a stored block.
  void on_gone(BlockRef block) { residency_.forget_stored(block); }
  /// Stops every pending write that the store has not been given yet: it ends with `cleared` at its next step.
  void stop_all();
  /// Starts wishes, as far as staging has room, and gives the store what it may take. True where anything changed.
  bool pump();

  [[nodiscard]] bool idle() const { return in_flight() == 0; }
  /// Wishes included.
  [[nodiscard]] std::uint32_t in_flight() const { return static_cast<std::uint32_t>(pending_.size() - free_.size()); }

 private:
  enum class State : std::uint8_t { unused, wish, staging, waiting_for_parent, queued, writing };
  static constexpr std::uint32_t nobody = 0xFFFF'FFFF;
  struct PendingWrite {
    BlockRef block;
    std::uint32_t number = 0;  ///< of the stored block
    SlotId slot;               ///< where its bytes are in the arena, once it is started
    Wants wants = 0;
    ErrorCode stop_with;  ///< set: ends at the next station
    State state = State::unused;
    /// Those below that wait until this one is handed to the store, and the next who waits for the same as this one.
    std::uint32_t first_child = nobody;
    std::uint32_t next_sibling = nobody;
    std::uint64_t turn = 0;  ///< of a wish
  };
  /// In the line of wishes. Out of date where the pending write has another turn, or none.
  struct Turn {
    std::uint32_t index = 0;
    std::uint64_t turn = 0;
  };

  std::uint32_t create(BlockRef block, Wants wants);
  void depend_on(BlockRef above, Wants wants);
  void add_wants(PendingWrite& write, Wants wants);
  [[nodiscard]] PendingWrite* pending_write_of(BlockRef block);
  [[nodiscard]] ErrorCode hopeless(const PendingWrite& wish) const;
  [[nodiscard]] bool is_being_evicted(BlockRef block) const;
  [[nodiscard]] bool parent_is_with_store(const PendingWrite& write);
  bool start(std::uint32_t index);
  bool start_wishes();
  bool give_to_store();
  void queue_or_wait(std::uint32_t index);
  void submit(std::uint32_t index);
  void finish(std::uint32_t index, ErrorCode error);
  void count_not_stored(ErrorCode why);
  [[nodiscard]] bool has_source(BlockRef block) const;
  Saved not_now();

  Residency& residency_;
  DeferredEviction& deferred_eviction_;
  SwapOuts& swap_outs_;
  Actions& actions_;
  ManagerStats& stats_;
  WriteBudget& budget_;
  FlushScheduler& flushes_;
  std::vector<Ended> ended_;  ///< that nobody has taken yet
  Bytes block_bytes_{1};
  std::array<std::uint64_t, wants_count> wanted_{};
  std::vector<PendingWrite> pending_;
  std::vector<std::uint32_t> free_;
  std::vector<std::uint32_t> by_number_;  ///< the pending write of a stored block's number
  Fifo<Turn> wishes_;
  std::uint64_t last_turn_ = 0;
  Fifo<std::uint32_t> queued_;   ///< for the store
  std::vector<BlockRef> chain_;  ///< scratch
  std::uint32_t writing_ = 0;
  std::uint32_t started_ = 0;  ///< under way, and no wishes any more
  std::uint64_t ended_count_ = 0;
  bool failing_ = false;  ///< the store failed the last write
};

}  // namespace terrace
