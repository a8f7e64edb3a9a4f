#include "terrace/async_cache.hpp"

#include "base/check.hpp"
#include "runtime/engine/cache_state.hpp"
#include "runtime/engine/returned_leases.hpp"

#include <boost/asio/dispatch.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <deque>
#include <optional>
#include <stdexcept>
#include <unordered_map>
#include <utility>

namespace terrace {

/// The queue of requests and the loop. All members run on the strand, unless their comment says otherwise.
struct AsyncCache::State final : LeaseHome {
  struct Waiting {
    std::uint64_t number = 0;  ///< number of this call, because a RequestId may be used again
    AcquireRequest request;
    std::unique_ptr<Wait<Grant>> wait;
  };
  struct LayersWait {
    std::uint32_t wanted = 0;
    std::unique_ptr<Wait<std::uint32_t>> wait;
  };
  /// A request that is granted by layer and not ready yet, or that has failed since.
  struct Loading {
    std::uint32_t layers = 0;
    ErrorCode error;
    std::vector<LayersWait> waits;
  };
  struct JobWait {  ///< either `progress` or `checkpoint` is set
    WriteBackId id;
    std::unique_ptr<Wait<WriteBackProgress>> progress;
    std::unique_ptr<Wait<CheckpointReport>> checkpoint;
  };
  /// A clear or a resize that has begun.
  struct ChangeWait {
    std::function<std::optional<ErrorCode>()> end;  ///< returns nothing while the change continues
    std::unique_ptr<Wait<>> wait;
  };

  State(const asio::any_io_executor& executor, Cache& cache);
  ~State() override;
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  /// Any thread.
  void give_back(std::unique_ptr<ReturnedLease> lease) noexcept override;

  void begin_acquire(Waiting waiting);
  void cancel_acquire(std::uint64_t number);
  void begin_layers(RequestId id, LayersWait wait);
  void commit(RequestId id, std::span<const BlockKey> keys, Fence written, std::unique_ptr<Wait<Commit>> wait);
  void extend(RequestId id, HashUnits units, std::unique_ptr<Wait<std::vector<SlotId>>> wait);
  void call(std::unique_ptr<Call> function);
  void begin_clear(const ClearOptions& options, std::unique_ptr<Wait<>> wait);
  void begin_resize(Tier tier, Blocks blocks, PoolId pool, std::unique_ptr<Wait<>> wait);
  void await_job(WriteBackId id, std::unique_ptr<Wait<WriteBackProgress>> wait);
  void begin_checkpoint(Duration budget, std::unique_ptr<Wait<CheckpointReport>> wait);
  void begin_stop(TimePoint until, std::unique_ptr<Wait<WorkLeft>> wait);

  // Any thread. The strand is constant.
  asio::strand<asio::any_io_executor> strand;
  std::atomic<std::uint64_t> last_acquire{0};
  Cache& cache_;

 private:
  void give_up(RequestId id);
  [[nodiscard]] bool try_acquire(Waiting& waiting);
  void take_returned();
  void turn();
  void on_event(const RequestEvent& event);
  void end_layers_waits(Loading& loading);
  void grant(RequestId id, std::unique_ptr<Wait<Grant>> wait, std::uint32_t layers = Grant::all_layers);
  void admit();
  void tell_ended_jobs();
  void tell_ended(JobWait wait, const std::optional<WriteBackProgress>& progress);
  void tell_ended_changes();
  void wait_for_wake();
  void wait_for_deadline();
  void finish_stop();
  void end_waits();

  asio::posix::stream_descriptor wake_;
  asio::steady_timer timer_;
  std::unordered_map<RequestId, Lease> leases_;     ///< the leases of the cache; callers hold leases on these
  std::unordered_map<RequestId, Waiting> pending_;  ///< accepted, not granted yet
  std::unordered_map<RequestId, Loading> loading_;  ///< granted by layer; a failed one stays until its lease ends
  std::deque<Waiting> waiting_;                     ///< requests that wait for slots, in order
  std::vector<JobWait> job_waits_;
  std::vector<ChangeWait> change_waits_;
  std::vector<std::unique_ptr<Wait<WorkLeft>>> stopping_;
  TimePoint stop_until_ = never;
  bool stop_begun_ = false;
  bool resting_ = false;     ///< a stop has completed, or completes when `handlers_` is 0: nothing waits for a wake-up or a time
  unsigned handlers_ = 0;    ///< handlers for wake-ups and deadlines that have not run yet
  ReturnedLeases returned_;  ///< any thread
};

// ---- any thread: each operation continues in the strand

AsyncCache::AsyncCache(asio::any_io_executor executor, Cache& cache)
    : executor_{std::move(executor)}, state_{std::make_unique<State>(executor_, cache)} {
  if (cache.has_idle_service()) {
    throw std::invalid_argument{"an AsyncCache polls by itself: make its CacheSystem without an idle service"};
  }
}

AsyncCache::~AsyncCache() = default;

CacheStatus AsyncCache::status() const noexcept { return state_->cache_.status(); }

std::uint64_t AsyncCache::next_acquire() { return ++state_->last_acquire; }

void AsyncCache::begin_acquire(std::uint64_t number, const AcquireRequest& request, std::unique_ptr<Wait<Grant>> wait) {
  asio::dispatch(state_->strand, [s = state_.get(), number, request, w = std::move(wait)]() mutable {
    s->begin_acquire({number, request, std::move(w)});
  });
}

void AsyncCache::cancel_acquire(std::uint64_t number) {
  asio::dispatch(state_->strand, [s = state_.get(), number] { s->cancel_acquire(number); });
}

void AsyncCache::begin_layers(RequestId id, std::uint32_t wanted, std::unique_ptr<Wait<std::uint32_t>> wait) {
  asio::dispatch(state_->strand, [s = state_.get(), id, wanted, w = std::move(wait)]() mutable {
    s->begin_layers(id, {wanted, std::move(w)});
  });
}

void AsyncCache::begin_commit(RequestId id, std::span<const BlockKey> keys, Fence written, std::unique_ptr<Wait<Commit>> wait) {
  asio::dispatch(state_->strand, [s = state_.get(), id, keys, written, w = std::move(wait)]() mutable {
    s->commit(id, keys, written, std::move(w));
  });
}

void AsyncCache::begin_extend(RequestId id, HashUnits units, std::unique_ptr<Wait<std::vector<SlotId>>> wait) {
  asio::dispatch(state_->strand,
                 [s = state_.get(), id, units, w = std::move(wait)]() mutable { s->extend(id, units, std::move(w)); });
}

void AsyncCache::begin_call(std::unique_ptr<Call> call) {
  asio::dispatch(state_->strand, [s = state_.get(), c = std::move(call)]() mutable { s->call(std::move(c)); });
}

void AsyncCache::begin_clear(const ClearOptions& options, std::unique_ptr<Wait<>> wait) {
  asio::dispatch(state_->strand,
                 [s = state_.get(), options, w = std::move(wait)]() mutable { s->begin_clear(options, std::move(w)); });
}

void AsyncCache::begin_resize(Tier tier, Blocks blocks, PoolId pool, std::unique_ptr<Wait<>> wait) {
  asio::dispatch(state_->strand, [s = state_.get(), tier, blocks, pool, w = std::move(wait)]() mutable {
    s->begin_resize(tier, blocks, pool, std::move(w));
  });
}

void AsyncCache::begin_wait(WriteBackId id, std::unique_ptr<Wait<WriteBackProgress>> wait) {
  asio::dispatch(state_->strand, [s = state_.get(), id, w = std::move(wait)]() mutable { s->await_job(id, std::move(w)); });
}

void AsyncCache::begin_checkpoint(Duration budget, std::unique_ptr<Wait<CheckpointReport>> wait) {
  asio::dispatch(state_->strand,
                 [s = state_.get(), budget, w = std::move(wait)]() mutable { s->begin_checkpoint(budget, std::move(w)); });
}

void AsyncCache::begin_stop(TimePoint until, std::unique_ptr<Wait<WorkLeft>> wait) {
  asio::dispatch(state_->strand,
                 [s = state_.get(), until, w = std::move(wait)]() mutable { s->begin_stop(until, std::move(w)); });
}

// ---- the strand

AsyncCache::State::State(const asio::any_io_executor& executor, Cache& cache)
    : strand{asio::make_strand(executor)}, cache_{cache}, wake_{strand, cache.wake_fd()}, timer_{strand} {
  wait_for_wake();
}

AsyncCache::State::~State() {
  wake_.release();  // the descriptor belongs to the cache
  take_returned();  // leases that ended after the stop
  stop_if_alive(leases_.size(), "AsyncCache");
}

void AsyncCache::State::give_back(std::unique_ptr<ReturnedLease> lease) noexcept {
  returned_.push(std::move(lease));
  cache_.wake();
}

void AsyncCache::State::begin_acquire(Waiting waiting) {
  if (stop_begun_) return Wait<Grant>::fail(std::move(waiting.wait), Errc::stopped);
  waiting_.push_back(std::move(waiting));
  turn();
}

void AsyncCache::State::cancel_acquire(std::uint64_t number) {
  std::unique_ptr<Wait<Grant>> wait;
  const auto waiting = std::ranges::find(waiting_, number, &Waiting::number);
  const auto pending = std::ranges::find_if(pending_, [&](const auto& entry) { return entry.second.number == number; });
  if (waiting != waiting_.end()) {
    wait = std::move(waiting->wait);
    waiting_.erase(waiting);
  } else if (pending != pending_.end()) {
    wait = std::move(pending->second.wait);
    give_up(pending->first);
    pending_.erase(pending);
  } else {
    return;  // it has already completed
  }
  Wait<Grant>::fail(std::move(wait), asio::error::operation_aborted);
  turn();  // the next requests may fit now
}

void AsyncCache::State::give_up(RequestId id) {
  Lease lease = std::move(leases_.at(id));
  leases_.erase(id);
  lease.reset();
}

/// Returns false if the request must still wait for slots.
bool AsyncCache::State::try_acquire(Waiting& waiting) {
  Result<Lease> lease = cache_.acquire(waiting.request);
  if (!lease) {
    if (lease.error() == Errc::no_room) return false;
    Wait<Grant>::complete(std::move(waiting.wait), lease.error(), {});
    return true;
  }
  const RequestId id = waiting.request.id;
  const bool ready = cache_.state(*lease) == RequestState::ready;
  leases_.emplace(id, std::move(*lease));
  if (ready) {
    grant(id, std::move(waiting.wait));
  } else {
    pending_.emplace(id, std::move(waiting));
  }
  return true;
}

void AsyncCache::State::grant(RequestId id, std::unique_ptr<Wait<Grant>> wait, std::uint32_t layers) {
  const Lease& lease = leases_.at(id);
  Grant granted;
  granted.lease = Lease{*this, id};
  const auto table = cache_.block_table(lease).value();
  const auto sources = cache_.hit_sources(lease).value();
  granted.table.assign(table.begin(), table.end());
  granted.hit_sources.assign(sources.begin(), sources.end());
  granted.stats = cache_.request_stats(lease).value();
  granted.seconds_waited = cache_.seconds_waited(lease);
  granted.layers = layers;
  Wait<Grant>::complete(std::move(wait), {}, std::move(granted));
}

/// Admits the requests that wait for slots, in order. The first one that does not fit blocks the others, so that no request
/// starves.
void AsyncCache::State::admit() {
  const TimePoint now = std::chrono::steady_clock::now();
  while (!waiting_.empty()) {
    Waiting& first = waiting_.front();
    if (stop_begun_ || first.request.deadline <= now) {
      const Errc error = stop_begun_ ? Errc::stopped : Errc::deadline_exceeded;
      Wait<Grant>::complete(std::move(first.wait), error, {});
    } else if (!try_acquire(first)) {
      return;
    }
    waiting_.pop_front();
  }
}

void AsyncCache::State::take_returned() {
  cache_.state_->note_thread();
  returned_.take([this](const std::unique_ptr<ReturnedLease>& returned) {
    const auto found = leases_.find(returned->id);
    TERRACE_CHECK(found != leases_.end());
    Lease lease = std::move(found->second);
    leases_.erase(found);
    if (const auto loading = loading_.find(returned->id); loading != loading_.end()) {
      loading->second.error = Errc::unknown_request;
      end_layers_waits(loading->second);
      loading_.erase(loading);
    }
    if (returned->last_use) lease.used_until(*returned->last_use);
    lease.reset();
  });
}

/// Handles everything that may have changed. Called after each operation, wake-up and deadline.
void AsyncCache::State::turn() {
  take_returned();
  for (const RequestEvent& event : cache_.poll()) on_event(event);
  admit();
  cache_.end_step();
  tell_ended_jobs();
  tell_ended_changes();
  finish_stop();
  wait_for_deadline();
}

void AsyncCache::State::on_event(const RequestEvent& event) {
  const std::uint32_t layers = event.ends_wait() ? Grant::all_layers : event.layers;
  if (const auto found = loading_.find(event.id); found != loading_.end()) {
    Loading& loading = found->second;
    loading.error = event.error;
    if (!event.error) loading.layers = layers;
    end_layers_waits(loading);
    if (event.ends_wait() && !event.error) loading_.erase(found);
    return;
  }
  const auto found = pending_.find(event.id);
  TERRACE_CHECK(found != pending_.end());
  if (event.error == Errc::no_room) {
    // Blocks that it needs have been evicted, or other requests have taken the slots while it looked up the shared store. It
    // waits again, as the first in the queue.
    waiting_.push_front(std::move(found->second));
    pending_.erase(found);
    return give_up(event.id);
  }
  auto wait = std::move(found->second.wait);
  pending_.erase(found);
  if (event.error) {
    give_up(event.id);
    Wait<Grant>::complete(std::move(wait), event.error, {});
    return;
  }
  if (!event.ends_wait()) loading_[event.id].layers = layers;
  grant(event.id, std::move(wait), layers);
}

/// Completes the waits for layers that have arrived, and all waits if the request has failed.
void AsyncCache::State::end_layers_waits(Loading& loading) {
  std::erase_if(loading.waits, [&](LayersWait& each) {
    if (!loading.error && loading.layers < each.wanted) return false;
    Wait<std::uint32_t>::complete(std::move(each.wait), loading.error, loading.layers);
    return true;
  });
}

void AsyncCache::State::begin_layers(RequestId id, LayersWait wait) {
  take_returned();
  if (const auto loading = loading_.find(id); loading != loading_.end()) {
    loading->second.waits.push_back(std::move(wait));
    return end_layers_waits(loading->second);
  }
  const bool known = leases_.contains(id);  // granted: not by layer, or ready since then
  Wait<std::uint32_t>::complete(std::move(wait.wait), known ? ErrorCode{} : Errc::unknown_request, known ? Grant::all_layers : 0);
}

void AsyncCache::State::commit(RequestId id, std::span<const BlockKey> keys, Fence written, std::unique_ptr<Wait<Commit>> wait) {
  const auto lease = leases_.find(id);
  if (lease == leases_.end()) return Wait<Commit>::fail(std::move(wait), Errc::unknown_request);
  const auto duplicates = cache_.commit(lease->second, keys, written);
  Commit commit;
  if (duplicates) {
    commit.units = *cache_.committed_units(lease->second);
    commit.duplicates.assign(duplicates->begin(), duplicates->end());
  }
  cache_.end_step();
  Wait<Commit>::complete(std::move(wait), duplicates ? ErrorCode{} : duplicates.error(), std::move(commit));
  wait_for_deadline();
}

void AsyncCache::State::extend(RequestId id, HashUnits units, std::unique_ptr<Wait<std::vector<SlotId>>> wait) {
  using Table = std::vector<SlotId>;
  const auto lease = leases_.find(id);
  if (lease == leases_.end()) return Wait<Table>::complete(std::move(wait), Errc::unknown_request, {});
  const Result<void> extended = cache_.extend(lease->second, units);
  Table table;
  if (extended) {
    const auto slots = cache_.block_table(lease->second).value();
    table.assign(slots.begin(), slots.end());
  }
  cache_.end_step();
  Wait<Table>::complete(std::move(wait), extended ? ErrorCode{} : extended.error(), std::move(table));
}

void AsyncCache::State::call(std::unique_ptr<Call> function) {
  if (stop_begun_) return function->fail(Errc::stopped);
  take_returned();
  try {
    const Cache::Visit visit{cache_};
    function->run(cache_);
  } catch (...) {
    cache_.wake();  // the wake-up leads to a turn
    throw;
  }
  turn();
}

void AsyncCache::State::begin_clear(const ClearOptions& options, std::unique_ptr<Wait<>> wait) {
  if (stop_begun_) return Wait<>::fail(std::move(wait), Errc::stopped);
  take_returned();
  cache_.clear(options);
  const auto end = [this, waits = options.wait]() -> std::optional<ErrorCode> {
    if (waits && cache_.status() == CacheStatus::clearing) return std::nullopt;
    return ErrorCode{};
  };
  change_waits_.push_back({end, std::move(wait)});
  turn();
}

void AsyncCache::State::begin_resize(Tier tier, Blocks blocks, PoolId pool, std::unique_ptr<Wait<>> wait) {
  if (stop_begun_) return Wait<>::fail(std::move(wait), Errc::stopped);
  take_returned();
  const Result<void> resized = cache_.resize(tier, blocks, pool);
  if (!resized) return Wait<>::fail(std::move(wait), resized.error());
  const auto end = [this, tier, pool, blocks]() -> std::optional<ErrorCode> {
    if (tier == Tier::storage) return ErrorCode{};
    if (cache_.retiring(tier, pool) > 0) return std::nullopt;
    if (tier == Tier::device) return ErrorCode{};
    const HostMemory memory = cache_.host_memory(pool);
    if (memory.coming > 0) return std::nullopt;
    return memory.wanted == blocks.value() && memory.warm() ? ErrorCode{} : ErrorCode{Errc::no_room};
  };
  change_waits_.push_back({end, std::move(wait)});
  turn();
}

void AsyncCache::State::tell_ended_changes() {
  std::erase_if(change_waits_, [](ChangeWait& change) {
    const std::optional<ErrorCode> ended = change.end();
    if (ended) Wait<>::complete(std::move(change.wait), *ended);
    return ended.has_value();
  });
}

void AsyncCache::State::await_job(WriteBackId id, std::unique_ptr<Wait<WriteBackProgress>> wait) {
  if (!cache_.write_back(id)) return Wait<WriteBackProgress>::fail(std::move(wait), Errc::not_found);
  job_waits_.push_back({id, std::move(wait), nullptr});
  tell_ended_jobs();
}

void AsyncCache::State::begin_checkpoint(Duration budget, std::unique_ptr<Wait<CheckpointReport>> wait) {
  using Checkpoint = Wait<CheckpointReport>;
  if (stop_begun_) return Checkpoint::fail(std::move(wait), Errc::stopped);
  const Result<WriteBackId> job = cache_.start_checkpoint(budget);
  if (!job) return Checkpoint::fail(std::move(wait), job.error());
  job_waits_.push_back({*job, nullptr, std::move(wait)});
  turn();
}

void AsyncCache::State::tell_ended(JobWait wait, const std::optional<WriteBackProgress>& progress) {
  if (wait.checkpoint) {
    if (!progress) return Wait<CheckpointReport>::fail(std::move(wait.checkpoint), Errc::not_found);
    return Wait<CheckpointReport>::complete(std::move(wait.checkpoint), {}, {*progress, cache_.durability()});
  }
  // The job ended so long ago that its record was dropped.
  if (!progress) return Wait<WriteBackProgress>::fail(std::move(wait.progress), Errc::not_found);
  Wait<WriteBackProgress>::complete(std::move(wait.progress), {}, *progress);
}

void AsyncCache::State::tell_ended_jobs() {
  for (std::size_t i = 0; i < job_waits_.size();) {
    const auto progress = cache_.write_back(job_waits_[i].id);
    if (progress && !progress->ended()) {
      ++i;
      continue;
    }
    JobWait ended = std::move(job_waits_[i]);
    job_waits_.erase(job_waits_.begin() + static_cast<std::ptrdiff_t>(i));
    tell_ended(std::move(ended), progress);
  }
}

void AsyncCache::State::begin_stop(TimePoint until, std::unique_ptr<Wait<WorkLeft>> wait) {
  if (resting_ && stopping_.empty()) {  // an earlier stop has completed, with work left
    resting_ = false;
    wait_for_wake();
  }
  stop_begun_ = true;
  stop_until_ = std::min(stop_until_, until);
  stopping_.push_back(std::move(wait));
  cache_.prepare_drain();
  turn();
}

void AsyncCache::State::finish_stop() {
  if (stopping_.empty()) return;
  if (!resting_) {
    const bool late = stop_until_ <= std::chrono::steady_clock::now();
    if (late) end_waits();
    if (!late && !cache_.work_left().none()) return;
    // Nothing needs to wake this object any more, so the executor may run out of work.
    resting_ = true;
    wake_.cancel();
    timer_.expires_at({});  // cancels its wait, too
  }
  // A completed stop may destroy this object at once, on another thread. So complete it only when no handler will run any more,
  // and this turn has ended.
  if (handlers_ > 0) return;
  stop_until_ = never;
  asio::post(strand, [waits = std::exchange(stopping_, {}), left = cache_.work_left()]() mutable {
    for (auto& wait : waits) Wait<WorkLeft>::complete(std::move(wait), {}, left);
  });
}

/// Fails the requests that wait for their blocks, the waits for layers, and the waits for a clear or a resize. Requests that
/// waited for slots have failed before.
void AsyncCache::State::end_waits() {
  for (ChangeWait& change : std::exchange(change_waits_, {})) Wait<>::fail(std::move(change.wait), Errc::stopped);
  for (auto& [id, waiting] : std::exchange(pending_, {})) {
    give_up(id);
    Wait<Grant>::fail(std::move(waiting.wait), Errc::stopped);
  }
  for (auto& [id, loading] : loading_) {
    loading.error = Errc::stopped;
    end_layers_waits(loading);
  }
}

void AsyncCache::State::wait_for_wake() {
  ++handlers_;
  wake_.async_wait(asio::posix::stream_descriptor::wait_read, [this](const ErrorCode& error) {
    --handlers_;
    if (resting_) return finish_stop();
    if (error) return;
    turn();
    if (!resting_) wait_for_wake();
  });
}

void AsyncCache::State::wait_for_deadline() {
  if (resting_) return;
  TimePoint deadline = std::min(cache_.next_deadline(), stop_until_);
  if (!waiting_.empty()) deadline = std::min(deadline, waiting_.front().request.deadline);
  if (deadline == never || deadline == timer_.expiry()) return;
  ++handlers_;
  timer_.expires_at(deadline);
  timer_.async_wait([this](const ErrorCode& error) {
    --handlers_;
    if (resting_) return finish_stop();
    if (!error) turn();
  });
}

}  // namespace terrace
