#pragma once

#include "runtime/manager/model_groups.hpp"
#include "runtime/tiering/tiered_pool.hpp"
#include "runtime/types/write_back.hpp"

#include <boost/unordered/unordered_flat_set.hpp>

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace terrace {

/// Operators' orders to write cached blocks back, and what became of each block.
///
/// A job over a prefix begins all of it at once; one over the tree goes through its nodes bit by bit, a few a call, and keeps at
/// most ManagerConfig::write_back_blocks_ahead of its blocks under way, so that requests still find copies that may be given up.
/// Blocks that come while it runs may be taken along. What several jobs and the write policy want of one block is copied once
/// (StorageWriter::Wants).
///
/// Threads: the manager's.
class WriteBackJobs {
 public:
  static constexpr std::size_t running_max = StorageWriter::wants_count - 1;
  /// Ended jobs that can still be asked about; the oldest are forgotten.
  static constexpr std::size_t ended_max = 64;

  WriteBackJobs(std::span<const std::unique_ptr<TieredPool>> pools, std::uint32_t blocks_ahead);

  /// A job over what of the prefixes is there now. `gone`: keys that were asked for and are not. Fails: refused (as many jobs run
  /// as can).
  [[nodiscard]] Result<WriteBackId> start(const WriteBackOrder& order, std::span<const PoolPrefix> prefixes,
                                          std::span<const BlockKey> gone);
  /// A job over the tree: of `order`'s tenant where its scope is one, and of what was last used at `last_use_max` or before.
  [[nodiscard]] Result<WriteBackId> start(const WriteBackOrder& order, std::uint64_t last_use_max);

  /// Begins nothing more until it is resumed; what is under way goes on, and so does its deadline. Fails: not_found (no such job,
  /// or it has ended).
  [[nodiscard]] Result<void> pause(WriteBackId id);
  [[nodiscard]] Result<void> resume(WriteBackId id);
  /// Ends at once. What is with the store already may be stored all the same. Fails: not_found, as pause().
  [[nodiscard]] Result<void> cancel(WriteBackId id);
  void on_time(TimePoint now);
  [[nodiscard]] TimePoint next_deadline() const;
  /// Goes on with jobs over the tree. True where blocks were begun.
  bool pump();
  /// A job has more of the tree to look at, and waits for nothing but the next pump().
  [[nodiscard]] bool wants_pump() const;

  /// None: no such job, or it ended long ago.
  [[nodiscard]] std::optional<WriteBackProgress> progress(WriteBackId id) const;
  [[nodiscard]] std::vector<WriteBackProgress> all() const;
  /// What has become known of its blocks since the last call; they are kept until then. Fails: not_found.
  [[nodiscard]] Result<std::vector<WriteBackResult>> take_results(WriteBackId id);
  [[nodiscard]] bool idle() const { return running_ == 0; }
  void check_invariants() const;

 private:
  /// Of a job over the tree: where it is.
  struct Scan {
    std::uint64_t last_use_max = 0;
    std::size_t pool = 0;
    std::uint32_t node = 0;
    std::uint32_t depth = 0;  ///< of the node's blocks, those before were looked at
    std::uint32_t pass = 0;
    std::vector<std::uint64_t> splits;  ///< by PoolId, of the tree when the pass began
    bool done = false;
  };
  struct KeyHash {
    using is_avalanching = void;
    std::size_t operator()(const BlockKey& key) const { return key.prefix64(); }
  };
  struct Job {
    WriteBackOrder order;
    WriteBackProgress progress;
    std::uint32_t bit = 0;
    std::optional<Scan> scan;
    Bytes begun{};
    /// From then on nothing more is begun: what is left of the time is the flush's.
    TimePoint closing = never;
    bool cut = false;  ///< it was closing before it had begun everything
    /// The flush it waits for: a round of each pool, and what it had in storage when that was asked for.
    std::vector<std::uint64_t> rounds;
    Bytes asked_for{};
    Bytes in_storage{};  ///< stored or there already
    std::vector<WriteBackResult> results;
    /// Of a scan: blocks that have their result. It meets some again: in a later pass, or because it has stored them with their
    /// children before it came to them.
    boost::unordered_flat_set<BlockKey, KeyHash> told;
  };

  [[nodiscard]] Result<Job*> add(const WriteBackOrder& order);
  [[nodiscard]] Result<Job*> find_running(WriteBackId id);
  bool take(Job& job, TieredPool& pool, BlockRef block);
  [[nodiscard]] std::uint32_t blocks_left(const Job& job, const TieredPool& pool) const;
  [[nodiscard]] std::uint64_t under_way(const Job& job) const;
  bool scan_some(Job& job);
  void next_pass(Job& job);
  /// False where the block has its result already.
  bool record(Job& job, const BlockKey& key, WriteBackOutcome outcome, ErrorCode error = {});
  void collect_ended();
  void close_job(Job& job);
  void ask_for_flush(Job& job);
  /// True where what the job has in storage has been flushed, or a flush has failed; asks for it where that is due.
  [[nodiscard]] bool flushed(Job& job);
  void end_if_done(Job& job);
  void end(Job& job, WriteBackState state);

  std::span<const std::unique_ptr<TieredPool>> pools_;
  std::uint32_t blocks_ahead_;
  std::map<WriteBackId, Job> jobs_;
  std::array<Job*, StorageWriter::wants_count> by_bit_{};  ///< those that run
  std::size_t running_ = 0;
  WriteBackId last_;
  TimePoint now_{};
  std::vector<BlockKey> unwanted_;           ///< scratch
  std::vector<StorageWriter::Ended> ended_;  ///< scratch
};

}  // namespace terrace
