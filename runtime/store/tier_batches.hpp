#pragma once

#include "base/waker.hpp"
#include "runtime/cache/measure/miss_reasons.hpp"
#include "runtime/cache/measure/wait_times.hpp"
#include "runtime/store/layered_store.hpp"
#include "runtime/store/region_table.hpp"
#include "storage/io/aligned_buffer.hpp"
#include "storage/resilience/resilient_store.hpp"
#include "terrace/block_store.hpp"
#include "terrace/clock.hpp"
#include "terrace/tier_store.hpp"

#include <boost/unordered/unordered_flat_map.hpp>

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <span>
#include <vector>

namespace terrace {

/// The numbers of TierStoreOptions that batches need.
struct TierLimits {
  std::uint32_t blocks_max = 65536;
  std::uint32_t gets_under_way_max = 256;
  std::uint32_t puts_under_way_max = 256;
  std::uint32_t events_max = 65536;
  Duration flush_interval{};
};

/// The batches of a TierStore, over any BlockStore. It gives blocks to the store, a bounded number at a time, and combines the
/// results of the store into results of batches. It does no I/O, and reads the time from a clock. TierStore has the same members
/// and describes them.
///
/// The states of a block:
///
///     waiting --given to the store--> under way --its event--> ended
///        |                                |
///        +--cancelled, late---> ended     +--removed, cleared--> overtaken --its event--> ended, a put as cancelled
///                                         |                          |
///                                         +--------------------------+--the batch ended at its deadline--> abandoned
///                                                                                      --its event--> ended
///
/// An *erasure* makes the removals of remove() and clear() durable: a flush that begins with the next poll(). All calls before
/// that poll() share it.
///
/// Ownership: all arguments outlive it. No other object may call the operations of `store`. Threads: one.
class TierBatches {
 public:
  /// `guard`: the ResilientStore that is `store`, or that is in front of its disk; nullptr: there is none. `layered` is `store`,
  /// if that is a LayeredStore; otherwise null. `engine` may be null.
  TierBatches(BlockStore& store, const ResilientStore* guard, IoEngine* engine, const Clock& clock, Waker& waker,
              const TierLimits& limits, LayeredStore* layered = nullptr);

  [[nodiscard]] RegionTable& regions() { return regions_; }

  [[nodiscard]] bool contains(const BlockKey& key) const;
  void touch(std::span<const BlockKey> keys) { store_.touch(keys); }

  [[nodiscard]] Result<void> submit_put(const TierPut& put);
  [[nodiscard]] Result<void> submit_get(const TierGet& get);
  [[nodiscard]] Result<void> submit_probe(const TierProbe& probe);
  [[nodiscard]] Result<void> submit_flush(BatchId id);
  [[nodiscard]] Result<void> cancel(BatchId id);
  /// These two begin an erasure, and do not wait for it.
  [[nodiscard]] Result<void> remove(std::span<const BlockKey> keys);
  [[nodiscard]] Result<void> clear();
  /// The last erasure has not ended, or the store still works on puts of erased blocks.
  [[nodiscard]] bool is_erasing() const { return erasure_due_ || erased_ != erasures_ || overtaken_puts_ > 0; }
  /// The error of the last erasure that has ended, until a later flush succeeds.
  [[nodiscard]] ErrorCode erase_error() const { return erase_error_; }
  std::size_t poll(std::vector<BatchResult>& out);
  std::size_t poll_events(std::vector<TierEvent>& out);
  [[nodiscard]] TimePoint next_deadline() const;
  void stop_accepting() { stopped_ = true; }
  /// Returns true if no batch is under way. Results may still wait for poll().
  [[nodiscard]] bool is_idle() const { return ids_.empty(); }
  /// Counts a look-up of the caller.
  void note_asked(std::size_t keys, std::size_t found) {
    counted_.asked += keys;
    counted_.found += found;
  }
  [[nodiscard]] TierStatistics statistics() const;
  /// From now on, finds out why the blocks of puts had to be computed (misses()), and tells `asked` which blocks the engine
  /// needed: those of gets, and those of puts that are not there.
  void watch(std::function<void(std::span<const BlockKey>)> asked);
  [[nodiscard]] const MissTotals& misses() const { return misses_.totals(); }
  /// The waits of gets and probes.
  [[nodiscard]] const WaitTimes& waits() const { return waits_; }
  /// The result of the last flush that has ended.
  [[nodiscard]] ErrorCode flush_error() const { return flush_error_; }

  void check_invariants() const;

 private:
  enum class State : unsigned char { waiting, under_way, overtaken, abandoned, ended };
  struct Block {
    BlockKey key;
    BlockKey parent;  ///< all zero: none
    std::uint32_t row = 0;
    State state = State::waiting;
  };
  struct Batch {
    BatchId id;
    BatchKind kind = BatchKind::put;
    HostRegionId region;
    TimePoint begun;
    TimePoint deadline = never;
    std::vector<Block> blocks;
    std::size_t next = 0;         ///< no block before this one is waiting
    std::uint32_t unended = 0;    ///< number of blocks that have no error code yet
    std::uint32_t under_way = 0;  ///< number of blocks that the store works on, including abandoned ones
    bool queued = false;          ///< its number is in gets_ or puts_
    bool asks_shared = false;     ///< only for a get: it has a block that the local store did not have
    std::uint64_t stored = 0;     ///< only for a flush: stored_ when it began
    std::size_t asked = 0;        ///< only for a probe: number of keys
    bool has_ended = false;       ///< its result is in results_; the batch is kept for its abandoned blocks
    BatchResult result;
  };
  /// A block that is being stored, by any number of puts.
  struct Storing {
    std::uint32_t depth = 0;
    std::uint32_t puts = 0;
    bool was_stored = false;
  };
  template <class Value>
  using KeyMap = boost::unordered_flat_map<BlockKey, Value, std::hash<BlockKey>>;

  static constexpr std::uint64_t probe_token = ~std::uint64_t{0};
  static constexpr std::uint64_t own_flush_token = ~std::uint64_t{0};
  static constexpr std::uint64_t erasure_token = std::uint64_t{1} << 63;  ///< | number of the erasure
  /// The token of a block: the number of its batch in the upper 32 bits, and its index there in the lower ones.
  [[nodiscard]] static constexpr std::uint32_t batch_of(std::uint64_t token) { return static_cast<std::uint32_t>(token >> 32); }
  [[nodiscard]] Block& block_of(std::uint64_t token) {
    return batches_[batch_of(token)].blocks[static_cast<std::uint32_t>(token)];
  }

  [[nodiscard]] Result<void> submit(BatchKind kind, const TierPut& put);
  /// Adds a batch without blocks, which ends when `unended` becomes 0. Throws std::bad_alloc.
  [[nodiscard]] std::uint32_t add_batch_without_blocks(BatchId id, BatchKind kind);
  void end_probes();
  /// Returns the number of a free batch. It stays free until its id is added to ids_.
  [[nodiscard]] std::uint32_t new_batch();
  /// Gives waiting blocks to the store, up to the limits.
  void pump() noexcept;
  [[nodiscard]] std::optional<std::uint64_t> begin_next(std::deque<std::uint32_t>& queue);
  void begin_gets();
  void begin_puts();
  [[nodiscard]] StoreWrite write_of(std::uint64_t token);
  [[nodiscard]] std::optional<std::uint32_t> depth_of(const BlockKey& key) const;
  void handle(const StoreEvent& event, TimePoint now);
  void on_read(const StoreEvent& event);
  void on_written(const StoreEvent& event, TimePoint now);
  void on_flushed(const StoreEvent& event, TimePoint now);
  void on_change(TimePoint now);
  /// Ends a block that was given to the store.
  void end_under_way(std::uint64_t token, ErrorCode error);
  /// Ends a block that was not given to the store.
  void end_waiting(Batch& batch, Block& block, ErrorCode error);
  /// Sets the error code of a block, and counts it.
  void note(Batch& batch, const Block& block, ErrorCode error);
  void finish_if_ended(std::uint32_t number);
  void finish(std::uint32_t number);
  void free_batch(std::uint32_t number);
  void end_late(TimePoint now);
  /// Removes the blocks of these keys. Ends their waiting puts, and marks those that the store works on as overtaken.
  [[nodiscard]] Result<void> erase(std::vector<BlockKey> keys);
  [[nodiscard]] static bool is_none(const BlockKey& key) { return key == BlockKey{}; }
  [[nodiscard]] bool reads_declined() const {
    return guard_ != nullptr && guard_->read_breaker().state() != BreakerState::closed;
  }
  void flush_if_due(TimePoint now);
  void probe(TimePoint now);
  [[nodiscard]] const BlockKey* stored_key() const;
  void remember(const BlockKey& key) { recent_[recent_at_++ % recent_.size()] = key; }
  void leave(const TierEvent& event);
  void note_needed(BatchKind kind, std::span<const BlockKey> keys);

  BlockStore& store_;
  const ResilientStore* guard_;
  LayeredStore* layered_;
  const Clock& clock_;
  Waker& waker_;
  TierLimits limits_;
  RegionTable regions_;

  std::vector<Batch> batches_;
  std::vector<std::uint32_t> free_batches_;
  boost::unordered_flat_map<std::uint64_t, std::uint32_t> ids_;  ///< id -> number, of all batches that have not ended
  std::deque<std::uint32_t> gets_;                               ///< batches with waiting blocks
  std::deque<std::uint32_t> puts_;
  std::uint32_t blocks_ = 0;  ///< number of blocks of all batches that wait or that the store works on
  std::uint32_t gets_under_way_ = 0;
  std::uint32_t puts_under_way_ = 0;
  std::vector<std::uint64_t> to_retry_;  ///< tokens of puts whose parent is missing
  TimePoint first_deadline_ = never;     ///< no batch has an earlier one
  bool stopped_ = false;

  KeyMap<Storing> storing_;
  KeyMap<std::uint32_t> depths_;  ///< depths of stored blocks that have a parent

  TimePoint flush_due_ = never;
  bool flushing_ = false;  ///< a flush by the interval is under way
  bool erasure_due_ = false;
  std::uint64_t erasures_ = 0;        ///< number of erasures that have begun
  std::uint64_t erased_ = 0;          ///< number of the last erasure that has ended
  std::uint32_t overtaken_puts_ = 0;  ///< blocks
  ErrorCode erase_error_;
  std::uint64_t stored_ = 0;
  std::uint64_t stored_at_flush_ = 0;
  std::uint64_t covered_ = 0;
  ErrorCode flush_error_;

  std::array<BlockKey, 32> recent_{};  ///< keys that were read or written with success; all zero: none
  std::size_t recent_at_ = 0;
  AlignedBuffer probe_buffer_;
  bool probing_ = false;
  bool polling_ = false;  ///< poll() is running: it returns new results itself, so no wake-up is needed

  std::vector<BatchResult> results_;
  std::deque<TierEvent> events_;
  TierStatistics counted_;
  WaitTimes waits_;
  MissReasons misses_;
  std::function<void(std::span<const BlockKey>)> asked_;  ///< empty: nobody watches
  bool damage_ = false;                   ///< the last event was a damaged block; the store gives it up, and all blocks below it
  std::vector<BlockKey> needed_;          ///< scratch
  std::vector<StoreEvent> store_events_;  ///< scratch, like the next ones
  std::vector<LayeredStore::Probed> probed_;
  std::vector<StoreRead> reads_;
  std::vector<StoreWrite> writes_;
  std::vector<std::uint32_t> numbers_;
};

}  // namespace terrace
