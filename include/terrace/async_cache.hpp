#pragma once

#include "terrace/cache.hpp"
#include "terrace/detail/wait.hpp"
#include "terrace/export.hpp"
#include "terrace/request.hpp"
#include "terrace/result.hpp"
#include "terrace/statistics.hpp"
#include "terrace/types.hpp"
#include "terrace/write_back.hpp"

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/associated_cancellation_slot.hpp>
#include <boost/asio/async_result.hpp>
#include <boost/asio/cancellation_type.hpp>
#include <boost/asio/dispatch.hpp>
#include <boost/asio/strand.hpp>

#include <atomic>
#include <concepts>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <ranges>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

namespace terrace {

/// The result of a granted request. A request is granted when it is ready; a request by layer, when its first layers have
/// arrived.
struct TERRACE_API Grant {
  /// Value of `layers` when all layers have arrived.
  static constexpr std::uint32_t all_layers = std::numeric_limits<std::uint32_t>::max();

  Lease lease{};
  std::vector<SlotId> table{};        ///< a slot per block of the sequence
  std::vector<Source> hit_sources{};  ///< where each hit was found; the hits are the leading blocks
  RequestStats stats{};
  double seconds_waited = 0;          ///< since the request was accepted
  std::uint32_t layers = all_layers;  ///< leading layers of all its blocks that have arrived
};

/// Result of a commit.
struct Commit {
  /// Leading blocks of the request that are committed by now. Fewer than the keys if the commit stopped early; then call it
  /// again.
  HashUnits units{};
  std::vector<Duplicate> duplicates{};
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
class TERRACE_API AsyncCache {
 public:
  /// `cache` must have a waker and outlive the AsyncCache. Nothing else may use it meanwhile.
  AsyncCache(asio::any_io_executor executor, Cache& cache);
  /// All leases must have ended, and a stop() must have completed, unless the executor never runs again.
  ~AsyncCache();
  AsyncCache(const AsyncCache&) = delete;
  AsyncCache& operator=(const AsyncCache&) = delete;

  /// void(ErrorCode, Grant). Completes when the request has all slots and blocks that it needs. If there are too few slots, it
  /// waits. Otherwise it fails as Cache::acquire does, and also with deadline_exceeded and stopped. The keys must stay valid
  /// until it completes.
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
              if (type != asio::cancellation_type::none) asio::dispatch(strand_, [this, number] { end_acquire(number); });
            });
          }
          on_strand(&AsyncCache::begin_acquire, std::move(wait), number, wanted);
        },
        token, request);
  }

  /// void(ErrorCode, std::uint32_t). Completes when at least `count` leading layers of the request have arrived, and returns how
  /// many have. With Grant::all_layers, completes when the request is ready. If the request fails (see RequestEvent), this fails
  /// with the same error, and the caller must end the lease. Fails with unknown_request if the lease has ended.
  template <class Token>
  auto layers(const Lease& lease, std::uint32_t count, Token&& token) {
    return initiate(&AsyncCache::begin_layers, std::forward<Token>(token), lease.id(), count);
  }

  /// void(ErrorCode, Commit). The lease must not end before it completes.
  template <class Token>
  auto commit(const Lease& lease, std::span<const BlockKey> keys, Fence written, Token&& token) {
    return initiate(&AsyncCache::begin_commit, std::forward<Token>(token), lease.id(), keys, written);
  }

  /// void(ErrorCode, std::vector<SlotId>). Returns the whole new block table. The lease must not end before it completes.
  template <class Token>
  auto extend(const Lease& lease, HashUnits units, Token&& token) {
    return initiate(&AsyncCache::begin_extend, std::forward<Token>(token), lease.id(), units);
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
  /// short. Leases that have ended are taken back first. Afterwards, waiting requests get the slots that became free.
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
  /// The function must not call acquire(), wait(), poll(), drain(), drain_until() or checkpoint() of Cache. These calls block, or
  /// only this object may make them because it hands out the leases and collects the events. The function must not start an
  /// operation of this object either. Such a call stops the process.
  ///
  /// If the function throws, the exception leaves run() of the executor, as it does from any handler of Asio. The operation then
  /// never completes; its handler is destroyed.
  template <class Function, class Token>
  auto perform(Function&& function, Token&& token) {
    using Returned = std::invoke_result_t<std::decay_t<Function>, Cache&>;
    using Completion = decltype(values_of(std::type_identity<Returned>{}));
    return perform_as(Completion{}, std::forward<Function>(function), std::forward<Token>(token));
  }

  /// void(ErrorCode). Clears the cache (Cache::clear). If ClearOptions::wait is set, it completes when everything that was cached
  /// has been dropped, and then perform(&Cache::resume) returns to normal service; requests that wait for slots fail with
  /// `paused`. Pending requests fail with `cleared`.
  template <class Token>
  auto clear(const ClearOptions& options, Token&& token) {
    return initiate(&AsyncCache::begin_clear, std::forward<Token>(token), options);
  }
  /// void(ErrorCode). Makes a tier larger or smaller (Cache::resize), and completes when the device or host tier has its new
  /// size: when the last slot has retired, or the last chunk of memory has arrived. Fails as Cache::resize, and with no_room if
  /// the host tier stopped growing early, or another resize has replaced this one. Cache::host_memory() shows the progress. For
  /// storage, it completes when the store has accepted the size.
  template <class Token>
  auto resize(Tier tier, Blocks blocks, PoolId pool, Token&& token) {
    return initiate(&AsyncCache::begin_resize, std::forward<Token>(token), tier, blocks, pool);
  }

  /// Returns at once. Can be called from any thread.
  [[nodiscard]] CacheStatus status() const noexcept;

  /// void(ErrorCode, WriteBackProgress). Completes when the job has ended. Fails: not_found. stop() cancels the job; the
  /// operation then completes with the state `cancelled`.
  template <class Token>
  auto wait_write_back(WriteBackId id, Token&& token) {
    return initiate(&AsyncCache::begin_wait, std::forward<Token>(token), id);
  }
  /// void(ErrorCode, CheckpointReport). Writes everything that is cached to storage and flushes storage, within `budget`. The
  /// cache serves meanwhile. Fails as Cache::start_write_back, and with stopped.
  template <class Token>
  auto checkpoint(Duration budget, Token&& token) {
    return initiate(&AsyncCache::begin_checkpoint, std::forward<Token>(token), budget);
  }

  /// void(ErrorCode, WorkLeft). Completes when the last lease has been returned and no work is under way. It fails requests that
  /// wait for slots with Errc::stopped, resumes transfers and cancels write-back jobs. Requests that wait for their blocks are
  /// still served.
  template <class Token>
  auto stop(Token&& token) {
    return stop(never, std::forward<Token>(token));
  }
  /// The same, but completes at `until` at the latest and returns the work that is left then. A disk or a device that does not
  /// respond therefore cannot delay it. At that time, requests that wait for their blocks or layers fail with Errc::stopped. If
  /// the result contains leases, end them before this object is destroyed. If it contains other work, end the cache with
  /// CacheSystem::close(): it is the only call that does not wait for that work. Several calls of stop() complete together, at
  /// the earliest `until` of them.
  template <class Token>
  auto stop(TimePoint until, Token&& token) {
    return initiate(&AsyncCache::begin_stop, std::forward<Token>(token), until);
  }

 private:
  template <class... T>
  using Wait = std::unique_ptr<detail::Wait<T...>>;

  template <class... T, class Handler>
  Wait<T...> make_wait(Handler handler) {
    return std::make_unique<detail::WaitFor<Handler, T...>>(std::move(handler), executor_);
  }

  /// The part of an operation that runs on the strand: it gets the wait that it must complete, and the arguments.
  template <class ItsWait, class... Args>
  using Operation = void (AsyncCache::*)(ItsWait, Args...);

  template <class... T, class... Args>
  void on_strand(Operation<Wait<T...>, Args...> operation, Wait<T...> wait, std::type_identity_t<Args>... args) {
    asio::dispatch(
        strand_, [this, operation, wait = std::move(wait), args...]() mutable { (this->*operation)(std::move(wait), args...); });
  }
  template <class... T, class... Args, class Token>
  auto initiate(Operation<Wait<T...>, Args...> operation, Token&& token, std::type_identity_t<Args>... args) {
    return asio::async_initiate<Token, void(ErrorCode, T...)>(
        [this, operation, args...](auto handler) { this->on_strand(operation, make_wait<T...>(std::move(handler)), args...); },
        token);
  }

  /// Maps the return type of the function of perform() to the values with which perform() completes.
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
          asio::dispatch(strand_, [this, work = std::move(work), wait = make_wait<T...>(std::move(handler))]() mutable {
            const bool performed = visit([&](Cache& cache) {
              if constexpr (std::is_void_v<std::invoke_result_t<decltype(work), Cache&>>) {
                std::invoke(std::move(work), cache);
                detail::complete(std::move(wait), {});
              } else {
                detail::finish(std::move(wait), std::invoke(std::move(work), cache));
              }
            });
            if (!performed) detail::fail(std::move(wait), Errc::stopped);
          });
        },
        token, std::forward<Function>(function));
  }

  // All of these run on the strand.
  void begin_acquire(Wait<Grant> wait, std::uint64_t number, AcquireRequest request);
  void end_acquire(std::uint64_t number);
  void begin_layers(Wait<std::uint32_t> wait, RequestId id, std::uint32_t wanted);
  void begin_commit(Wait<Commit> wait, RequestId id, std::span<const BlockKey> keys, Fence written);
  void begin_extend(Wait<std::vector<SlotId>> wait, RequestId id, HashUnits units);
  void begin_clear(Wait<> wait, ClearOptions options);
  void begin_resize(Wait<> wait, Tier tier, Blocks blocks, PoolId pool);
  void begin_wait(Wait<WriteBackProgress> wait, WriteBackId id);
  void begin_checkpoint(Wait<CheckpointReport> wait, Duration budget);
  void begin_stop(Wait<WorkLeft> wait, TimePoint until);
  /// Returns false, and does not call the function, after stop() was called.
  bool visit(const std::function<void(Cache&)>& function);

  struct State;
  const asio::any_io_executor executor_;
  asio::strand<asio::any_io_executor> strand_;
  std::atomic<std::uint64_t> last_acquire_{0};  ///< number of the last acquire(), because a RequestId may be used again
  std::unique_ptr<State> state_;
};

}  // namespace terrace
