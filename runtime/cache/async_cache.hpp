#pragma once

#include "runtime/cache/cache.hpp"
#include "runtime/cache/wait.hpp"
#include "runtime/types/lease.hpp"

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/associated_cancellation_slot.hpp>
#include <boost/asio/async_result.hpp>
#include <boost/asio/cancellation_type.hpp>
#include <boost/asio/dispatch.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
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
/// To stop it, call stop() first. Requests that wait for slots then fail with Errc::stopped. stop() completes when the last lease
/// has come back and nothing is under way. Then destroy the object. After stop() was called, live requests can still use layers,
/// commit and extend; every other operation fails with Errc::stopped and does nothing, except status(),
/// wait_write_back() and a further stop().
class AsyncCache : private LeaseHome {
 public:
  /// `cache` must have a waker and outlive the AsyncCache. Nothing else may use it meanwhile.
  AsyncCache(asio::any_io_executor executor, Cache& cache);
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

  /// void(ErrorCode). As Requests::advance. The lease must not end before it completes.
  template <class Token>
  auto advance(const Lease& lease, std::uint64_t tokens, Fence last_use, Token&& token) {
    return perform<>(Then::turn, std::forward<Token>(token),
                     [this, &lease, tokens, last_use] { return cache_.advance(lease, tokens, last_use); });
  }
  /// void(ErrorCode). As Cache::compute_is_idle.
  template <class Token>
  auto compute_is_idle(Token&& token) {
    return perform<>(Then::turn, std::forward<Token>(token), [this] {
      cache_.compute_is_idle();
      return Result<void>{};
    });
  }
  /// void(ErrorCode, std::vector<SlotId>). The block table of one group; the grant has the table of the first group. The lease
  /// must not end before it completes.
  template <class Token>
  auto block_table(const Lease& lease, GroupId group, Token&& token) {
    return perform<std::vector<SlotId>>(Then::nothing, std::forward<Token>(token),
                                        [this, &lease, group]() -> Result<std::vector<SlotId>> {
                                          const auto table = cache_.block_table(lease, group);
                                          if (!table) return table.error();
                                          return std::vector<SlotId>(table->begin(), table->end());
                                        });
  }

  /// void(ErrorCode, MatchResult).
  template <class Token>
  auto match(std::span<const BlockKey> keys, Token&& token) {
    return match(keys, Tier::storage, std::forward<Token>(token));
  }
  template <class Token>
  auto match(std::span<const BlockKey> keys, Tier lowest_tier, Token&& token) {
    return perform<MatchResult>(Then::nothing, std::forward<Token>(token),
                                [this, keys, lowest_tier] { return Result<MatchResult>{cache_.match(keys, lowest_tier)}; });
  }

  // ---- the cache as a whole: runtime/cache/cache.hpp says what these calls do and how they fail

  /// void(ErrorCode). Pending requests fail with `cleared`. Requests that wait for slots get those that became free; if
  /// ClearOptions::wait is set, they fail with `paused`.
  template <class Token>
  auto clear(const ClearOptions& options, Token&& token) {
    return perform<>(Then::turn, std::forward<Token>(token), [this, options] {
      cache_.clear(options);
      return Result<void>{};
    });
  }
  /// void(ErrorCode).
  template <class Token>
  auto reset(const ClearOptions& options, Token&& token) {
    return perform<>(Then::turn, std::forward<Token>(token), [this, options] { return cache_.reset(options); });
  }
  /// void(ErrorCode).
  template <class Token>
  auto resume(Token&& token) {
    return perform<>(Then::turn, std::forward<Token>(token), [this] { return cache_.resume(); });
  }
  /// Returns at once. Can be called from any thread.
  [[nodiscard]] CacheStatus status() const noexcept { return cache_.status(); }

  /// void(ErrorCode, std::uint32_t). Returns the number of device blocks that it freed.
  template <class Token>
  auto drop(std::span<const BlockKey> keys, Token&& token) {
    return perform<std::uint32_t>(Then::turn, std::forward<Token>(token), [this, keys] { return cache_.drop(keys); });
  }
  /// void(ErrorCode, EvictedBlocks).
  template <class Token>
  auto evict(std::span<const SlotId> slots, PoolId pool, Token&& token) {
    return perform<EvictedBlocks>(Then::turn, std::forward<Token>(token),
                                  [this, slots, pool] { return cache_.evict(slots, pool); });
  }
  /// void(ErrorCode, PinId).
  template <class Token>
  auto pin(std::span<const BlockKey> keys, TimePoint until, Token&& token) {
    return perform<PinId>(Then::turn, std::forward<Token>(token), [this, keys, until] { return cache_.pin(keys, until); });
  }
  /// void(ErrorCode).
  template <class Token>
  auto unpin(PinId pin, Token&& token) {
    return perform<>(Then::turn, std::forward<Token>(token), [this, pin] { return cache_.unpin(pin); });
  }
  /// void(ErrorCode, RetentionId).
  template <class Token>
  auto retain(std::span<const BlockKey> keys, Priority priority, TimePoint until, Token&& token) {
    return perform<RetentionId>(Then::nothing, std::forward<Token>(token),
                                [this, keys, priority, until] { return cache_.retain(keys, priority, until); });
  }
  /// void(ErrorCode).
  template <class Token>
  auto end_retention(RetentionId retention, Token&& token) {
    return perform<>(Then::nothing, std::forward<Token>(token), [this, retention] { return cache_.end_retention(retention); });
  }
  /// void(ErrorCode).
  template <class Token>
  auto set_quota(TenantId tenant, TenantQuota quota, Token&& token) {
    return perform<>(Then::nothing, std::forward<Token>(token),
                     [this, tenant, quota] { return cache_.set_quota(tenant, quota); });
  }
  /// void(ErrorCode).
  template <class Token>
  auto remove_quota(TenantId tenant, Token&& token) {
    return perform<>(Then::nothing, std::forward<Token>(token), [this, tenant] { return cache_.remove_quota(tenant); });
  }
  /// void(ErrorCode). Requests that wait for more slots than the new size has fail with never_fits. A resize of storage goes on
  /// after this has completed, see BlockStore::resize.
  template <class Token>
  auto resize(Tier tier, std::uint32_t blocks, Token&& token) {
    return perform<>(Then::turn, std::forward<Token>(token), [this, tier, blocks] { return cache_.resize(tier, blocks); });
  }
  /// void(ErrorCode, std::uint64_t). Returns the number of slots that a resize has still to retire. Fails: invalid_argument
  /// (storage).
  template <class Token>
  auto retiring(Tier tier, Token&& token) {
    return perform<std::uint64_t>(Then::nothing, std::forward<Token>(token), [this, tier] {
      if (tier == Tier::storage) return Result<std::uint64_t>{Errc::invalid_argument};
      return Result<std::uint64_t>{cache_.retiring(tier)};
    });
  }
  /// void(ErrorCode, HostMemory).
  template <class Token>
  auto host_memory(Token&& token) {
    return perform<HostMemory>(Then::nothing, std::forward<Token>(token),
                               [this] { return Result<HostMemory>{cache_.host_memory()}; });
  }
  /// void(ErrorCode, std::uint32_t).
  template <class Token>
  auto common_prefix(Token&& token) {
    return perform<std::uint32_t>(Then::nothing, std::forward<Token>(token),
                                  [this] { return Result<std::uint32_t>{cache_.common_prefix()}; });
  }

  /// void(ErrorCode, Usage). Fails: invalid_argument (storage).
  template <class Token>
  auto usage(Tier tier, Token&& token) {
    return perform<Usage>(Then::nothing, std::forward<Token>(token), [this, tier] {
      if (tier == Tier::storage) return Result<Usage>{Errc::invalid_argument};
      return Result<Usage>{cache_.manager().usage(tier)};
    });
  }
  /// void(ErrorCode, ManagerStats).
  template <class Token>
  auto stats(Token&& token) {
    return perform<ManagerStats>(Then::nothing, std::forward<Token>(token),
                                 [this] { return Result<ManagerStats>{cache_.stats()}; });
  }
  /// void(ErrorCode, WaitTotals).
  template <class Token>
  auto wait_totals(Token&& token) {
    return perform<WaitTotals>(Then::nothing, std::forward<Token>(token),
                               [this] { return Result<WaitTotals>{cache_.wait_totals()}; });
  }
  /// void(ErrorCode, TreeCounts).
  template <class Token>
  auto tree_counts(Token&& token) {
    return perform<TreeCounts>(Then::nothing, std::forward<Token>(token),
                               [this] { return Result<TreeCounts>{cache_.tree_counts()}; });
  }
  /// void(ErrorCode).
  template <class Token>
  auto sample_residency(std::uint32_t one_in, Token&& token) {
    return perform<>(Then::nothing, std::forward<Token>(token), [this, one_in] {
      cache_.sample_residency(one_in);
      return Result<void>{};
    });
  }
  /// void(ErrorCode, ResidencyTotals).
  template <class Token>
  auto residency_totals(Token&& token) {
    return perform<ResidencyTotals>(Then::nothing, std::forward<Token>(token),
                                    [this] { return Result<ResidencyTotals>{cache_.residency_totals()}; });
  }
  /// void(ErrorCode).
  template <class Token>
  auto record_events(Token&& token) {
    return perform<>(Then::nothing, std::forward<Token>(token), [this] {
      cache_.record_events();
      return Result<void>{};
    });
  }
  /// void(ErrorCode, std::vector<KvEvent>).
  template <class Token>
  auto take_events(Token&& token) {
    return perform<std::vector<KvEvent>>(Then::nothing, std::forward<Token>(token), [this] {
      std::vector<KvEvent> events;
      cache_.take_events(events);
      return Result<std::vector<KvEvent>>{std::move(events)};
    });
  }

  /// void(ErrorCode, WriteBackId). The keys of the order must stay valid until it completes. stop() cancels running jobs.
  template <class Token>
  auto start_write_back(const WriteBackOrder& order, Token&& token) {
    return perform<WriteBackId>(Then::turn, std::forward<Token>(token), [this, order] { return cache_.start_write_back(order); });
  }
  /// void(ErrorCode).
  template <class Token>
  auto pause_write_back(WriteBackId id, Token&& token) {
    return perform<>(Then::turn, std::forward<Token>(token), [this, id] { return cache_.pause_write_back(id); });
  }
  /// void(ErrorCode).
  template <class Token>
  auto resume_write_back(WriteBackId id, Token&& token) {
    return perform<>(Then::turn, std::forward<Token>(token), [this, id] { return cache_.resume_write_back(id); });
  }
  /// void(ErrorCode).
  template <class Token>
  auto cancel_write_back(WriteBackId id, Token&& token) {
    return perform<>(Then::turn, std::forward<Token>(token), [this, id] { return cache_.cancel_write_back(id); });
  }
  /// void(ErrorCode, WriteBackProgress). Returns the current progress. Fails: not_found.
  template <class Token>
  auto write_back(WriteBackId id, Token&& token) {
    return perform<WriteBackProgress>(Then::nothing, std::forward<Token>(token), [this, id] { return progress(id); });
  }
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
  /// void(ErrorCode, Durability).
  template <class Token>
  auto durability(Token&& token) {
    return perform<Durability>(Then::nothing, std::forward<Token>(token),
                               [this] { return Result<Durability>{cache_.durability()}; });
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
  /// void(ErrorCode, std::vector<WriteBackProgress>).
  template <class Token>
  auto write_backs(Token&& token) {
    using All = std::vector<WriteBackProgress>;
    return perform<All>(Then::nothing, std::forward<Token>(token), [this] { return Result<All>{cache_.write_backs()}; });
  }
  /// void(ErrorCode, std::vector<WriteBackResult>).
  template <class Token>
  auto take_write_back_results(WriteBackId id, Token&& token) {
    return perform<std::vector<WriteBackResult>>(Then::nothing, std::forward<Token>(token),
                                                 [this, id] { return cache_.take_write_back_results(id); });
  }
  /// void(ErrorCode).
  template <class Token>
  auto limit_daily_writes(Bytes per_day, Token&& token) {
    return perform<>(Then::nothing, std::forward<Token>(token), [this, per_day] {
      cache_.limit_daily_writes(per_day);
      return Result<void>{};
    });
  }
  /// void(ErrorCode).
  template <class Token>
  auto limit_transfers(Urgency urgency, Bytes per_second, Token&& token) {
    return perform<>(Then::nothing, std::forward<Token>(token),
                     [this, urgency, per_second] { return cache_.limit_transfers(urgency, per_second); });
  }

  /// void(ErrorCode). stop() resumes paused transfers.
  template <class Token>
  auto pause_transfers(Token&& token) {
    return perform<>(Then::nothing, std::forward<Token>(token), [this] {
      cache_.pause_transfers();
      return Result<void>{};
    });
  }
  /// void(ErrorCode).
  template <class Token>
  auto resume_transfers(Token&& token) {
    return perform<>(Then::turn, std::forward<Token>(token), [this] {
      cache_.resume_transfers();
      return Result<void>{};
    });
  }
  /// void(ErrorCode, std::uint64_t).
  template <class Token>
  auto transfers_in_flight(Token&& token) {
    return perform<std::uint64_t>(Then::nothing, std::forward<Token>(token),
                                  [this] { return Result<std::uint64_t>{cache_.transfers_in_flight()}; });
  }

  /// void(ErrorCode, std::uint64_t). Completes with 0 when nothing is left. A second stop() joins the first.
  template <class Token>
  auto stop(Token&& token) {
    return asio::async_initiate<Token, void(ErrorCode, std::uint64_t)>(
        [this](auto handler) {
          auto wait = make_wait<std::uint64_t>(std::move(handler));
          asio::dispatch(strand_, [this, w = std::move(wait)]() mutable { begin_stop(std::move(w)); });
        },
        token);
  }

 private:
  template <class... T, class Handler>
  std::unique_ptr<Wait<T...>> make_wait(Handler handler) {
    return std::make_unique<WaitFor<Handler, T...>>(std::move(handler), executor_);
  }

  /// The step that must follow an operation: `turn` if it may affect waiting requests, deadlines or work under way.
  enum class Then : bool { nothing, turn };

  /// Runs `work` on the strand and completes with its result.
  template <class... T, class Token, class Work>
  auto perform(Then then, Token&& token, Work work) {
    return asio::async_initiate<Token, void(ErrorCode, T...)>(
        [this, then](auto handler, Work of_the_cache) {
          auto wait = make_wait<T...>(std::move(handler));
          asio::dispatch(strand_, [this, then, w = std::move(wait), run = std::move(of_the_cache)]() mutable {
            if (stop_begun_) return Wait<T...>::fail(std::move(w), Errc::stopped);
            take_returned();
            finish(std::move(w), run());
            if (then == Then::turn) turn();
          });
        },
        token, std::move(work));
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
  [[nodiscard]] Result<WriteBackProgress> progress(WriteBackId id) const;
  struct JobWait {  ///< either `progress` or `checkpoint` is set
    WriteBackId id;
    std::unique_ptr<Wait<WriteBackProgress>> progress;
    std::unique_ptr<Wait<CheckpointReport>> checkpoint;
  };
  void await_job(WriteBackId id, std::unique_ptr<Wait<WriteBackProgress>> wait);
  void begin_checkpoint(Duration budget, std::unique_ptr<Wait<CheckpointReport>> wait);
  void tell_ended_jobs();
  void tell_ended(JobWait wait, const std::optional<WriteBackProgress>& progress);
  void begin_stop(std::unique_ptr<Wait<std::uint64_t>> wait);
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
  std::vector<std::unique_ptr<Wait<std::uint64_t>>> stopping_;
  bool stop_begun_ = false;

  // Any thread.
  ReturnedLeases returned_;
  std::atomic<std::uint64_t> last_acquire_{0};
};

}  // namespace terrace
