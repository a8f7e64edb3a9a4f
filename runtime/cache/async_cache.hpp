#pragma once

#include "runtime/cache/cache.hpp"
#include "runtime/cache/returned_leases.hpp"
#include "runtime/cache/wait.hpp"
#include "terrace/lease.hpp"

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/associated_cancellation_slot.hpp>
#include <boost/asio/async_result.hpp>
#include <boost/asio/cancellation_type.hpp>
#include <boost/asio/dispatch.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>

#include <atomic>
#include <concepts>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <ranges>
#include <span>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

namespace terrace {

/// The result of a granted request. A request is granted when it is ready; a request by layer, when its first layers have
/// arrived.
struct Grant {
  /// Value of `layers` when all layers have arrived.
  static constexpr std::uint32_t all_layers = Loads::all_layers;

  Lease lease;
  std::vector<SlotId> table;    ///< a slot per block of the sequence
  std::vector<Tier> hit_tiers;  ///< of the leading blocks, one per hit
  RequestStats stats;
  double seconds_waited = 0;          ///< since the request was accepted
  std::uint32_t layers = all_layers;  ///< leading layers of all its blocks that have arrived
};

/// Result of a commit.
struct Commit {
  /// Blocks of the request that are committed by now. Fewer than the keys if the commit stopped early; then call it again.
  std::uint32_t blocks = 0;
  std::vector<Duplicate> duplicates;
};

/// The cache in loop mode: a Cache on a strand of an executor, for servers with an event loop.
///
///     auto [error, grant] = co_await cache.acquire(request, asio::as_tuple(asio::use_awaitable));
///
/// Every operation takes an Asio completion token. It completes exactly once, on the executor of the token. The comment of each
/// operation begins with its completion signature. Spans that are passed to an operation must stay valid until it completes.
/// Requests that do not find enough slots wait in a queue until other requests release theirs.
///
/// Ownership: the executor belongs to the caller, and AsyncCache never runs it. Leases may end before the AsyncCache does. If a
/// lease ends before an operation begins, the operation sees it as ended.
///
/// Threads: every member can be called from any thread unless its comment says otherwise. Leases may end on any thread.
///
/// To stop it, call stop() first, and destroy the object after that has completed. After stop() was called, live requests can
/// still use layers, commit and extend; every other operation fails with Errc::stopped and does nothing, except status(),
/// wait_write_back() and a further stop().
class AsyncCache : private LeaseHome {
 public:
  /// `cache` must have a waker and outlive the AsyncCache. Nothing else may use it meanwhile.
  AsyncCache(asio::any_io_executor executor, Cache& cache);
  /// All leases must have ended, and a stop() must have completed, unless the executor never runs again.
  ~AsyncCache() override;
  AsyncCache(const AsyncCache&) = delete;
  AsyncCache& operator=(const AsyncCache&) = delete;

  /// void(ErrorCode, Grant). Completes when everything that the request needs is there. Fails as Requests::acquire
  /// does, except that it waits if there are too few slots, and with deadline_exceeded and stopped. It fails with no_room only
  /// if a load failed and there are too few slots to plan again.
  ///
  /// While the request waits, it can be cancelled by any type of cancellation. It then fails with asio::error::operation_aborted
  /// and holds nothing. A later cancellation has no effect.
  ///
  /// A request by layer completes as soon as its first layers have arrived. layers() awaits the others.
  template <class Token>
  auto acquire(AcquireRequest request, Token&& token) {
    return asio::async_initiate<Token, void(ErrorCode, Grant)>(
        [this](auto handler, AcquireRequest wanted) {
          const std::uint64_t number = ++last_acquire_;
          auto slot = asio::get_associated_cancellation_slot(handler);
          auto wait = make_wait<Grant>(std::move(handler));
          if (slot.is_connected()) {
            slot.assign([this, number](asio::cancellation_type type) {
              if (type == asio::cancellation_type::none) return;
              asio::dispatch(strand_, [this, number] { cancel_acquire(number); });
            });
          }
          asio::dispatch(strand_, [this, number, wanted, w = std::move(wait)]() mutable {
            begin_acquire({number, wanted, std::move(w)});
          });
        },
        token, request);
  }

  /// void(ErrorCode, std::uint32_t). Completes when at least `count` leading layers of the request have arrived, and returns how
  /// many have. With Grant::all_layers, completes when the request is ready. If the request fails (see RequestEvent), this fails
  /// with the same error, and the caller must end the lease. Fails with unknown_request if the lease has ended.
  template <class Token>
  auto layers(const Lease& lease, std::uint32_t count, Token&& token) {
    return asio::async_initiate<Token, void(ErrorCode, std::uint32_t)>(
        [this](auto handler, RequestId id, std::uint32_t wanted) {
          auto wait = make_wait<std::uint32_t>(std::move(handler));
          asio::dispatch(strand_, [this, id, wanted, w = std::move(wait)]() mutable {
            begin_layers(id, {wanted, std::move(w)});
          });
        },
        token, lease.id(), count);
  }

  /// void(ErrorCode, Commit). The lease must not end before it completes.
  template <class Token>
  auto commit(const Lease& lease, std::span<const BlockKey> keys, Fence written, Token&& token) {
    return asio::async_initiate<Token, void(ErrorCode, Commit)>(
        [this](auto handler, RequestId id, std::span<const BlockKey> blocks, Fence fence) {
          auto wait = make_wait<Commit>(std::move(handler));
          asio::dispatch(
              strand_, [this, id, blocks, fence, w = std::move(wait)]() mutable { do_commit(id, blocks, fence, std::move(w)); });
        },
        token, lease.id(), keys, written);
  }

  /// void(ErrorCode, std::vector<SlotId>). Returns the whole new block table. The lease must not end before it completes.
  template <class Token>
  auto extend(const Lease& lease, std::uint32_t blocks, Token&& token) {
    return asio::async_initiate<Token, void(ErrorCode, std::vector<SlotId>)>(
        [this](auto handler, RequestId id, std::uint32_t more) {
          auto wait = make_wait<std::vector<SlotId>>(std::move(handler));
          asio::dispatch(strand_, [this, id, more, w = std::move(wait)]() mutable { do_extend(id, more, std::move(w)); });
        },
        token, lease.id(), blocks);
  }

  /// void(ErrorCode), or void(ErrorCode, T). Calls `function(cache)` once, with a Cache&, and completes with what it returns: a
  /// void or Result<void> becomes void(ErrorCode), a T or Result<T> becomes void(ErrorCode, T). It is for all calls of Cache that
  /// have no operation of their own here:
  ///
  ///     const auto drop = [keys](Cache& cache) { return cache.drop(keys); };
  ///     auto [error, freed] = co_await async_cache.perform(drop, asio::as_tuple(asio::use_awaitable));
  ///     auto [stats_error, stats] = co_await async_cache.perform(&Cache::stats, asio::as_tuple(asio::use_awaitable));
  ///
  /// The function is moved into the operation. It runs on the strand, where it holds up all other operations, so it must be
  /// short. Leases that ended before are taken back first. Afterwards, requests that wait for slots get those that became free.
  ///
  /// Lifetime: the result must own its data, because the cache may change as soon as the function has returned. So a span is
  /// copied. The lease must not end before the operation completes:
  ///
  ///     const auto table = [&lease, group](Cache& cache) -> Result<std::vector<SlotId>> {
  ///       const auto slots = cache.block_table(lease, group);
  ///       if (!slots) return slots.error();
  ///       return std::vector<SlotId>(slots->begin(), slots->end());
  ///     };
  ///
  /// The function must not call acquire(), wait(), poll(), drain(), drain_until() or checkpoint() of Cache: they block, or they
  /// belong to this object, which hands out the leases and collects the events. It must not start an operation of this object
  /// either. Such a call stops the process.
  ///
  /// If the function throws, the exception leaves run() of the executor, as it does from any handler of Asio. The operation then
  /// never completes; its handler is destroyed.
  template <class Function, class Token>
  auto perform(Function&& function, Token&& token) {
    using Returned = std::invoke_result_t<std::decay_t<Function>, Cache&>;
    using Completion = decltype(values_of(std::type_identity<Returned>{}));
    return perform_as(Completion{}, std::forward<Function>(function), std::forward<Token>(token));
  }

  /// Returns at once. Can be called from any thread.
  [[nodiscard]] CacheStatus status() const noexcept { return cache_.status(); }

  /// void(ErrorCode, WriteBackProgress). Completes when the job has ended. Fails: not_found. stop() cancels the job, which
  /// completes this with the state `cancelled`.
  template <class Token>
  auto wait_write_back(WriteBackId id, Token&& token) {
    return asio::async_initiate<Token, void(ErrorCode, WriteBackProgress)>(
        [this](auto handler, WriteBackId job) {
          auto wait = make_wait<WriteBackProgress>(std::move(handler));
          asio::dispatch(strand_, [this, job, w = std::move(wait)]() mutable { await_job(job, std::move(w)); });
        },
        token, id);
  }
  /// void(ErrorCode, CheckpointReport). Writes everything that is cached to storage and flushes it, within `budget`, while the
  /// cache serves. Fails as Cache::start_write_back, and with stopped.
  template <class Token>
  auto checkpoint(Duration budget, Token&& token) {
    return asio::async_initiate<Token, void(ErrorCode, CheckpointReport)>(
        [this](auto handler, Duration within) {
          auto wait = make_wait<CheckpointReport>(std::move(handler));
          asio::dispatch(strand_, [this, within, w = std::move(wait)]() mutable { begin_checkpoint(within, std::move(w)); });
        },
        token, budget);
  }

  /// void(ErrorCode, WorkLeft). Completes when the last lease has come back and nothing is under way. It fails the requests that
  /// wait for slots with Errc::stopped, resumes transfers and cancels write-back jobs. Requests that wait for their blocks are
  /// still served.
  template <class Token>
  auto stop(Token&& token) {
    return stop(never, std::forward<Token>(token));
  }
  /// The same, but completes at `until` at the latest, with what is left then. A disk or a device that does not answer therefore
  /// cannot hold it up. At that time, requests that wait for their blocks or layers fail with Errc::stopped. If the result has
  /// leases, end them before this object is destroyed. If it has other work, only CacheSystem::close() does not wait for it.
  /// Several calls of stop() complete together, at the earliest `until` of them.
  template <class Token>
  auto stop(TimePoint until, Token&& token) {
    return asio::async_initiate<Token, void(ErrorCode, WorkLeft)>(
        [this](auto handler, TimePoint deadline) {
          auto wait = make_wait<WorkLeft>(std::move(handler));
          asio::dispatch(strand_, [this, deadline, w = std::move(wait)]() mutable { begin_stop(deadline, std::move(w)); });
        },
        token, until);
  }

 private:
  template <class... T, class Handler>
  std::unique_ptr<Wait<T...>> make_wait(Handler handler) {
    return std::make_unique<WaitFor<Handler, T...>>(std::move(handler), executor_);
  }

  /// The values with which perform() completes, for the type that its function returns.
  template <class... T>
  struct Values {};
  static Values<> values_of(std::type_identity<void>);
  static Values<> values_of(std::type_identity<Result<void>>);
  template <class T>
  static Values<T> values_of(std::type_identity<T>);
  template <class T>
  static Values<T> values_of(std::type_identity<Result<T>>);

  template <class... T, class Function, class Token>
  auto perform_as(Values<T...>, Function&& function, Token&& token) {
    static_assert((std::default_initializable<T> && ...), "an operation that fails completes with T{}");
    static_assert(((std::is_object_v<T> && !std::is_pointer_v<T> && !std::ranges::view<T>)&&...), "the result must own its data");
    return asio::async_initiate<Token, void(ErrorCode, T...)>(
        [this](auto handler, auto work) {
          auto wait = make_wait<T...>(std::move(handler));
          asio::dispatch(strand_, [this, w = std::move(wait), f = std::move(work)]() mutable {
            if (stop_begun_) return Wait<T...>::fail(std::move(w), Errc::stopped);
            take_returned();
            try {
              call(std::move(f), std::move(w));
            } catch (...) {
              cache_.wake();  // the turn follows then
              throw;
            }
            turn();
          });
        },
        token, std::forward<Function>(function));
  }
  template <class Function, class... T>
  void call(Function function, std::unique_ptr<Wait<T...>> wait) {
    const Cache::Visit visit{cache_};
    if constexpr (std::is_void_v<std::invoke_result_t<Function, Cache&>>) {
      std::invoke(std::move(function), cache_);
      finish(std::move(wait), Result<void>{});
    } else {
      finish(std::move(wait), std::invoke(std::move(function), cache_));
    }
  }
  template <class T>
  static void finish(std::unique_ptr<Wait<T>> wait, T value) {
    Wait<T>::complete(std::move(wait), {}, std::move(value));
  }
  template <class T>
  static void finish(std::unique_ptr<Wait<T>> wait, Result<T> result) {
    if (!result) return Wait<T>::fail(std::move(wait), result.error());
    Wait<T>::complete(std::move(wait), {}, std::move(*result));
  }
  static void finish(std::unique_ptr<Wait<>> wait, const Result<void>& result) {
    Wait<>::complete(std::move(wait), result ? ErrorCode{} : result.error());
  }

  struct Waiting {
    std::uint64_t number = 0;  ///< of this call, because a RequestId may be used again
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

  void give_back(std::unique_ptr<ReturnedLease> lease) noexcept override;

  // All of these run on the strand.
  void begin_acquire(Waiting waiting);
  void cancel_acquire(std::uint64_t number);
  void give_up(RequestId id);
  [[nodiscard]] bool try_acquire(Waiting& waiting);
  void do_commit(RequestId id, std::span<const BlockKey> keys, Fence written, std::unique_ptr<Wait<Commit>> wait);
  void do_extend(RequestId id, std::uint32_t blocks, std::unique_ptr<Wait<std::vector<SlotId>>> wait);
  struct JobWait {  ///< either `progress` or `checkpoint` is set
    WriteBackId id;
    std::unique_ptr<Wait<WriteBackProgress>> progress;
    std::unique_ptr<Wait<CheckpointReport>> checkpoint;
  };
  void await_job(WriteBackId id, std::unique_ptr<Wait<WriteBackProgress>> wait);
  void begin_checkpoint(Duration budget, std::unique_ptr<Wait<CheckpointReport>> wait);
  void tell_ended_jobs();
  void tell_ended(JobWait wait, const std::optional<WriteBackProgress>& progress);
  void begin_stop(TimePoint until, std::unique_ptr<Wait<WorkLeft>> wait);
  void begin_layers(RequestId id, LayersWait wait);
  void take_returned();
  void turn();
  void on_event(const RequestEvent& event);
  void end_layers_waits(Loading& loading);
  void grant(RequestId id, std::unique_ptr<Wait<Grant>> wait, std::uint32_t layers = Grant::all_layers);
  void admit();
  void wait_for_wake();
  void wait_for_deadline();
  void finish_stop();
  void end_waits();

  // Constant after construction.
  asio::any_io_executor executor_;
  asio::strand<asio::any_io_executor> strand_;

  // Strand only.
  Cache& cache_;
  asio::posix::stream_descriptor wake_;
  asio::steady_timer timer_;
  std::unordered_map<RequestId, Lease> leases_;     ///< the leases of the cache; callers hold leases on these
  std::unordered_map<RequestId, Waiting> pending_;  ///< accepted, not granted yet
  std::unordered_map<RequestId, Loading> loading_;  ///< granted by layer; a failed one stays until its lease ends
  std::deque<Waiting> waiting_;                     ///< for slots, in order
  std::vector<JobWait> job_waits_;
  std::vector<std::unique_ptr<Wait<WorkLeft>>> stopping_;
  TimePoint stop_until_ = never;
  bool stop_begun_ = false;
  bool resting_ = false;   ///< a stop has completed, or completes when `handlers_` is 0: nothing waits for a wake-up or a time
  unsigned handlers_ = 0;  ///< handlers for wake-ups and deadlines that have not run yet

  // Any thread.
  ReturnedLeases returned_;
  std::atomic<std::uint64_t> last_acquire_{0};
};

}  // namespace terrace
