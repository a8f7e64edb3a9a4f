#pragma once

#include "runtime/cache/control/model_groups.hpp"
#include "runtime/cache/pool/tiered_pool.hpp"
#include "terrace/write_back.hpp"

#include <boost/unordered/unordered_flat_set.hpp>

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace terrace {

/// Runs write-back jobs: orders to write cached blocks to storage, or to the shared store, now. It keeps one result for each
/// block of a job.
///
/// A job over a prefix or a request starts the writes of all its blocks at once. A job over the tree looks at a few nodes in each
/// pump(), and has at most ManagerConfig::write_back_blocks_ahead blocks under way, so that requests still find copies to evict.
/// It may include blocks that were cached after it had started. If several jobs and the write policy want the same block, the
/// block is written once (StorageWriter::Wants).
///
/// A job to the shared store gives one prefix at a time to the SharedWriter of its pool, which writes it like any other prefix. A
/// job over the tree gives the blocks of one node after the other. An unchained block of a KV cache group is a prefix of length
/// one.
///
/// Ownership: CacheManager owns this object; the pools outlive it. Threads: the manager's. Errors: a call that fails returns the
/// reason and changes nothing.
class WriteBackJobs {
 public:
  /// The most jobs that can run at a time.
  static constexpr std::size_t running_max = StorageWriter::wants_count - 1;
  /// The most ended jobs that are kept. Older ones are forgotten.
  static constexpr std::size_t ended_max = 64;

  WriteBackJobs(std::span<TieredPool* const> pools, std::uint32_t blocks_ahead) : pools_{pools}, blocks_ahead_{blocks_ahead} {}

  /// A paused job starts no more writes. Writes that are under way continue, and its deadline does not change. Fails: not_found
  /// (there is no such job, or it has ended).
  [[nodiscard]] Result<void> set_paused(WriteBackId id, bool paused);
  /// Ends the job at once. Blocks that the store is writing may still be stored. Fails: not_found, as set_paused().
  [[nodiscard]] Result<void> cancel(WriteBackId id);
  void on_time(TimePoint now);
  [[nodiscard]] TimePoint next_deadline() const;
  /// Continues the jobs over the tree, and ends jobs that are complete. Returns true if it started writes.
  bool pump();
  /// Returns true if a job has more of the tree to look at, and can do so in the next pump().
  [[nodiscard]] bool wants_pump() const;

  /// Returns nothing if there is no such job, or if its record has been dropped since it ended (ended_max).
  [[nodiscard]] std::optional<WriteBackProgress> progress(WriteBackId id) const;
  /// The progress of all jobs that run, or ended and are kept.
  [[nodiscard]] std::vector<WriteBackProgress> all() const;
  /// Returns the job's results since the last call. They are kept until they are taken, or the ended
  /// job is forgotten. Fails: not_found.
  [[nodiscard]] Result<std::vector<WriteBackResult>> take_results(WriteBackId id);
  /// The blocks of all jobs so far, by WriteBackOutcome.
  [[nodiscard]] const std::array<std::uint64_t, write_back_outcome_count>& totals() const { return totals_; }
  [[nodiscard]] bool idle() const { return running_ == 0; }
  void check_invariants() const;

 private:
  friend class Administration;  ///< the only one that starts jobs: it checks the orders
  /// Starts a job over the blocks of these prefixes. `gone`: keys that were asked for, but are not cached; each gets the result
  /// dropped_gone. Fails: refused (running_max jobs run).
  [[nodiscard]] Result<WriteBackId> start(const WriteBackOrder& order, std::span<const PoolPrefix> prefixes,
                                          std::span<const BlockKey> gone);
  /// Starts a job over the tree. It takes the blocks whose last use has the stamp `last_use_max` or an earlier one. If the scope
  /// of the order is a tenant, it takes only blocks of this tenant. Fails: refused (running_max jobs run).
  [[nodiscard]] Result<WriteBackId> start(const WriteBackOrder& order, std::uint64_t last_use_max);

  /// The position of a job over the tree.
  struct Scan {
    std::uint64_t last_use_max = 0;
    std::size_t pool = 0;
    std::uint32_t node = 0;
    std::uint32_t depth = 0;  ///< the node's blocks before this depth have been looked at
    std::uint32_t pass = 0;
    std::vector<std::uint64_t> splits;  ///< by PoolId: PrefixTree::splits() when the pass began
    bool done = false;
  };
  /// A prefix that waits. It is kept by its keys, because the tree may change before its turn.
  struct Later {
    std::size_t pool = 0;
    std::vector<BlockKey> keys;
  };
  struct Job {
    WriteBackOrder order;
    WriteBackProgress progress;
    std::uint32_t bit = 0;  ///< its bit in StorageWriter::Wants
    std::optional<Scan> scan;
    Bytes begun{};              ///< bytes that were written or are being written
    std::uint64_t awaited = 0;  ///< a job to the shared store: blocks of its prefix that have no result yet
    std::deque<Later> later;    ///< a job to the shared store: the prefixes whose turn has not come
    /// From this time on the job starts no more writes: the rest of its time is for the flush.
    TimePoint closing = never;
    bool cut = false;  ///< at `closing`, the job had not looked at the whole tree
    /// The flush that the job has asked for: the round of each pool, by PoolId. Empty if it has asked for none.
    std::vector<std::uint64_t> rounds;
    Bytes asked_for{};   ///< value of in_storage when the job asked for this flush
    Bytes in_storage{};  ///< bytes of its blocks that were stored, or were there already
    std::vector<WriteBackResult> results;
    /// Only for a scan: the blocks that have their result. A scan can meet such a block again: in a later pass, or after it has
    /// stored the block as an ancestor of another one.
    boost::unordered_flat_set<BlockKey, std::hash<BlockKey>> told;

    /// It has more of the tree to look at.
    [[nodiscard]] bool scans() const { return scan && !scan->done && !cut; }
  };

  [[nodiscard]] Result<Job*> add(const WriteBackOrder& order);
  [[nodiscard]] Result<Job*> find_running(WriteBackId id);
  bool take(Job& job, TieredPool& pool, BlockRef block);
  void order_shared(Job& job, TieredPool& pool, Prefix prefix, std::uint32_t from);
  bool order_next(Job& job);
  bool order_run(Job& job, TieredPool& pool, Run run);
  /// Returns true if the job over the tree may start more writes.
  [[nodiscard]] bool has_room(const Job& job) const {
    return job.order.target == WriteBackOrder::Target::shared ? arrived(job) : under_way(job) < blocks_ahead_;
  }
  /// Returns true if blocks of a job to the shared store, or ancestors of its blocks, are under way.
  [[nodiscard]] bool has_wish(const Job& job) const;
  [[nodiscard]] bool arrived(const Job& job) const { return under_way(job) == 0 && !has_wish(job); }
  [[nodiscard]] std::uint32_t blocks_left(const Job& job, const TieredPool& pool) const;
  [[nodiscard]] std::uint64_t under_way(const Job& job) const;
  [[nodiscard]] double looked_at(const Job& job) const;
  [[nodiscard]] WriteBackProgress progress(const Job& job) const;
  bool scan_some(Job& job);
  void next_pass(Job& job);
  /// Returns false, and records nothing, if the block has its result already.
  bool record(Job& job, const BlockKey& key, WriteBackOutcome outcome, ErrorCode error = {});
  void collect_ended();
  void close_job(Job& job);
  void ask_for_flush(Job& job);
  /// Returns true if the job needs no flush, if a flush has covered all its blocks in storage, or if a flush has failed.
  /// Otherwise asks for a flush, unless one is under way.
  [[nodiscard]] bool flushed(Job& job);
  void end_if_done(Job& job);
  void end(Job& job, WriteBackState state);

  std::span<TieredPool* const> pools_;
  std::uint32_t blocks_ahead_;
  std::map<WriteBackId, Job> jobs_;
  std::array<Job*, StorageWriter::wants_count> by_bit_{};  ///< the running jobs
  std::size_t running_ = 0;
  std::array<std::uint64_t, write_back_outcome_count> totals_{};
  WriteBackId last_;
  TimePoint now_{};
  std::vector<BlockKey> unwanted_;                 ///< scratch
  std::vector<StorageWriter::Ended> ended_;        ///< scratch
  std::vector<SharedWriter::Ended> ended_shared_;  ///< scratch
};

}  // namespace terrace
