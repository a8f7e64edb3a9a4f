#include "terrace/async_cache.hpp"

#include "base/check.hpp"
#include "runtime/engine/cache_state.hpp"
#include "runtime/engine/returned_leases.hpp"

#include <boost/asio/error.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>

#include <algorithm>
#include <chrono>
#include <deque>
#include <optional>
#include <stdexcept>
#include <unordered_map>
#include <utility>

namespace terrace {

using detail::complete;
using detail::fail;

/// The queue of requests and the loop. All members run on the strand, unless their comment says otherwise.
struct AsyncCache::State final : LeaseHome {
  struct Waiting {
    std::uint64_t number = 0;  ///< number of this call, because a RequestId may be used again
    AcquireRequest request;
    Wait<Grant> wait;
  };
  struct LayersWait {
    std::uint32_t wanted = 0;
    Wait<std::uint32_t> wait;
  };
  /// A request that is granted by layer and not ready yet, or that has failed since.
  struct Loading {
    std::uint32_t layers = 0;
    ErrorCode error;
    std::vector<LayersWait> waits;
  };
  struct JobWait {  ///< either `progress` or `checkpoint` is set
    WriteBackId id;
    Wait<WriteBackProgress> progress;
    Wait<CheckpointReport> checkpoint;
  };
  /// A clear or a resize that has begun.
  struct ChangeWait {
    std::function<std::optional<ErrorCode>()> end;  ///< returns nothing while the change continues
    Wait<> wait;
  };

  State(const asio::any_io_executor& strand, Cache& served) : cache{served}, wake_up{strand, served.wake_fd()}, timer{strand} {
    wait_for_wake();
  }

  ~State() override {
    wake_up.release();  // the descriptor belongs to the cache
    take_returned();    // leases that ended after the stop
    stop_if_alive(leases.size(), "AsyncCache");
  }

  State(const State&) = delete;
  State& operator=(const State&) = delete;

  /// Any thread.
  void give_back(std::unique_ptr<ReturnedLease> lease) noexcept override {
    returned.push(std::move(lease));
    cache.wake();
  }

  void give_up(RequestId id) {
    Lease lease = std::move(leases.at(id));
    leases.erase(id);
    lease.reset();
  }

  /// Returns false if the request must still wait for slots.
  [[nodiscard]] bool try_acquire(Waiting& waiting) {
    Result<Lease> lease = cache.acquire(waiting.request);
    if (!lease) {
      if (lease.error() == Errc::no_room) return false;
      fail(std::move(waiting.wait), lease.error());
      return true;
    }
    const RequestId id = waiting.request.id;
    const bool ready = cache.state(*lease) == RequestState::ready;
    leases.emplace(id, std::move(*lease));
    if (ready) {
      grant(id, std::move(waiting.wait));
    } else {
      accepted.emplace(id, std::move(waiting));
    }
    return true;
  }

  void grant(RequestId id, Wait<Grant> wait, std::uint32_t layers = Grant::all_layers) {
    const Lease& lease = leases.at(id);
    Grant granted;
    granted.lease = Lease{*this, id};
    const auto table = cache.block_table(lease).value();
    const auto sources = cache.hit_sources(lease).value();
    granted.table.assign(table.begin(), table.end());
    granted.hit_sources.assign(sources.begin(), sources.end());
    granted.stats = cache.request_stats(lease).value();
    granted.seconds_waited = cache.seconds_waited(lease);
    granted.layers = layers;
    complete(std::move(wait), {}, std::move(granted));
  }

  /// Admits the requests that wait for slots, in order. The first one that does not fit blocks the others, so that no request
  /// starves.
  void admit() {
    const TimePoint now = std::chrono::steady_clock::now();
    while (!queue.empty()) {
      Waiting& first = queue.front();
      if (stop_begun || first.request.deadline <= now) {
        const Errc error = stop_begun ? Errc::stopped : Errc::deadline_exceeded;
        fail(std::move(first.wait), error);
      } else if (!try_acquire(first)) {
        return;
      }
      queue.pop_front();
    }
  }

  void take_returned() {
    cache.internals().note_thread();
    returned.take([this](const std::unique_ptr<ReturnedLease>& ended) {
      const auto found = leases.find(ended->id);
      TERRACE_CHECK(found != leases.end());
      Lease lease = std::move(found->second);
      leases.erase(found);
      if (const auto loading = loads.find(ended->id); loading != loads.end()) {
        loading->second.error = Errc::unknown_request;
        end_layers_waits(loading->second);
        loads.erase(loading);
      }
      if (ended->last_use) lease.used_until(*ended->last_use);
      if (ended->output_tokens) lease.set_output_tokens(*ended->output_tokens);
      if (ended->next_use) lease.expect_use(*ended->next_use);
      lease.reset();
    });
  }

  /// Handles everything that may have changed. Called after each operation, wake-up and deadline.
  void turn() {
    take_returned();
    for (const RequestEvent& event : cache.poll()) on_event(event);
    admit();
    cache.end_step();
    tell_ended_jobs();
    tell_ended_changes();
    finish_stop();
    wait_for_deadline();
  }

  void on_event(const RequestEvent& event) {
    const std::uint32_t layers = event.ends_wait() ? Grant::all_layers : event.layers;
    if (const auto found = loads.find(event.id); found != loads.end()) {
      Loading& loading = found->second;
      loading.error = event.error;
      if (!event.error) loading.layers = layers;
      end_layers_waits(loading);
      if (event.ends_wait() && !event.error) loads.erase(found);
      return;
    }
    const auto found = accepted.find(event.id);
    TERRACE_CHECK(found != accepted.end());
    if (event.error == Errc::no_room) {
      // Blocks that it needs have been evicted, or other requests have taken the slots while it looked up the shared store. It
      // waits again, as the first in the queue.
      queue.push_front(std::move(found->second));
      accepted.erase(found);
      return give_up(event.id);
    }
    auto wait = std::move(found->second.wait);
    accepted.erase(found);
    if (event.error) {
      give_up(event.id);
      return fail(std::move(wait), event.error);
    }
    if (!event.ends_wait()) loads[event.id].layers = layers;
    grant(event.id, std::move(wait), layers);
  }

  /// Completes the waits for layers that have arrived, and all waits if the request has failed.
  static void end_layers_waits(Loading& loading) {
    std::erase_if(loading.waits, [&](LayersWait& each) {
      if (!loading.error && loading.layers < each.wanted) return false;
      complete(std::move(each.wait), loading.error, loading.layers);
      return true;
    });
  }

  void tell_ended_changes() {
    std::erase_if(change_waits, [](ChangeWait& change) {
      const std::optional<ErrorCode> ended = change.end();
      if (ended) complete(std::move(change.wait), *ended);
      return ended.has_value();
    });
  }

  void tell_ended_jobs() {
    std::erase_if(job_waits, [this](JobWait& job) {
      const std::optional<WriteBackProgress> progress = cache.write_back(job.id);
      if (progress && !progress->ended()) return false;
      // Nothing: the job ended so long ago that its record was dropped.
      const ErrorCode error = progress ? ErrorCode{} : Errc::not_found;
      if (job.progress) {
        complete(std::move(job.progress), error, progress.value_or(WriteBackProgress{}));
      } else {
        complete(std::move(job.checkpoint), error,
                 progress ? CheckpointReport{*progress, cache.durability()} : CheckpointReport{});
      }
      return true;
    });
  }

  void finish_stop() {
    if (stops.empty()) return;
    if (!resting) {
      const bool late = stop_until <= std::chrono::steady_clock::now();
      if (late) end_waits();
      if (!late && !cache.work_left().none()) return;
      // Nothing needs to wake this object any more, so the executor may run out of work.
      resting = true;
      wake_up.cancel();
      timer.expires_at({});  // cancels its wait, too
    }
    // A completed stop may destroy this object at once, on another thread. So complete it only when no handler will run any more,
    // and this turn has ended.
    if (handlers > 0) return;
    stop_until = never;
    asio::post(wake_up.get_executor(), [waits = std::exchange(stops, {}), left = cache.work_left()]() mutable {
      for (auto& wait : waits) complete(std::move(wait), {}, left);
    });
  }

  /// Fails the requests that wait for their blocks, the waits for layers, and the waits for a clear or a resize. Requests that
  /// waited for slots have failed before.
  void end_waits() {
    for (ChangeWait& change : std::exchange(change_waits, {})) fail(std::move(change.wait), Errc::stopped);
    for (auto& [id, waiting] : std::exchange(accepted, {})) {
      give_up(id);
      fail(std::move(waiting.wait), Errc::stopped);
    }
    for (auto& [id, loading] : loads) {
      loading.error = Errc::stopped;
      end_layers_waits(loading);
    }
  }

  void wait_for_wake() {
    ++handlers;
    wake_up.async_wait(asio::posix::stream_descriptor::wait_read, [this](const ErrorCode& error) {
      --handlers;
      if (resting) return finish_stop();
      if (error) return;
      turn();
      if (!resting) wait_for_wake();
    });
  }

  void wait_for_deadline() {
    if (resting) return;
    TimePoint deadline = std::min(cache.next_deadline(), stop_until);
    if (!queue.empty()) deadline = std::min(deadline, queue.front().request.deadline);
    if (deadline == never || deadline == timer.expiry()) return;
    ++handlers;
    timer.expires_at(deadline);
    timer.async_wait([this](const ErrorCode& error) {
      --handlers;
      if (resting) return finish_stop();
      if (!error) turn();
    });
  }

  Cache& cache;
  asio::posix::stream_descriptor wake_up;
  asio::steady_timer timer;
  std::unordered_map<RequestId, Lease> leases;      ///< the leases of the cache; callers hold leases on these
  std::unordered_map<RequestId, Waiting> accepted;  ///< accepted, not granted yet
  std::unordered_map<RequestId, Loading> loads;     ///< granted by layer; a failed one stays until its lease ends
  std::deque<Waiting> queue;                        ///< acquire() has refused them with no_room; in order
  std::vector<JobWait> job_waits;
  std::vector<ChangeWait> change_waits;
  std::vector<Wait<WorkLeft>> stops;
  TimePoint stop_until = never;
  bool stop_begun = false;
  bool resting = false;     ///< a stop has completed, or completes when `handlers` is 0: nothing waits for a wake-up or a time
  unsigned handlers = 0;    ///< handlers for wake-ups and deadlines that have not run yet
  ReturnedLeases returned;  ///< any thread
};

AsyncCache::AsyncCache(asio::any_io_executor executor, Cache& cache)
    : executor_{std::move(executor)}, strand_{asio::make_strand(executor_)}, state_{std::make_unique<State>(strand_, cache)} {
  if (cache.has_idle_service()) {
    throw std::invalid_argument{"an AsyncCache polls by itself: make its CacheSystem without an idle service"};
  }
}

AsyncCache::~AsyncCache() = default;

CacheStatus AsyncCache::status() const noexcept { return state_->cache.status(); }

// ---- the operations, on the strand

void AsyncCache::begin_acquire(Wait<Grant> wait, std::uint64_t number, AcquireRequest request) {
  if (state_->stop_begun) return fail(std::move(wait), Errc::stopped);
  state_->queue.push_back({number, request, std::move(wait)});
  state_->turn();
}

/// Cancels the request if it has not been granted.
void AsyncCache::end_acquire(std::uint64_t number) {
  State& s = *state_;
  Wait<Grant> wait;
  const auto waiting = std::ranges::find(s.queue, number, &State::Waiting::number);
  const auto pending = std::ranges::find_if(s.accepted, [&](const auto& entry) { return entry.second.number == number; });
  if (waiting != s.queue.end()) {
    wait = std::move(waiting->wait);
    s.queue.erase(waiting);
  } else if (pending != s.accepted.end()) {
    wait = std::move(pending->second.wait);
    s.give_up(pending->first);
    s.accepted.erase(pending);
  } else {
    return;  // it has already completed
  }
  fail(std::move(wait), asio::error::operation_aborted);
  s.turn();  // the next requests may fit now
}

void AsyncCache::begin_layers(Wait<std::uint32_t> wait, RequestId id, std::uint32_t wanted) {
  State& s = *state_;
  s.take_returned();
  if (const auto loading = s.loads.find(id); loading != s.loads.end()) {
    loading->second.waits.push_back({wanted, std::move(wait)});
    return State::end_layers_waits(loading->second);
  }
  if (!s.leases.contains(id)) return fail(std::move(wait), Errc::unknown_request);
  complete(std::move(wait), {}, Grant::all_layers);  // granted: not by layer, or ready since then
}

void AsyncCache::begin_commit(Wait<Commit> wait, RequestId id, std::span<const BlockKey> keys, Fence written) {
  State& s = *state_;
  const auto lease = s.leases.find(id);
  if (lease == s.leases.end()) return fail(std::move(wait), Errc::unknown_request);
  const auto duplicates = s.cache.commit(lease->second, keys, written);
  Commit commit;
  if (duplicates) {
    commit.units = *s.cache.committed_units(lease->second);
    commit.duplicates.assign(duplicates->begin(), duplicates->end());
  }
  s.cache.end_step();
  complete(std::move(wait), duplicates ? ErrorCode{} : duplicates.error(), std::move(commit));
  s.wait_for_deadline();
}

void AsyncCache::begin_extend(Wait<std::vector<SlotId>> wait, RequestId id, HashUnits units) {
  Cache& cache = state_->cache;
  const auto lease = state_->leases.find(id);
  if (lease == state_->leases.end()) return fail(std::move(wait), Errc::unknown_request);
  const Result<void> extended = cache.extend(lease->second, units);
  std::vector<SlotId> table;
  if (extended) {
    const auto slots = cache.block_table(lease->second).value();
    table.assign(slots.begin(), slots.end());
  }
  cache.end_step();
  complete(std::move(wait), extended ? ErrorCode{} : extended.error(), std::move(table));
}

bool AsyncCache::visit(const std::function<void(Cache&)>& function) {
  State& s = *state_;
  if (s.stop_begun) return false;
  s.take_returned();
  try {
    const Cache::Visit visit{s.cache};
    function(s.cache);
  } catch (...) {
    s.cache.wake();  // the wake-up leads to a turn
    throw;
  }
  s.turn();
  return true;
}

void AsyncCache::begin_clear(Wait<> wait, ClearOptions options) {
  State& s = *state_;
  if (s.stop_begun) return fail(std::move(wait), Errc::stopped);
  s.take_returned();
  s.cache.clear(options);
  const auto end = [&cache = s.cache, waits = options.wait]() -> std::optional<ErrorCode> {
    if (waits && cache.status() == CacheStatus::clearing) return std::nullopt;
    return ErrorCode{};
  };
  s.change_waits.push_back({end, std::move(wait)});
  s.turn();
}

void AsyncCache::begin_resize(Wait<> wait, Tier tier, Blocks blocks, PoolId pool) {
  State& s = *state_;
  if (s.stop_begun) return fail(std::move(wait), Errc::stopped);
  s.take_returned();
  const Result<void> resized = s.cache.resize(tier, blocks, pool);
  if (!resized) return fail(std::move(wait), resized.error());
  const auto end = [&cache = s.cache, tier, pool, blocks]() -> std::optional<ErrorCode> {
    if (tier == Tier::storage) return ErrorCode{};
    if (cache.retiring(tier, pool) > 0) return std::nullopt;
    if (tier == Tier::device) return ErrorCode{};
    const HostMemory memory = cache.host_memory(pool);
    if (memory.coming > 0) return std::nullopt;
    return memory.wanted == blocks.value() && memory.warm() ? ErrorCode{} : ErrorCode{Errc::no_room};
  };
  s.change_waits.push_back({end, std::move(wait)});
  s.turn();
}

void AsyncCache::begin_wait(Wait<WriteBackProgress> wait, WriteBackId id) {
  if (!state_->cache.write_back(id)) return fail(std::move(wait), Errc::not_found);
  state_->job_waits.push_back({id, std::move(wait), nullptr});
  state_->tell_ended_jobs();
}

void AsyncCache::begin_checkpoint(Wait<CheckpointReport> wait, Duration budget) {
  State& s = *state_;
  if (s.stop_begun) return fail(std::move(wait), Errc::stopped);
  const Result<WriteBackId> job = s.cache.start_checkpoint(budget);
  if (!job) return fail(std::move(wait), job.error());
  s.job_waits.push_back({*job, nullptr, std::move(wait)});
  s.turn();
}

void AsyncCache::begin_stop(Wait<WorkLeft> wait, TimePoint until) {
  State& s = *state_;
  if (s.resting && s.stops.empty()) {  // an earlier stop has completed, with work left
    s.resting = false;
    s.wait_for_wake();
  }
  s.stop_begun = true;
  s.stop_until = std::min(s.stop_until, until);
  s.stops.push_back(std::move(wait));
  s.cache.prepare_drain();
  s.turn();
}

}  // namespace terrace
