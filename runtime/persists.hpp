#pragma once

#include "base/fifo.hpp"
#include "runtime/actions.hpp"
#include "runtime/departures.hpp"
#include "runtime/flushes.hpp"
#include "runtime/residency.hpp"
#include "runtime/swap_outs.hpp"
#include "runtime/write_budget.hpp"
#include "storage/block_store.hpp"

#include <array>
#include <cstdint>
#include <functional>
#include <limits>
#include <vector>

namespace terrace {

/// Copies on their way to storage, ancestors first.
///
///     waiting for staging --> staging --> waiting for its parent --> queued --> writing --> stored
///              (a device copy)                (its bytes are in the arena)                   or failed, with all that wait for
///              it
///
/// A host copy is written from where it is and starts at the third station. A child is handed to the store once its parent has
/// been; the store itself makes it readable after its parent. No more than writes_max are with the store at a time: the rest
/// wait here, first come first served, and hold their copies. Threads: the manager's.
class Persists {
 public:
  /// Who wants a block stored: a bit each. What nobody wants any more, and is not with the store yet, is not stored.
  using Wants = std::uint32_t;
  static constexpr std::uint32_t wants_count = 32;
  static constexpr Wants by_policy = 1;
  /// Told of each block that others than the policy wanted: what became of it.
  using EndHandler = std::function<void(Wants wants, const BlockKey& key, ErrorCode error)>;

  Persists(Residency& residency, Departures& departures, SwapOuts& swap_outs, Actions& actions, ManagerStats& stats,
           WriteBudget& budget, Flushes& flushes);

  void set_end_handler(EndHandler handler) { ended_ = std::move(handler); }
  /// Of each block, for the budget.
  void set_block_bytes(Bytes bytes) { block_bytes_ = bytes; }
  [[nodiscard]] Bytes block_bytes() const { return block_bytes_; }

  static constexpr std::uint32_t writes_max = 1024;
  /// Under way in all, where storage is slow: enough to keep it busy.
  static constexpr std::uint32_t slow_backlog_max = 64;

  /// Brings the block and those of its ancestors that are missing to storage. False where one of them has no copy to take it
  /// from, or the block was cleared: nothing was begun then. False, too, where the backlog is at its bound: of what is missing
  /// the first blocks may have been begun. Blocks already stored or on their way are not taken twice.
  bool begin(BlockRef block) { return !begin(block, by_policy, std::numeric_limits<std::uint32_t>::max()).why; }
  struct Begun {
    std::uint32_t blocks = 0;  ///< ancestors included
    /// Why not all: cleared, not_found (no copy to take it from), refused (a bound), full (the budget).
    ErrorCode why;
  };
  /// The same for others than the policy, and of what is missing at most the first `blocks_max` blocks.
  Begun begin(BlockRef block, Wants wants, std::uint32_t blocks_max);
  /// The block is on its way already: `wants` want it too, and what it builds on.
  void want(BlockRef block, Wants wants);
  /// They want nothing any more; `keys`: what they wanted, and are not told of.
  void unwant_all(Wants wants, std::vector<BlockKey>& keys);
  /// Blocks under way that a bit of `wants` wants.
  [[nodiscard]] std::uint64_t wanted(std::uint32_t bit) const { return wanted_[bit]; }
  /// Storage takes longer to write a block than the engine to compute it: nobody is to wait for it, and what waits for it is not
  /// to pile up and hold copies.
  void set_slow(bool slow) { slow_ = slow; }
  [[nodiscard]] bool slow() const { return slow_; }
  /// A block on the device, and those of its ancestors that are missing, need not wait for a place to be staged.
  [[nodiscard]] bool can_stage_now(BlockRef block) const;
  /// Of a WriteOrder. `token` is the block's number in storage.
  void on_written(std::uint32_t token, ErrorCode error);
  /// Storage gave up a stored block.
  void on_gone(BlockRef block);
  /// Nothing of what has not been handed to the store will be.
  void doom_all();
  /// Gives free staging slots to who waits, and the store what it may take. True where anything changed.
  bool pump();

  [[nodiscard]] bool idle() const { return in_flight_ == 0; }
  [[nodiscard]] std::uint32_t in_flight() const { return in_flight_; }

 private:
  enum class State : std::uint8_t { unused, waiting_for_staging, staging, waiting_for_parent, queued, writing };
  static constexpr std::uint32_t nobody = 0xFFFF'FFFF;
  struct Persist {
    BlockRef block;
    std::uint32_t number = 0;  ///< of the stored block
    SlotId slot;               ///< where its bytes are in the arena
    bool from_staging = false;
    Wants wants = 0;
    ErrorCode doomed;          ///< set: ends at the next station
    State state = State::unused;
    /// Those below that wait until this one is handed to the store, and the next who waits for the same as this one.
    std::uint32_t first_child = nobody;
    std::uint32_t next_sibling = nobody;
  };

  std::uint32_t create(BlockRef block, Wants wants);
  void add_wants(Persist& persist, Wants wants);
  void on_staged(const SwapOuts::Staged& staged);
  bool give_staging();
  bool give_to_store();
  void queue_or_wait(std::uint32_t index);
  void submit(std::uint32_t index);
  void finish(std::uint32_t index, ErrorCode error);
  void doom_below(BlockRef block, ErrorCode why);
  [[nodiscard]] bool has_source(BlockRef block) const;

  Residency& residency_;
  Departures& departures_;
  SwapOuts& swap_outs_;
  Actions& actions_;
  ManagerStats& stats_;
  WriteBudget& budget_;
  Flushes& flushes_;
  EndHandler ended_;
  Bytes block_bytes_{1};
  std::array<std::uint64_t, wants_count> wanted_{};
  std::vector<Persist> persists_;
  std::vector<std::uint32_t> free_;
  std::vector<std::uint32_t> by_number_;  ///< the persist of a stored block's number
  Fifo<std::uint32_t> waiting_;           ///< for staging
  Fifo<std::uint32_t> queued_;            ///< for the store
  std::vector<BlockRef> chain_;           ///< scratch
  bool slow_ = false;
  std::uint32_t writing_ = 0;
  std::uint32_t in_flight_ = 0;
};

}  // namespace terrace
