#include "runtime/cache/control/write_back_jobs.hpp"

#include "base/check.hpp"
#include "base/failure.hpp"

#include <algorithm>
#include <bit>
#include <limits>
#include <utility>

namespace terrace {
namespace {

using Target = WriteBackOrder::Target;

constexpr std::uint32_t nodes_a_pump = 128;
/// When a node is split during a pass, blocks may move to a node that the pass has visited already. This is rare: a second pass
/// over the tree finds few such blocks, and a third one almost none.
constexpr std::uint32_t passes_max = 8;

WriteBackOutcome outcome_of(ErrorCode error) {
  if (!error) return WriteBackOutcome::stored;
  if (error == Errc::full) return WriteBackOutcome::dropped_full;
  if (error == Errc::cancelled) return WriteBackOutcome::cancelled;
  if (error == Errc::not_found || error == Errc::cleared) return WriteBackOutcome::dropped_gone;
  return WriteBackOutcome::failed;
}

/// The name of the value, out of those of all values of its type, in order.
template <std::size_t count, class Enum>
std::string_view name_in(const std::array<std::string_view, count>& names, Enum value) {
  const auto at = static_cast<std::size_t>(value);
  return at < count ? names[at] : "?";
}

}  // namespace

std::string_view to_string(WriteBackOrder::Target target) {
  return name_in(std::to_array<std::string_view>({"storage", "shared"}), target);
}

std::string_view to_string(WriteBackOrder::Scope scope) {
  return name_in(std::to_array<std::string_view>({"request", "prefix", "tenant", "idle", "all"}), scope);
}

std::string_view to_string(WriteBackOutcome outcome) {
  return name_in(std::to_array<std::string_view>(
                     {"stored", "already there", "dropped: full", "dropped: gone", "over budget", "failed", "cancelled"}),
                 outcome);
}

std::string_view to_string(WriteBackState state) {
  return name_in(std::to_array<std::string_view>({"running", "paused", "done", "cancelled", "deadline exceeded"}), state);
}

Result<WriteBackJobs::Job*> WriteBackJobs::add(const WriteBackOrder& order) {
  const auto free = std::ranges::find(by_bit_.begin() + 1, by_bit_.end(), nullptr);
  if (free == by_bit_.end()) return failure<Errc::refused, "too many write-back jobs run: try again when one has ended">;
  while (jobs_.size() - running_ >= ended_max) {
    jobs_.erase(std::ranges::find_if(jobs_, [](const auto& each) { return each.second.progress.ended(); }));
  }
  last_ = WriteBackId{last_.value() + 1};
  Job& job = jobs_[last_];
  job.order = order;
  job.order.keys = {};
  job.progress.id = last_;
  job.progress.target = order.target;
  job.progress.scope = order.scope;
  if (order.target == Target::shared) job.order.durable = false;
  job.bit = static_cast<std::uint32_t>(free - by_bit_.begin());
  if (job.order.durable && order.deadline != never) {
    const Duration left = std::max(order.deadline - now_, Duration{});
    job.closing = order.deadline - std::min<Duration>(left / 8, std::chrono::seconds{1});
  }
  *free = &job;
  ++running_;
  return &job;
}

Result<WriteBackId> WriteBackJobs::start(const WriteBackOrder& order, std::span<const PoolPrefix> prefixes,
                                         std::span<const BlockKey> gone) {
  const Result<Job*> added = add(order);
  if (!added) return added.error();
  Job& job = **added;
  for (const PoolPrefix& each : prefixes) {
    TieredPool& pool = *pools_[each.pool.value()];
    if (order.target == Target::shared) {
      Later& later = job.later.emplace_back(each.pool.value());
      const PrefixTree& tree = pool.residency().tree();
      for (std::uint32_t depth = 0; depth < each.prefix.length; ++depth)
        later.keys.push_back(tree.key({each.prefix.node, depth}));
      continue;
    }
    for (std::uint32_t depth = 0; depth < each.prefix.length; ++depth) {
      take(job, pool, pool.residency().tree().at(each.prefix, depth));
    }
  }
  for (const BlockKey& key : gone) record(job, key, WriteBackOutcome::dropped_gone, Errc::not_found);
  order_next(job);
  end_if_done(job);
  return job.progress.id;
}

Result<WriteBackId> WriteBackJobs::start(const WriteBackOrder& order, std::uint64_t last_use_max) {
  const Result<Job*> added = add(order);
  if (!added) return added.error();
  Job& job = **added;
  job.scan = Scan{};
  job.scan->last_use_max = last_use_max;
  next_pass(job);
  return job.progress.id;
}

/// Returns the number of blocks of the pool that still fit into the budget of the job.
std::uint32_t WriteBackJobs::blocks_left(const Job& job, const TieredPool& pool) const {
  constexpr std::uint32_t most = std::numeric_limits<std::uint32_t>::max();
  if (job.order.budget == Bytes{}) return most;
  const Bytes left = job.order.budget - std::min(job.order.budget, job.begun);
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(left / pool.storage_writer().block_bytes(), most));
}

/// Starts the write of the block, or records a result for it. Returns true if a write was started.
bool WriteBackJobs::take(Job& job, TieredPool& pool, BlockRef block) {
  const Residency& residency = pool.residency();
  const BlockKey key = residency.tree().key(block);
  if (job.told.contains(key)) return false;
  const StorageWriter::Wants mine = StorageWriter::Wants{1} << job.bit;
  const Copy stored = residency.copy(block, Tier::storage);
  if (stored.state() == CopyState::filling) {
    pool.storage_writer().want(block, mine);
    return false;
  }
  if (stored.present()) {
    record(job, key, WriteBackOutcome::already_there);
    job.in_storage += pool.storage_writer().block_bytes();
    return false;
  }
  const std::uint32_t left = blocks_left(job, pool);
  const StorageWriter::Begun begun =
      left == 0 ? StorageWriter::Begun{0, Errc::full} : pool.storage_writer().begin(block, mine, left);
  job.begun += pool.storage_writer().block_bytes() * begun.blocks;
  if (!begun.why) return begun.blocks > 0;
  const bool bound = begun.why == Errc::full || begun.why == Errc::refused;
  record(job, key, bound ? WriteBackOutcome::over_budget : WriteBackOutcome::dropped_gone, begun.why);
  return begun.blocks > 0;
}

/// Orders the writes of the blocks of the prefix from depth `from` on to the shared store.
void WriteBackJobs::order_shared(Job& job, TieredPool& pool, Prefix prefix, std::uint32_t from) {
  if (prefix.length == from) return;
  TERRACE_CHECK(job.awaited == 0);
  job.awaited = prefix.length - from;
  pool.shared_writer()->order(job.progress.id, prefix, from, blocks_left(job, pool));
}

/// Orders the job's next prefix if all blocks of the one before have their results. Returns true if it did.
bool WriteBackJobs::order_next(Job& job) {
  bool ordered = false;
  while (!job.later.empty() && job.awaited == 0 && !has_wish(job)) {
    const Later next = std::move(job.later.front());
    job.later.pop_front();
    TieredPool& pool = *pools_[next.pool];
    const Prefix there = pool.residency().tree().find(next.keys);
    for (std::size_t block = there.length; block < next.keys.size(); ++block) {
      record(job, next.keys[block], WriteBackOutcome::dropped_gone, Errc::not_found);
    }
    order_shared(job, pool, there, 0);
    ordered = true;
  }
  return ordered;
}

/// Orders the blocks of the run that the job wants. Returns false if there are none.
bool WriteBackJobs::order_run(Job& job, TieredPool& pool, Run run) {
  const PrefixTree& tree = pool.residency().tree();
  const auto wants = [&](BlockRef block) {
    return tree.last_use(block) <= job.scan->last_use_max && !job.told.contains(tree.key(block));
  };
  // A use of a block is also a use of all blocks before it. So the idle blocks are at the end of the run.
  std::uint32_t from = run.begin;
  while (from < run.end && !wants({run.node, from})) ++from;
  order_shared(job, pool, {run.node, run.end}, from);
  return from < run.end;
}

std::uint64_t WriteBackJobs::under_way(const Job& job) const {
  std::uint64_t blocks = job.awaited;
  for (const Later& later : job.later) blocks += later.keys.size();
  if (job.order.target == Target::shared) return blocks;
  for (const auto& pool : pools_) blocks += pool->storage_writer().wanted(job.bit);
  return blocks;
}

bool WriteBackJobs::pump() {
  if (running_ == 0) return false;
  collect_ended();
  bool begun = false;
  for (Job* const job : by_bit_) {
    if (job == nullptr) continue;
    if (job->progress.state == WriteBackState::running) {
      begun |= order_next(*job);
      if (job->scans()) begun |= scan_some(*job);
    }
    end_if_done(*job);
  }
  return begun;
}

bool WriteBackJobs::wants_pump() const {
  if (running_ == 0) return false;  // the usual case; every poll asks
  return std::ranges::any_of(by_bit_, [&](const Job* job) {
    return job != nullptr && job->progress.state == WriteBackState::running && job->scans() && has_room(*job);
  });
}

bool WriteBackJobs::has_wish(const Job& job) const {
  if (job.order.target != Target::shared) return false;
  return std::ranges::any_of(pools_, [&](const TieredPool* pool) { return pool->shared_writer()->has(job.progress.id); });
}

bool WriteBackJobs::scan_some(Job& job) {
  Scan& scan = *job.scan;
  bool begun = false;
  if (!has_room(job)) return false;
  for (std::uint32_t nodes = 0; nodes < nodes_a_pump && !scan.done;) {
    TieredPool& pool = *pools_[scan.pool];
    const PrefixTree& tree = pool.residency().tree();
    if (scan.node >= tree.nodes_end()) {
      scan.node = scan.depth = 0;
      if (++scan.pool == pools_.size()) next_pass(job);
      continue;
    }
    const std::optional<Run> run = tree.blocks_in(NodeId{scan.node});
    const bool other_tenant =
        run && job.order.scope == WriteBackOrder::Scope::tenant && tree.tenant({run->node, run->begin}) != job.order.tenant;
    if (run && !other_tenant && !tree.hidden({run->node, run->begin})) {
      if (job.order.target == Target::shared) {
        // The same node is looked at again when these blocks have their results.
        if (order_run(job, pool, *run)) return true;
        scan.depth = run->end;
      }
      for (scan.depth = std::max(scan.depth, run->begin); scan.depth < run->end; ++scan.depth) {
        if (!has_room(job)) return begun;
        const BlockRef block{run->node, scan.depth};
        if (tree.last_use(block) <= scan.last_use_max) begun |= take(job, pool, block);
      }
    }
    ++nodes;
    ++scan.node;
    scan.depth = 0;
  }
  return begun;
}

/// Starts another pass if nodes were split during the last one, because blocks may have moved to nodes that it had visited.
void WriteBackJobs::next_pass(Job& job) {
  Scan& scan = *job.scan;
  std::vector<std::uint64_t> splits;
  for (const auto& pool : pools_) splits.push_back(pool->residency().tree().splits());
  scan.done = scan.pass == passes_max || (scan.pass > 0 && splits == scan.splits);
  scan.splits = std::move(splits);
  scan.pool = 0;
  ++scan.pass;
}

bool WriteBackJobs::record(Job& job, const BlockKey& key, WriteBackOutcome outcome, ErrorCode error) {
  if (job.scan && !job.told.insert(key).second) return false;
  ++job.progress.blocks[static_cast<std::size_t>(outcome)];
  ++totals_[static_cast<std::size_t>(outcome)];
  job.results.push_back({key, outcome, error});
  return true;
}

/// Records the results of writes that have ended. Every job in their `wants` still runs, because end() calls this function first.
void WriteBackJobs::collect_ended() {
  for (const auto& pool : pools_) {
    if (SharedWriter* const writer = pool->shared_writer()) writer->take_ended(ended_shared_);
    for (const auto& [id, key, outcome, error] : ended_shared_) {
      Job& job = jobs_.at(id);
      TERRACE_CHECK(job.awaited > 0);
      --job.awaited;
      if (!record(job, key, outcome, error) || outcome != WriteBackOutcome::stored) continue;
      job.progress.written += pool->storage_writer().block_bytes();
      job.begun += pool->storage_writer().block_bytes();
    }
    pool->storage_writer().take_ended(ended_);
    for (const auto& [wants, key, error] : ended_) {
      for (StorageWriter::Wants left = wants & ~StorageWriter::by_policy; left != 0; left &= left - 1) {
        Job& job = *by_bit_[static_cast<std::size_t>(std::countr_zero(left))];
        if (!record(job, key, outcome_of(error), error) || error) continue;
        job.progress.written += pool->storage_writer().block_bytes();
        job.in_storage += pool->storage_writer().block_bytes();
      }
    }
  }
}

void WriteBackJobs::ask_for_flush(Job& job) {
  job.asked_for = job.in_storage;
  job.rounds.clear();
  for (const auto& pool : pools_) job.rounds.push_back(pool->flushes().ask());
}

bool WriteBackJobs::flushed(Job& job) {
  if (!job.order.durable || job.in_storage == Bytes{}) return true;
  if (job.rounds.empty()) ask_for_flush(job);
  ErrorCode error;
  for (std::size_t i = 0; i < pools_.size(); ++i) {
    const FlushScheduler& flushes = pools_[i]->flushes();
    if (!flushes.ended(job.rounds[i])) return false;
    if (flushes.error()) error = flushes.error();
  }
  job.progress.flush_error = error;
  if (error) return true;
  job.progress.durable = job.asked_for;
  if (job.asked_for == job.in_storage) return true;
  ask_for_flush(job);
  return false;
}

/// The time for the flush has come: asks for a flush of the blocks that are in storage now. Writes that are under way may still
/// end in time. A later flush covers them then.
void WriteBackJobs::close_job(Job& job) {
  job.closing = never;
  job.cut = job.scan && !job.scan->done;
  if (job.in_storage > Bytes{}) ask_for_flush(job);
}

void WriteBackJobs::end_if_done(Job& job) {
  if (job.progress.ended() || job.scans()) return;
  const bool all_there = arrived(job);
  if (!all_there && job.rounds.empty()) return;
  if (!flushed(job) || !all_there) return;
  end(job, job.cut ? WriteBackState::deadline_exceeded : WriteBackState::done);
}

void WriteBackJobs::end(Job& job, WriteBackState state) {
  collect_ended();
  const StorageWriter::Wants mine = StorageWriter::Wants{1} << job.bit;
  for (const auto& pool : pools_) {
    unwanted_.clear();
    pool->storage_writer().unwant_all(mine, unwanted_);
    if (job.order.target == Target::shared) pool->shared_writer()->cancel(job.progress.id, unwanted_);
    for (const BlockKey& key : unwanted_) record(job, key, WriteBackOutcome::cancelled, Errc::cancelled);
  }
  for (const Later& later : std::exchange(job.later, {})) {
    for (const BlockKey& key : later.keys) record(job, key, WriteBackOutcome::cancelled, Errc::cancelled);
  }
  job.awaited = 0;
  job.progress.state = state;
  job.told = {};
  by_bit_[job.bit] = nullptr;
  --running_;
}

Result<WriteBackJobs::Job*> WriteBackJobs::find_running(WriteBackId id) {
  const auto found = jobs_.find(id);
  if (found == jobs_.end() || found->second.progress.ended())
    return failure<Errc::not_found, "there is no such write-back job, or it has ended">;
  return &found->second;
}

Result<void> WriteBackJobs::set_paused(WriteBackId id, bool paused) {
  const Result<Job*> job = find_running(id);
  if (!job) return job.error();
  (*job)->progress.state = paused ? WriteBackState::paused : WriteBackState::running;
  if ((*job)->order.target != Target::shared) return {};
  for (TieredPool* const pool : pools_) pool->shared_writer()->pause(id, paused);
  return {};
}

Result<void> WriteBackJobs::cancel(WriteBackId id) {
  const Result<Job*> job = find_running(id);
  if (!job) return job.error();
  end(**job, WriteBackState::cancelled);
  return {};
}

void WriteBackJobs::on_time(TimePoint now) {
  now_ = now;
  if (running_ == 0) return;
  collect_ended();
  for (Job* const job : by_bit_) {
    if (job == nullptr) continue;
    if (job->closing <= now) close_job(*job);
    if (job->order.deadline <= now) end(*job, WriteBackState::deadline_exceeded);
  }
}

TimePoint WriteBackJobs::next_deadline() const {
  TimePoint next = never;
  if (running_ == 0) return next;
  for (const Job* const job : by_bit_) {
    if (job != nullptr) next = std::min({next, job->order.deadline, job->closing});
  }
  return next;
}

std::optional<WriteBackProgress> WriteBackJobs::progress(WriteBackId id) const {
  const auto found = jobs_.find(id);
  return found == jobs_.end() ? std::nullopt : std::optional{progress(found->second)};
}

WriteBackProgress WriteBackJobs::progress(const Job& job) const {
  WriteBackProgress progress = job.progress;
  progress.looked_at = looked_at(job);
  if (!progress.ended()) progress.under_way = under_way(job);
  return progress;
}

/// Returns the share of the tree that a scan has looked at. Further passes find few blocks, so a scan counts as complete after
/// its first pass.
double WriteBackJobs::looked_at(const Job& job) const {
  if (!job.scan || job.scan->done || job.scan->pass > 1) return 1;
  const Scan& scan = *job.scan;
  const std::uint32_t nodes = pools_[scan.pool]->residency().tree().nodes_end();
  const double of_pool = nodes == 0 ? 0 : static_cast<double>(std::min(scan.node, nodes)) / nodes;
  return (static_cast<double>(scan.pool) + of_pool) / static_cast<double>(pools_.size());
}

std::vector<WriteBackProgress> WriteBackJobs::all() const {
  std::vector<WriteBackProgress> all;
  all.reserve(jobs_.size());
  for (const auto& [id, job] : jobs_) all.push_back(progress(job));
  return all;
}

Result<std::vector<WriteBackResult>> WriteBackJobs::take_results(WriteBackId id) {
  const auto found = jobs_.find(id);
  if (found == jobs_.end()) return failure<Errc::not_found, "there is no such write-back job, or it was forgotten">;
  return std::exchange(found->second.results, {});
}

void WriteBackJobs::check_invariants() const {
  TERRACE_CHECK(static_cast<std::size_t>(std::ranges::count_if(by_bit_, [](const Job* job) { return job != nullptr; })) ==
                running_);
  for (std::uint32_t bit = 1; bit < by_bit_.size(); ++bit) {
    for (const auto& pool : pools_) TERRACE_CHECK(by_bit_[bit] != nullptr || pool->storage_writer().wanted(bit) == 0);
  }
}

}  // namespace terrace
