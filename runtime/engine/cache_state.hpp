#pragma once

#include "base/check.hpp"
#include "runtime/cache/control/cache_manager.hpp"
#include "runtime/cache/measure/load_costs.hpp"
#include "runtime/cache/measure/wait_times.hpp"
#include "runtime/engine/action_executor.hpp"
#include "runtime/engine/cache_parts.hpp"
#include "runtime/engine/host_chunks.hpp"
#include "runtime/engine/returned_leases.hpp"
#include "runtime/engine/shared_executor.hpp"
#include "terrace/cache.hpp"

#include <boost/unordered/unordered_flat_map.hpp>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <thread>
#include <utility>
#include <vector>

namespace terrace {

/// A CacheManager, together with everything that carries out its decisions. Cache and OffloadCache are made of its calls.
/// Threads: the thread of the cache.
struct CacheState final : LeaseHome, SpanSink {
  CacheState(const ManagerConfig& config, const CacheParts& parts);

  /// Any thread. On another thread than the cache's, the lease ends in the cache's next call.
  void give_back(std::unique_ptr<ReturnedLease> lease) noexcept override;
  /// Ends the leases that other threads have given back.
  void take_returned() {
    if (!returned_.empty()) returned_.take([this](std::unique_ptr<ReturnedLease> lease) { end_lease(std::move(lease)); });
  }
  /// Called by acquire() and poll(): their caller's thread is the thread of the cache.
  void note_thread() noexcept { thread_.store(std::this_thread::get_id(), std::memory_order_relaxed); }
  /// Returns true if signal() or launch() has returned the point. Callers may pass wrong points, so it is checked.
  [[nodiscard]] bool given_out(Fence point) {
    if (point <= newest_point_) return true;
    if (!parts.transfers.given_out(point)) return false;
    newest_point_ = point;
    return true;
  }
  /// Makes the blocks that an earlier process stored available as hits.
  void restore_stored();
  /// Collects ended work, makes decisions and starts new work. The events stay with the manager. Costs little if there is nothing
  /// to do.
  void collect();
  /// The same for the idle service, if the engine does not call. It stops at `until`; the next call collects the rest. It wakes
  /// the engine only for events. Returns true if there is more to do at once.
  bool serve(TimePoint until);
  /// Collects while the condition is true, at most until `until`, and sleeps between.
  void collect_while(const std::function<bool()>& condition, TimePoint until = never);
  /// The same, and resumes transfers whenever they are paused.
  void drain_while(const std::function<bool()>& condition, TimePoint until = never);
  void resume_transfers() {
    executor.resume();
    end_call();
  }
  void end_quarantines();
  void note_end(const RequestEvent& event);
  /// Makes the stream wait for the leading layers of these transfers. Fails as TransferPort::await(), but with not_ready for a
  /// transfer that the port has not got yet, because transfers are paused.
  [[nodiscard]] Result<void> await(std::span<const TransferId> transfers, std::uint32_t layers, StreamRef stream,
                                   std::uint32_t rank);
  /// Called before every operation that may free slots, because a waiting request may then start a load.
  void note_time();
  void note_ready(RequestId id, TimePoint now);
  void note_acquired(const AcquireRequest& request, bool ready);
  [[nodiscard]] bool offload_is_watched() const { return std::ranges::any_of(parts.watches, &CacheWatch::wants_offload_asked); }
  /// Returns true if note_offload_computed() has something to do.
  [[nodiscard]] bool misses_are_noted() { return manager.misses().on() || offload_is_watched(); }
  /// Reports the keys for which `asked(index)` is true to the watches.
  template <class Asked>
  void note_offload_asked(PoolId pool, std::span<const BlockKey> keys, Asked asked) {
    offload_asked_.clear();
    for (std::size_t i = 0; i < keys.size(); ++i) {
      if (asked(i)) offload_asked_.push_back(keys[i]);
    }
    if (offload_asked_.empty()) return;
    for (CacheWatch* const watch : parts.watches) {
      if (watch->wants_offload_asked()) watch->on_offload_asked(pool, offload_asked_);
    }
  }
  /// The same for keys that the engine has computed because they were not cached.
  template <class Missed>
  void note_offload_computed(PoolId pool, std::span<const BlockKey> keys, Missed missed) {
    note_offload_asked(pool, keys, missed);
    if (!manager.misses().on()) return;
    for (const BlockKey& key : offload_asked_) manager.misses().missed(key, 1);
  }
  /// Begins a load or a store of an OffloadCache.
  [[nodiscard]] Result<void> begin_job(const OffloadOrder& order, Direction direction);
  /// Handles the events of an OffloadCache: some of them end a job.
  void end_jobs(std::span<const OffloadEvent> events);
  /// Passes the span to all watches that want spans.
  void on_span(const TraceSpan& span) override;
  void clear(const ClearOptions& options);
  /// Fails as Cache::resume.
  [[nodiscard]] Result<void> resume();
  /// Fails as HostChunks::resize.
  [[nodiscard]] Result<void> resize_host(std::uint32_t blocks, PoolId pool, HostChunks::Asks asks = HostChunks::Asks::yes);
  /// Called at the end of each call that may have left work or events, except poll(), which takes the events: lets the manager
  /// settle, and carries out its decisions. The transfers start at once.
  void end_call();
  /// Makes a call that may leave work or events: returns the result of `call(manager)`.
  template <class Call>
  auto act(const Call& call) {
    auto result = call(manager);
    end_call();
    return result;
  }
  /// The same for a call that may free slots.
  template <class Call>
  auto change(const Call& call) {
    note_time();
    return act(call);
  }
  /// The same for calls of a step: the transfers start at the end of the step.
  void end_call_of_step() {
    manager.settle();
    carry_out();
  }
  /// The same as change() for a call of a step.
  template <class Call>
  auto change_in_step(const Call& call) {
    note_time();
    auto result = call(manager);
    end_call_of_step();
    return result;
  }
  /// The same for a call that has settled by itself. Gives the manager's orders to the executors, and wakes the engine if there
  /// are events.
  void carry_out();
  /// Gives the shared store its work. acquire() and other calls of a step do not call this, because it may make a system call.
  void carry_out_shared();
  /// Called before acquire() and in each poll: checks whether the shared store can be used now.
  void note_shared() {
    if (shared.on()) manager.set_shared_usable(shared.store().usable());
  }
  /// There is more to do in the next poll.
  void wake() noexcept {
    more_ = true;
    looks_ = true;
    wake_engine();
  }
  void wake_engine() noexcept {
    if (parts.waker != nullptr) parts.waker->wake();
  }
  [[nodiscard]] TimePoint next_deadline() const;
  /// Number of transfers, and of reads and writes of storage and of the shared store, that are under way.
  [[nodiscard]] std::uint64_t transfers_under_way() const {
    return executor.transfers_under_way() + executor.reads_under_way() + executor.writes_under_way() +
           shared.reads().speed.under_way() + shared.writes().speed.under_way();
  }

  /// Measures one call in sixteen, from its construction to its destruction, or each call while a watch wants spans.
  class CallTimer {
   public:
    CallTimer(CacheState& state, TraceSpan::Kind kind)
        : state_{state}, kind_{kind}, counts_{++state.calls_ % measured_one_in == 0} {
      TERRACE_CHECK(state.parts.turns == nullptr || state.parts.turns->held());
      if (counts_ || state.tracing_) begun_ = state.parts.clock.now();
    }
    ~CallTimer() {
      if (begun_ == never) return;
      const TimePoint now = state_.parts.clock.now();
      if (counts_) state_.time_of(kind_).add(now - begun_);
      if (state_.tracing_) state_.on_span({.kind = kind_, .begin = begun_, .end = now});
    }
    CallTimer(const CallTimer&) = delete;
    CallTimer& operator=(const CallTimer&) = delete;

   private:
    static constexpr unsigned measured_one_in = 16;
    CacheState& state_;
    TraceSpan::Kind kind_;
    bool counts_;
    TimePoint begun_ = never;
  };

  const CacheParts parts;
  CacheManager manager;
  ActionExecutor executor;
  SharedExecutor shared;
  std::vector<HostChunks> host_chunks;  ///< by PoolId
  std::atomic<CacheStatus> status{CacheStatus::normal};
  bool visited = false;                ///< there is a Visit
  bool quarantine_in_the_way = false;  ///< during a quarantine, a request found too few slots
  WaitTimes waits;
  CallTimes call_times;
  PrefillSpeed prefill;
  std::vector<RequestEvent> events;  ///< the result of the last poll()
  std::vector<std::unique_ptr<ReturnedLease>> spare_leases;

 private:
  [[nodiscard]] bool nothing_to_do();
  [[nodiscard]] bool rests();
  void collect_until(TimePoint until);
  void end_lease(std::unique_ptr<ReturnedLease> lease) noexcept;
  void give_orders();
  void release_host();
  void on_store(const StoreEvent& event, PoolId pool);
  void on_shared(const SharedExecutor::Ended& ended);
  void tell_load_costs();
  void poison_freed(PoolId pool);

  /// The times of a request that was accepted while a watch wanted spans.
  struct Life {
    TimePoint acquired{};
    TimePoint waited = never;  ///< when it was ready or had failed
    std::uint32_t blocks = 0;
  };

  [[nodiscard]] TimeTotal& time_of(TraceSpan::Kind call);
  void ask_for_spans();
  void end_wait_span(RequestId id, TimePoint now, bool failed);
  void end_hold_span(RequestId id);

  bool releases_host_ = false;                          ///< the host memory is given back when the clear is complete
  std::vector<std::optional<std::uint32_t>> released_;  ///< by PoolId: blocks of a host tier whose memory was given back
  bool more_ = false;                                   ///< wake() was called in this slice
  bool looks_ = true;                                   ///< the next poll has something to do
  bool changed_ = true;                  ///< since rests() was last true, a call or a poll may have left something to do
  TimePoint rests_until_{};              ///< before this time no poll has anything to do, unless one of the two above is true
  std::atomic<std::thread::id> thread_;  ///< the thread of the cache
  ReturnedLeases returned_;              ///< any thread
  Fence newest_point_;                   ///< the newest point that is known to be given out
  unsigned calls_ = 0;
  bool tracing_ = false;                                                                 ///< a watch wants spans
  boost::unordered_flat_map<RequestId, Life, std::hash<RequestId>> lives_;               ///< empty if no watch wants spans
  boost::unordered_flat_map<OffloadJobId, TraceSpan, std::hash<OffloadJobId>> jobs_;     ///< the same for jobs
  boost::unordered_flat_map<OffloadJobId, Source, std::hash<OffloadJobId>> loads_from_;  ///< the farthest source of each load
  std::vector<PoolId> pool_ids_;
  std::vector<BlockKey> offload_asked_;  ///< scratch
  std::vector<SlotId> freed_[2];         ///< scratch
};

}  // namespace terrace
