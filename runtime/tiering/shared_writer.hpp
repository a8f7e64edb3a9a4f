#pragma once

#include "base/slab.hpp"
#include "base/vector_pool.hpp"
#include "runtime/orders/actions.hpp"
#include "runtime/residency/deferred_eviction.hpp"
#include "runtime/residency/residency.hpp"
#include "runtime/tiering/hit_counts.hpp"
#include "runtime/tiering/swap_outs.hpp"
#include "runtime/types/config.hpp"
#include "runtime/types/kv_events.hpp"
#include "runtime/types/shared_write_limits.hpp"
#include "terrace/clock.hpp"
#include "terrace/result.hpp"
#include "terrace/statistics.hpp"
#include "terrace/types.hpp"
#include "terrace/write_back.hpp"

#include <array>
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace terrace {

/// Brings cached blocks to the shared store, as SharedConfig::writes says. Nobody ever waits for that.
///
/// A *wish* is the order to bring one prefix there. It holds keys, and no copies:
///
///     waiting --> probing --> writing --> probing --> ... --> ended
///        |           |           |                              ^
///        +-----------+-----------+---- dropped -----------------+   (SharedTotals counts why)
///
/// It asks first which of the next blocks are there. The expiry of those is renewed. A few of the others are written, from the
/// root down, and then it asks again: so instances that compute the same blocks at the same time write few of them twice. The
/// blocks are found in the tree when their turn comes. Their bytes come from a host copy, which is lent (Residency), or from the
/// device through a staging slot. If a block has no copy any more, the wish ends there.
///
/// - Wishes are bounded (wishes_max, keys_max). The oldest one that waits is dropped for a new one.
/// - What is being written is bounded: in slots (half of the staging slots), in bytes, per second and per day (SharedConfig). The
///   last three bounds are those of all pools together (SharedWriteLimits).
/// - After the store has failed, or was full, the wish is dropped, and nothing is written for SharedConfig::rest.
///
/// Policies: `write_through` wishes what is committed, and what is hit. `selective` wishes what was hit selective_hits times; it
/// counts one block in `counted_one_in`, and the last one of each hit. Both wish a prefix that is hit again and again once in
/// SharedConfig::renew_interval. Blocks that stand alone (flat order, and unchained blocks of a KV cache group) count each for
/// itself, and a wish is a list of them, in the order of use. A block of it that has no copy any more is passed over.
///
/// If the manager stores without caching (ManagerConfig::store_uncached), a wish keeps the device copies of its blocks from
/// DeferredEviction::not_needed until their bytes are in staging, or it is known that they are not written. There, wishes do not
/// wait for a store that cannot be used.
///
/// Write-back jobs (order()) bring prefixes there as well, whatever the policy. Their wishes are not dropped for others, and each
/// of their blocks has a result.
///
/// It reads no clock: on_time() tells it the time. Ownership: TieredPool owns it. Threads: the manager's.
class SharedWriter {
 public:
  static constexpr std::size_t wishes_max = 256;
  static constexpr std::size_t keys_max = 65536;
  static constexpr std::size_t active_max = 4;       ///< wishes that probe or write at a time
  static constexpr std::uint32_t write_batch = 16;   ///< blocks that are written between two probes of a wish
  static constexpr std::uint32_t probe_batch = 256;  ///< the most keys of a probe
  static constexpr std::uint32_t counted_one_in = 16;

  /// All arguments outlive this object. `config` is that of the manager, whose SharedConfig counts, and `sizes` are those of the
  /// pool.
  SharedWriter(const ManagerConfig& config, const PoolSizes& sizes, Residency& residency, DeferredEviction& deferred_eviction,
               SwapOuts& swap_outs, Actions& actions, SharedTotals& totals, KvEvents& events, SharedWriteLimits& limits);
  SharedWriter(const SharedWriter&) = delete;
  SharedWriter& operator=(const SharedWriter&) = delete;

  void set_block_bytes(Bytes bytes) { block_bytes_ = bytes; }
  [[nodiscard]] Bytes block_bytes() const { return block_bytes_; }
  /// The blocks of the prefix from depth `from` on have just been committed. An unchained block of a group is a prefix of one.
  void on_commit(Prefix prefix, std::uint32_t from);
  /// A request has hit the blocks of this prefix, or this unchained block.
  void on_hits(Prefix prefix);
  /// The same in flat order, for blocks that stand alone, in the order in which the engine uses them. Those without a copy in
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
  /// The job wants the blocks of the prefix from depth `from` on. Those before are written if the store does not have them, and
  /// have no result. `blocks_max`: the most that are written. The job must have no other wish in this pool.
  void order(WriteBackId job, Prefix prefix, std::uint32_t from, std::uint64_t blocks_max);
  /// The job has a wish. It may have all results before its wish ends, which writes ancestors, too.
  [[nodiscard]] bool has(WriteBackId job) const { return find_job(job) != none; }
  /// The job's wish starts no more writes until it goes on.
  void pause(WriteBackId job, bool pauses);
  /// The job gets no more results. Its wish starts no more writes; those under way continue. Appends the keys of the blocks that
  /// have no result yet.
  void cancel(WriteBackId job, std::vector<BlockKey>& keys);
  /// Appends the results since the last call.
  void take_ended(std::vector<Ended>& ended);

  /// Whether the store can be used. If not, wishes wait, or are dropped if nothing is cached, and those of jobs fail with
  /// Errc::refused.
  void set_usable(bool usable);

  /// The probe with this token has ended: of its keys, `leading` are there.
  void on_probed(std::uint32_t token, ErrorCode error, std::uint32_t leading);
  /// Whether a swap-out to staging belongs to this object.
  [[nodiscard]] static bool is_its(const SwapOuts::Staged& staged) { return (staged.write & its_swap_out) != 0; }
  void on_staged(const SwapOuts::Staged& staged);
  /// The write with this token has ended.
  void on_written(std::uint32_t token, ErrorCode error);
  void on_time(TimePoint now);
  [[nodiscard]] TimePoint next_deadline() const;
  /// Goes on with wishes. Returns true if anything changed.
  bool pump();
  /// The cache is cleared: drops all wishes. Blocks that the store has not been given yet are not written.
  void stop_all();
  /// Drops all wishes; those that probe or write end with what they have begun.
  void drop_wishes() { stop_all(); }

  /// Probes and writes that have not ended.
  [[nodiscard]] std::size_t under_way() const { return writes_.size() + probing_; }
  [[nodiscard]] std::size_t wishes() const { return wishes_.size(); }
  /// Blocks of wishes that have not been found there, been written or been dropped yet.
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
  /// Nothing is under way, no wish can go on now, and only paused jobs have one.
  [[nodiscard]] bool idle() const { return under_way() == 0 && rests() && !any_job_goes_on(); }
  /// pump() would change nothing.
  [[nodiscard]] bool rests() const { return wishes_.empty() || pauses(); }
  void check_invariants() const;

 private:
  static constexpr std::uint32_t its_swap_out = 1U << 31U;
  static constexpr std::uint32_t none = 0xFFFF'FFFF;
  enum class State : std::uint8_t { waiting, probing, writing };
  struct Wish {
    std::vector<BlockKey> keys;  ///< of the whole prefix
    TenantId tenant;
    GroupId group;
    std::optional<WriteBackId> job;  ///< it gets a result for the blocks from `told_from` on
    std::uint32_t told_from = 0;
    std::uint64_t blocks_max = 0;  ///< of a job: this many more blocks may be written
    bool paused = false;
    State state = State::waiting;
    std::uint32_t next = 0;     ///< the blocks before this one are done
    std::uint32_t started = 0;  ///< in state writing: the blocks from `next` to this one have been started
    std::uint32_t end = 0;      ///< in state writing: the end of the batch; in state probing: of the keys that are asked for
    std::bitset<write_batch> writing;  ///< blocks from `next` on whose writes are under way
    bool alone = false;                ///< its blocks stand alone
    bool gap = false;                  ///< the last probe has found a block that is not there
    ErrorCode stop_with;               ///< it starts no more, and ends when nothing of it is under way
    std::vector<BlockKey> asked;
  };
  struct Write {
    std::uint32_t wish = 0;
    std::uint32_t number = 0;  ///< of the block in its wish
    StoredBlock block;
    SlotId slot;
  };
  /// Knowledge of a prefix, by the name of its last block.
  struct Recent {
    std::uint64_t name = 0;
    TimePoint wished_until{};  ///< it was wished, and is not wished again before this time
    TimePoint there_until{};   ///< its last block was there, or has been written
  };
  static constexpr std::size_t recent_max = 4096;

  [[nodiscard]] Recent& note(const BlockKey& key);
  [[nodiscard]] Recent recent(const BlockKey& key) const;
  /// Nothing may be started now.
  [[nodiscard]] bool pauses() const { return !usable_ || now_ < rest_until_; }
  [[nodiscard]] std::uint32_t find_job(WriteBackId job) const;
  [[nodiscard]] bool any_job_goes_on() const;
  void stop(std::uint32_t id, ErrorCode why);
  [[nodiscard]] std::uint32_t make_wish(Prefix prefix, std::uint32_t length, std::uint32_t from);
  void wish(Prefix prefix, std::uint32_t length, std::uint32_t from);
  void wish_alone(std::span<const BlockRef> blocks);
  [[nodiscard]] bool stands_alone(Prefix prefix) const;
  void wish_unchained(BlockRef block);
  [[nodiscard]] bool extend_wish(Prefix prefix, std::uint32_t from);
  void make_room_for(std::size_t keys);
  [[nodiscard]] StoredBlock named(const Wish& wish, std::uint32_t block) const;
  void probe(std::uint32_t id);
  void go_on(std::uint32_t id);
  [[nodiscard]] bool start_blocks(std::uint32_t id);
  enum class Started : std::uint8_t { yes, later, gone, over_budget, no_link };
  /// A wish has got more keys. `known`: number of them that are known to be there.
  void count_keys(std::size_t keys, std::size_t known = 0) {
    keys_ += keys;
    totals_.wished += keys - known;
  }
  void pass_over(std::uint32_t id);
  [[nodiscard]] Started start_block(std::uint32_t id, BlockRef block, std::uint32_t number);
  void submit(std::uint32_t write);
  void end_write(std::uint32_t write, ErrorCode error);
  void rest_after(ErrorCode error);
  void tell(const Wish& wish, std::uint32_t block, WriteBackOutcome outcome, ErrorCode error = {});
  void record_event(const StoredBlock& block);
  [[nodiscard]] std::uint64_t& dropped(ErrorCode why);
  void drop(const Wish& wish, std::uint32_t begin, std::uint32_t end, ErrorCode why);
  void drop_rest(const Wish& wish);
  void end_keep(const Wish& wish, std::uint32_t begin, std::uint32_t end);
  void forget(std::uint32_t id);

  const ManagerConfig& manager_config_;
  const SharedConfig& config_;
  Residency& residency_;
  DeferredEviction& deferred_eviction_;
  SwapOuts& swap_outs_;
  Actions& actions_;
  SharedTotals& totals_;
  KvEvents& events_;
  SharedWriteLimits& limits_;
  std::uint32_t slots_max_;
  Bytes block_bytes_{1};
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
  std::size_t keys_ = 0;  ///< of all wishes
  std::size_t probing_ = 0;
  std::vector<Ended> ended_;  ///< not taken yet
  VectorPool<BlockKey> spare_keys_;
  std::vector<BlockRef> alone_;  ///< scratch
};

}  // namespace terrace
