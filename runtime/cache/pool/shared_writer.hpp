#pragma once

#include "base/slab.hpp"
#include "base/vector_pool.hpp"
#include "runtime/cache/pool/hit_count_write_policy.hpp"
#include "runtime/cache/pool/pool_part.hpp"
#include "runtime/cache/pool/swap_outs.hpp"
#include "runtime/cache/types/kv_events.hpp"
#include "runtime/cache/types/write_budget.hpp"
#include "terrace/clock.hpp"
#include "terrace/result.hpp"
#include "terrace/statistics.hpp"
#include "terrace/types.hpp"
#include "terrace/write_back.hpp"

#include <algorithm>
#include <array>
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace terrace {

/// Writes cached blocks to the shared store, as SharedConfig::writes says. No request ever waits for this.
///
/// A *wish* is the order to write one prefix to the shared store. It holds keys, and no copies:
///
///     waiting --> probing --> writing --> probing --> ... --> ended
///        |           |           |                              ^
///        +-----------+-----------+---- dropped -----------------+   (SharedTotals counts why)
///
/// A wish first probes which of its next blocks the store has, and renews their expiry. Then it writes a few of the other blocks,
/// from the root down, and probes again. So instances that compute the same blocks at the same time write few blocks twice. A
/// block is looked up in the tree when its turn comes. Its bytes come from a host copy, which is lent (Residency), or from the
/// device through a staging slot. If a block has no copy any more, the wish ends there.
///
/// - The number of wishes is bounded (wishes_max, keys_max). The oldest waiting wish is dropped for a new one.
/// - Writes under way are bounded in slots (half of the staging slots) and in bytes, and writes are bounded per second and per
///   day (SharedConfig). The last three bounds are for all pools together (SharedWriteLimits).
/// - After an error of the store, or if it is full, the wish is dropped, and nothing is written for SharedConfig::rest.
///
/// Policies: `write_through` makes wishes for committed blocks and for hit blocks. `selective` makes wishes for blocks that were
/// hit selective_hits times; it counts the hits of one block in `counted_one_in`, and of the last block of each hit. Both make at
/// most one wish in SharedConfig::renew_interval for a prefix that is hit repeatedly. Blocks that stand alone (flat order, and
/// unchained blocks of a KV cache group) are counted individually, and a wish is a list of them, in the order of use. A block of
/// the list that has no copy any more is skipped.
///
/// If the manager stores without caching (ManagerConfig::store_uncached), a wish protects the device copies of its blocks from
/// DeferredEviction::not_needed until their bytes are in staging, or until they will not be written. In this mode, wishes do not
/// wait for a store that cannot be used: they are dropped.
///
/// Write-back jobs (order()) write prefixes to the store, too, under any policy. Their wishes are not dropped for others, and
/// each of their blocks has a result.
///
/// The class reads no clock: on_time() gives it the time. Ownership: TieredPool owns it. Threads: the manager's.
class SharedWriter : PoolPart {
 public:
  static constexpr std::size_t wishes_max = 256;
  static constexpr std::size_t keys_max = 65536;
  static constexpr std::size_t active_max = 4;       ///< upper bound of the wishes that probe or write at a time
  static constexpr std::uint32_t write_batch = 16;   ///< upper bound of the blocks that a wish writes between two probes
  static constexpr std::uint32_t probe_batch = 256;  ///< upper bound of the keys of a probe
  static constexpr std::uint32_t counted_one_in = 16;

  /// All arguments outlive this object.
  SharedWriter(const PoolPart& part, const PoolSizes& sizes, SwapOuts& swap_outs, SharedTotals& totals, KvEvents& events,
               SharedWriteLimits& limits);
  SharedWriter(const SharedWriter&) = delete;
  SharedWriter& operator=(const SharedWriter&) = delete;

  /// The blocks of the prefix from depth `from` on have just been committed. An unchained block of a group is a prefix of length
  /// one.
  void on_commit(Prefix prefix, std::uint32_t from);
  /// A request has hit the blocks of this prefix, or this unchained block.
  void on_hits(Prefix prefix);
  /// The same in flat order, for blocks that stand alone, in the order in which the engine uses them. Blocks without a copy in
  /// the host tier are ignored.
  void on_commit(std::span<const Prefix> blocks);
  void on_hits(std::span<const Prefix> blocks);

  /// The result of a block of a job.
  struct Ended {
    WriteBackId job;
    BlockKey key;
    WriteBackOutcome outcome = WriteBackOutcome::stored;
    ErrorCode error;
  };
  /// Makes a wish of the job for the blocks of the prefix from depth `from` on. The blocks before them are written if the store
  /// does not have them, and have no result. `blocks_max`: upper bound of the blocks that are written. The job must have no other
  /// wish in this pool.
  void order(WriteBackId job, Prefix prefix, std::uint32_t from, std::uint64_t blocks_max);
  /// Returns true if the job has a wish. The job may have all its results before the wish ends, because the wish writes
  /// ancestors, too.
  [[nodiscard]] bool has(WriteBackId job) const { return find_job(job) != none; }
  /// Pauses the job's wish, or continues it. A paused wish starts no writes.
  void pause(WriteBackId job, bool pauses);
  /// The job gets no more results. Its wish starts no more writes; those under way continue. Appends the keys of the blocks that
  /// have no result yet.
  void cancel(WriteBackId job, std::vector<BlockKey>& keys);
  /// The results since the last call, in order.
  void take_ended(std::vector<Ended>& ended) { take_all(ended_, ended); }

  /// Tells whether the store can be used. If not, wishes wait, or are dropped if the manager stores without caching. Wishes of
  /// jobs fail with Errc::refused.
  void set_usable(bool usable);

  /// The probe with this token has ended: the store has the first `leading` of its keys.
  void on_probed(std::uint32_t token, ErrorCode error, std::uint32_t leading);
  /// Returns true if the swap-out to staging was begun by this object, and not by StorageWriter.
  [[nodiscard]] static bool is_for_shared(const SwapOuts::Staged& staged) { return (staged.write & shared_swap_out) != 0; }
  void on_staged(const SwapOuts::Staged& staged);
  /// The write with this token has ended.
  void on_written(std::uint32_t token, ErrorCode error);
  void on_time(TimePoint now);
  [[nodiscard]] TimePoint next_deadline() const;
  /// Continues the wishes, and starts waiting ones. Returns true if anything changed.
  bool pump();
  /// Drops all wishes. A wish that is probing or writing ends when this probe or these writes end. Blocks that have not been
  /// given to the store yet are not written.
  void stop_all();

  /// Number of probes and writes that have not ended.
  [[nodiscard]] std::size_t under_way() const { return writes_.size() + probing_; }
  /// Number of blocks of wishes that have not been found in the store, written or dropped yet.
  [[nodiscard]] std::uint64_t waiting_blocks() const {
    std::uint64_t blocks = 0;
    for (const auto* const ids : {&waiting_, &active_}) {
      for (const std::uint32_t id : *ids) {
        const Wish& wish = *wishes_.find(id);
        blocks += wish.keys.size() - wish.started + wish.writing.count();
      }
    }
    return blocks;
  }
  /// Nothing is under way, no wish can continue now, and only paused jobs have wishes.
  [[nodiscard]] bool idle() const { return under_way() == 0 && rests() && !any_job_goes_on(); }
  /// pump() would change nothing.
  [[nodiscard]] bool rests() const { return wishes_.empty() || pauses(); }
  void check_invariants() const;

 private:
  static constexpr std::uint32_t shared_swap_out = 1U << 31U;
  static constexpr std::uint32_t none = 0xFFFF'FFFF;
  enum class State : std::uint8_t { waiting, probing, writing };
  struct Wish {
    std::vector<BlockKey> keys;  ///< keys of the whole prefix
    TenantId tenant;
    GroupId group;
    std::optional<WriteBackId> job;  ///< gets a result for each block from `report_from` on
    std::uint32_t report_from = 0;
    std::uint64_t blocks_max = 0;  ///< of a job: number of blocks that may still be written
    bool paused = false;
    State state = State::waiting;
    std::uint32_t next = 0;            ///< number of the first block that is not done
    std::uint32_t started = 0;         ///< in state writing: the blocks from `next` to before this one have been started
    std::uint32_t end = 0;             ///< in state writing: end of the batch; in state probing: end of the keys of the probe
    std::bitset<write_batch> writing;  ///< bit i: the write of block `next` + i is under way
    bool alone = false;                ///< its blocks stand alone
    bool gap = false;                  ///< the last probe has found a block that the store does not have
    ErrorCode stop_with;               ///< if set: it starts nothing more, and ends when none of its writes is under way
    std::vector<BlockKey> asked;
  };
  struct Write {
    std::uint32_t wish = 0;
    std::uint32_t number = 0;  ///< index of the block in its wish
    StoredBlock block;
    SlotId slot;
  };
  /// Recent facts about a prefix. `name` identifies it by the key of its last block.
  struct Recent {
    std::uint64_t name = 0;
    TimePoint wished_until{};  ///< a wish was made for it; no other one is made before this time
    TimePoint there_until{};   ///< the store has its last block, because a probe has found it or it was written
  };
  static constexpr std::size_t recent_max = 4096;

  [[nodiscard]] Recent& note(const BlockKey& key);
  [[nodiscard]] Recent recent(const BlockKey& key) const;
  /// Returns true if no probe and no write may be started now.
  [[nodiscard]] bool pauses() const { return !usable_ || now_ < rest_until_; }
  [[nodiscard]] bool is_hit_enough(const BlockKey& key);
  using Ids = std::vector<std::uint32_t>;
  /// The first wish of `first`, and then of `second`, for which `is_it` returns true; `none` if there is no such wish.
  template <class IsIt>
  [[nodiscard]] std::uint32_t find_wish(const Ids& first, const Ids& second, IsIt is_it) const {
    for (const Ids* const ids : {&first, &second}) {
      const auto at = std::ranges::find_if(*ids, [&](std::uint32_t id) { return is_it(*wishes_.find(id)); });
      if (at != ids->end()) return *at;
    }
    return none;
  }
  [[nodiscard]] std::uint32_t find_job(WriteBackId job) const {
    return find_wish(active_, waiting_, [&](const Wish& wish) { return wish.job == job; });
  }
  [[nodiscard]] bool any_job_goes_on() const {
    return find_wish(active_, waiting_, [](const Wish& wish) { return wish.job && !wish.paused; }) != none;
  }
  void stop(std::uint32_t id, ErrorCode why);
  [[nodiscard]] Wish new_wish(BlockRef block);
  [[nodiscard]] std::uint32_t make_wish(Prefix prefix, std::uint32_t length, std::uint32_t from);
  void wish(Prefix prefix, std::uint32_t length, std::uint32_t from);
  void wish_alone(std::span<const BlockRef> blocks);
  [[nodiscard]] bool stands_alone(Prefix prefix) const;
  void wish_unchained(BlockRef block);
  [[nodiscard]] bool extend_wish(Prefix prefix, std::uint32_t from);
  void note_keys(const Wish& wish, std::size_t from);
  void make_room_for(std::size_t keys);
  [[nodiscard]] StoredBlock named(const Wish& wish, std::uint32_t block) const;
  void probe(std::uint32_t id);
  void continue_wish(std::uint32_t id);
  [[nodiscard]] bool start_blocks(std::uint32_t id);
  [[nodiscard]] ErrorCode start_block(std::uint32_t id, BlockRef block, std::uint32_t number);
  void submit(std::uint32_t write);
  void end_write(std::uint32_t write, ErrorCode error);
  void rest_after(ErrorCode error) {
    if (error != Errc::cancelled) rest_until_ = now_ + settings_.rest;
  }
  void report(const Wish& wish, std::uint32_t block, WriteBackOutcome outcome, ErrorCode error = {});
  void record_event(const StoredBlock& block);
  void drop(const Wish& wish, std::uint32_t begin, std::uint32_t end, ErrorCode why);
  void drop_rest(const Wish& wish) { drop(wish, wish.started, static_cast<std::uint32_t>(wish.keys.size()), wish.stop_with); }
  void end_keep(const Wish& wish, std::uint32_t begin, std::uint32_t end);
  void remove_wish(std::uint32_t id);

  const SharedConfig& settings_;
  SwapOuts& swap_outs_;
  SharedTotals& totals_;
  KvEvents& events_;
  SharedWriteLimits& limits_;
  std::uint32_t slots_max_;
  Bytes block_bytes_;
  bool usable_ = false;
  TimePoint now_{};
  TimePoint rest_until_{};
  bool rate_waits_ = false;
  HitCounts hits_;
  std::array<Recent, recent_max> recent_{};
  Slab<Wish> wishes_;
  std::vector<std::uint32_t> waiting_;  ///< the oldest first
  std::vector<std::uint32_t> active_;
  Slab<Write> writes_;
  std::size_t keys_ = 0;  ///< number of keys of all wishes
  std::size_t probing_ = 0;
  std::vector<Ended> ended_;  ///< not taken yet
  VectorPool<BlockKey> spare_keys_;
  std::vector<BlockRef> alone_;  ///< scratch
};

}  // namespace terrace
