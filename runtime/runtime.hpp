#pragma once

#include "runtime/cache.hpp"
#include "runtime/lease.hpp"

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/associated_executor.hpp>
#include <boost/asio/async_result.hpp>
#include <boost/asio/dispatch.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

namespace terrace {

namespace asio = boost::asio;

/// What a ready request got.
struct Grant {
  Lease lease;
  std::vector<SlotId> table;     ///< a slot per block of the sequence
  std::vector<Tier> hit_tiers;   ///< of its leading blocks, one per hit
  RequestStats stats;
};

/// The cache in loop mode: a Cache on a strand of the caller's executor, for servers that live on an event loop.
///
///     auto [error, grant] = co_await runtime.acquire(request, asio::as_tuple(asio::use_awaitable));
///
/// Every operation takes an Asio completion token and completes on the token's executor, once. Spans given to one stay valid
/// until it completes. A request that finds no room waits, in order, for others to release theirs.
///
/// Threads: any, for every member but those that say otherwise. The executor is the caller's; the runtime never runs it. Leases
/// may end on any thread, and before the runtime does. Stop in two steps: stop() refuses what is new, fails what waits with
/// Errc::stopped and completes when the last lease has come back and nothing is under way; then destroy.
class Runtime : private LeaseHome {
 public:
  /// `cache` has a waker, outlives the runtime, and is used by nobody else while it lives.
  Runtime(asio::any_io_executor executor, Cache& cache);
  ~Runtime() override;
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  /// Completes when everything the request needs is there: void(ErrorCode, Grant). Fails as CacheManager::acquire does, but for
  /// no_room, which is waited for; deadline_exceeded, load failures that leave no room (no_room), stopped.
  template <class Token>
  auto acquire(AcquireRequest request, Token&& token) {
    return asio::async_initiate<Token, void(ErrorCode, Grant)>(
        [this](auto handler, AcquireRequest wanted) {
          auto wait = make_wait<Grant>(std::move(handler));
          asio::dispatch(strand_, [this, wanted, w = std::move(wait)]() mutable { begin_acquire(wanted, std::move(w)); });
        },
        token, request);
  }

  /// void(ErrorCode, std::vector<Duplicate>). The lease must live until it completes.
  template <class Token>
  auto commit(const Lease& lease, std::span<const BlockKey> keys, Fence written, Token&& token) {
    return asio::async_initiate<Token, void(ErrorCode, std::vector<Duplicate>)>(
        [this](auto handler, RequestId id, std::span<const BlockKey> blocks, Fence fence) {
          auto wait = make_wait<std::vector<Duplicate>>(std::move(handler));
          asio::dispatch(strand_, [this, id, blocks, fence, w = std::move(wait)]() mutable {
            do_commit(id, blocks, fence, std::move(w));
          });
        },
        token, lease.id(), keys, written);
  }

  /// void(ErrorCode, std::vector<SlotId>): the whole block table after it. The lease must live until it completes.
  template <class Token>
  auto extend(const Lease& lease, std::uint32_t blocks, Token&& token) {
    return asio::async_initiate<Token, void(ErrorCode, std::vector<SlotId>)>(
        [this](auto handler, RequestId id, std::uint32_t more) {
          auto wait = make_wait<std::vector<SlotId>>(std::move(handler));
          asio::dispatch(strand_, [this, id, more, w = std::move(wait)]() mutable { do_extend(id, more, std::move(w)); });
        },
        token, lease.id(), blocks);
  }

  /// void(ErrorCode, MatchResult).
  template <class Token>
  auto match(std::span<const BlockKey> keys, Token&& token) {
    return asio::async_initiate<Token, void(ErrorCode, MatchResult)>(
        [this](auto handler, std::span<const BlockKey> wanted) {
          auto wait = make_wait<MatchResult>(std::move(handler));
          asio::dispatch(strand_, [this, wanted, w = std::move(wait)]() mutable {
            const MatchResult found = cache_.match(wanted);
            Wait<MatchResult>::complete(std::move(w), {}, found);
          });
        },
        token, keys);
  }

  /// void(ErrorCode, std::uint64_t): completes when nothing is left, with the count 0. A second stop() joins the first.
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
  /// A completion handler of any type, with its executor kept busy until it is called.
  template <class T>
  class Wait {
   public:
    virtual ~Wait() = default;
    static void complete(std::unique_ptr<Wait> wait, ErrorCode error, T value) {
      Wait* const w = wait.get();
      w->post(std::move(wait), error, std::move(value));
    }

   private:
    virtual void post(std::unique_ptr<Wait> self, ErrorCode error, T value) = 0;
  };

  template <class T, class Handler>
  class WaitFor final : public Wait<T> {
   public:
    WaitFor(Handler handler, const asio::any_io_executor& fallback)
        : handler_{std::move(handler)}, work_{asio::get_associated_executor(handler_, fallback)} {}

   private:
    void post(std::unique_ptr<Wait<T>>, ErrorCode error, T value) override {
      const auto executor = work_.get_executor();
      asio::post(executor, [handler = std::move(handler_), error, v = std::move(value)]() mutable {
        std::move(handler)(error, std::move(v));
      });
    }

    Handler handler_;
    asio::executor_work_guard<asio::associated_executor_t<Handler, asio::any_io_executor>> work_;
  };

  template <class T, class Handler>
  std::unique_ptr<Wait<T>> make_wait(Handler handler) {
    return std::make_unique<WaitFor<T, Handler>>(std::move(handler), executor_);
  }

  struct Waiting {
    AcquireRequest request;
    std::unique_ptr<Wait<Grant>> wait;
  };

  void give_back(std::unique_ptr<ReturnedLease> lease) noexcept override;

  // All of these run on the strand.
  void begin_acquire(AcquireRequest request, std::unique_ptr<Wait<Grant>> wait);
  [[nodiscard]] bool try_acquire(Waiting& waiting);
  void do_commit(RequestId id, std::span<const BlockKey> keys, Fence written, std::unique_ptr<Wait<std::vector<Duplicate>>> wait);
  void do_extend(RequestId id, std::uint32_t blocks, std::unique_ptr<Wait<std::vector<SlotId>>> wait);
  void begin_stop(std::unique_ptr<Wait<std::uint64_t>> wait);
  void turn();
  void grant(RequestId id, std::unique_ptr<Wait<Grant>> wait);
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
  std::unordered_map<RequestId, Lease> leases_;                          ///< the cache's own, behind those handed out
  std::unordered_map<RequestId, std::unique_ptr<Wait<Grant>>> pending_;  ///< acquired, not ready
  std::deque<Waiting> waiting_;                                          ///< for room, in order
  std::vector<std::unique_ptr<Wait<std::uint64_t>>> stopping_;
  bool stop_begun_ = false;

  // Any thread.
  ReturnedLeases returned_;
};

}  // namespace terrace
