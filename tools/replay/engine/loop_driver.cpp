#include "base/check.hpp"
#include "terrace/async_cache.hpp"
#include "tools/replay/engine/session.hpp"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <exception>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

namespace terrace::tools {
namespace {

constexpr auto as_result = asio::as_tuple(asio::use_awaitable);
/// How often acquire() is tried again after no_room.
constexpr int attempts_max = 100;
/// How often acquire() is tried again while the cache is being cleared.
constexpr auto paused_interval = std::chrono::milliseconds{1};
/// How long an interrupted replay waits for its requests. The same for work under way at the end of a replay with a checkpoint.
constexpr auto ending_limit = std::chrono::seconds{10};

/// Calls AsyncCache::acquire, and measures only the call itself, without the wait for blocks.
template <class Token>
auto timed_acquire(AsyncCache& cache, const AcquireRequest& request, Latencies& latencies, Token&& token) {
  return asio::async_initiate<Token, void(ErrorCode, Grant)>(
      [&cache, &latencies](auto handler, const AcquireRequest& wanted) {
        const TimePoint begin = steady_now();
        cache.acquire(wanted, std::move(handler));
        latencies.add(steady_now() - begin);
      },
      token, request);
}

class LoopDriver {
 public:
  LoopDriver(Session& session, CacheSystem& system, EventFdWaker& waker)
      : session_{session},
        waker_{waker},
        context_{static_cast<int>(session.options().threads)},
        strand_{asio::make_strand(asio::any_io_executor{context_.get_executor()})},
        cache_{context_.get_executor(), system.cache()},
        wakes_{strand_, waker.fd()},
        changed_{strand_} {}

  void run() {
    watch_wakes();
    asio::co_spawn(strand_, serve_all(), [this](const std::exception_ptr& error) {
      wakes_.release();  // the descriptor belongs to the waker
      if (error) std::rethrow_exception(error);
    });
    std::vector<std::jthread> others;
    for (std::uint32_t i = 1; i < session_.options().threads; ++i) others.emplace_back([this] { context_.run(); });
    context_.run();
  }

 private:
  /// A wait for a launch. The object lives in the coroutine that waits.
  struct Computing {
    std::uint64_t launch = 0;
    asio::steady_timer timer;  ///< never expires; it is cancelled when the launch is done
    bool done = false;
  };
  /// A request that is being served. The object lives in its coroutine.
  struct Life : Served {
    Grant grant;
    std::uint64_t computed = 0;   ///< tokens, including those from the cache
    std::uint64_t furthest = 0;   ///< the highest value that `computed` ever had
    std::uint32_t committed = 0;  ///< the highest number of blocks that were ever committed

    /// The number of computed tokens at which the request is complete.
    [[nodiscard]] std::uint64_t end() const { return tokens_computed(request.prompt_tokens, request.output_tokens); }
    [[nodiscard]] bool is_aborted() const {
      return request.abort && !request.abort->waiting && request.abort->tokens <= computed;
    }
  };

  asio::awaitable<void> serve_all() {
    while (!session_.stopping()) {
      if (in_flight_ >= session_.options().concurrency) {
        co_await wait_for_change(never);
        continue;
      }
      std::optional<Prepared> request = session_.next();
      if (!request) break;
      const bool is_due = co_await wait_until_due(session_.due(*request));
      if (!is_due) break;
      ++in_flight_;
      asio::co_spawn(strand_, serve(std::move(*request)), [this](const std::exception_ptr& error) { ended(error); });
    }
    std::optional<TimePoint> stop_waiting_at;
    while (in_flight_ > 0) {
      if (session_.stopping() && !stop_waiting_at) stop_waiting_at = steady_now() + ending_limit;
      if (stop_waiting_at && steady_now() >= *stop_waiting_at) break;
      co_await wait_for_change(stop_waiting_at.value_or(never));
    }
    // stop() fails the requests that still wait. Requests that have their blocks end first. A replay with a checkpoint ends in
    // time even if the disk hangs.
    const TimePoint until = session_.options().checkpoint ? steady_now() + ending_limit : never;
    auto [error, left] = co_await cache_.stop(until, as_result);
    TERRACE_CHECK(!error && (left.none() || until != never));
    while (in_flight_ > 0) co_await wait_for_change(never);
  }

  asio::awaitable<void> serve(Prepared request) {
    if (request.prompt_tokens == 0) {
      session_.finish(request, {}, 0);
      co_return;
    }
    if (request.abort && request.abort->waiting) {
      ++session_.engine().aborted;
      co_return;
    }
    Life life;
    life.request = std::move(request);
    life.came = steady_now();
    const std::span<const BlockKey> keys = session_.to_share(life.request, life.request.prompt_tokens);
    const auto match = [keys](Cache& cache) { return cache.match(keys); };
    const TimePoint begin = steady_now();
    co_await cache_.perform(match, as_result);
    session_.latencies().match.add(steady_now() - begin);

    const std::uint32_t block_tokens = session_.options().block_tokens;
    std::uint64_t known = life.request.prompt_tokens;
    while (!life.begun || life.computed < life.end()) {
      if (!life.grant.lease) {
        // The request asks also for the blocks of what it has written so far, and for space for the next token.
        known = std::max(known, std::min(life.furthest + 1, life.end()));
        const bool acquired = co_await acquire(life, known);
        if (!acquired) co_return;
      }
      if (session_.stopping()) co_return;
      if (life.is_aborted()) {
        ++session_.engine().aborted;
        co_return;
      }
      if (life.computed == known && known < life.end()) {
        // Extends to the end of the block, or of the next block if this one is full.
        known = std::min(life.end(), (known / block_tokens + 1) * block_tokens);
        const bool extended = co_await extend(life, known);
        if (!extended) {
          known = life.computed;
          preempt(life);
          continue;
        }
      }
      const std::uint64_t to = std::min(known, life.computed + session_.options().step_tokens);
      co_await compute(life, to);
    }
    if (life.grant.lease) {
      session_.tell(life.request, life.grant.lease);
      end_lease(life);
    }
    session_.finish(life.request, life.stats, life.compared);
  }

  /// Acquires blocks for the request's first `tokens` tokens. Returns false if it was rejected, or if the replay stops.
  asio::awaitable<bool> acquire(Life& life, std::uint64_t tokens) {
    AcquireRequest wanted = session_.acquire_request(life.request, tokens);
    wanted.preempted = life.preempted;
    ErrorCode error;
    for (int attempt = 0; attempt < attempts_max;) {
      std::tie(error, life.grant) = co_await timed_acquire(cache_, wanted, session_.latencies().acquire, as_result);
      if (error == Errc::no_room) {
        ++attempt;
      } else if (error == Errc::paused && !session_.stopping()) {
        // The cache is being cleared, until an operator resumes it.
        asio::steady_timer timer{strand_, steady_now() + paused_interval};
        ErrorCode ignored;
        co_await timer.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
      } else if (error != Errc::cleared) {
        break;
      }
    }
    if (!error) {
      life.grant.lease.used_until(no_longer_used);  // holds until something is launched
      life.computed = std::uint64_t{life.grant.stats.units - life.grant.stats.miss} * session_.options().block_tokens;
      life.has_new_hits = true;
      co_return true;
    }
    if (error == Errc::never_fits) {
      session_.reject();
    } else if (!session_.stopping() || (error != Errc::stopped && error != Errc::paused)) {
      session_.fail(
          fmt::format("request {} ({} blocks) was refused: {}", life.request.number, wanted.units.value(), error.message()));
    }
    co_return false;
  }

  /// Extends the request's block table to `tokens` tokens. Returns false if there is no room.
  asio::awaitable<bool> extend(Life& life, std::uint64_t tokens) {
    const std::uint32_t block = session_.options().block_tokens;
    const auto blocks = static_cast<std::uint32_t>((tokens + block - 1) / block);
    const auto there = static_cast<std::uint32_t>(life.grant.table.size());
    if (blocks <= there) co_return true;
    const TimePoint begin = steady_now();
    auto [error, table] = co_await cache_.extend(life.grant.lease, HashUnits{blocks - there}, as_result);
    session_.latencies().extend.add(steady_now() - begin);
    // A request that has outgrown the pool is handled like one that finds no room.
    if (error && error != Errc::no_room && error != Errc::never_fits) {
      session_.fail(life.request, "extend", error);
    }
    if (error) co_return false;
    life.grant.table = std::move(table);
    co_return true;
  }

  /// Gives up all blocks of the request. They are shared already.
  void preempt(Life& life) {
    ++session_.engine().preemptions;
    life.preempted = true;
    end_lease(life);
  }

  /// Launches the tokens up to `to`, shares the blocks that they fill, and waits until they are computed.
  asio::awaitable<void> compute(Life& life, std::uint64_t to) {
    const Prepared& request = life.request;
    const TokenRange tokens{life.computed, to};
    auto batch = std::make_shared<ComputeBatch>();
    if (life.has_new_hits) batch->add_hits(request.number, request.keys, life.grant.hit_sources, life.grant.table);
    batch->add_tokens(request.number, request.keys, life.grant.table, session_.options().block_tokens, tokens);
    const Launched launched = session_.launch(batch);
    Computing computing{launched.number, asio::steady_timer{strand_, never}};
    computing_.push_back(&computing);
    life.grant.lease.used_until(launched.fence);

    EngineCounts& counts = session_.engine();
    const bool first_hits = !life.begun;
    if (first_hits) life.stats = life.grant.stats;
    if (!first_hits && life.has_new_hits) counts.hits_again += life.grant.hit_sources.size();
    counts.add(tokens, life.furthest, request.prompt_tokens);
    life.begun = true;
    life.has_new_hits = false;
    life.computed = to;
    life.furthest = std::max(life.furthest, to);

    const std::span<const BlockKey> keys = session_.to_share(request, to);
    const TimePoint begin = steady_now();
    auto [error, committed] = co_await cache_.commit(life.grant.lease, keys, launched.fence, as_result);
    session_.latencies().commit.add(steady_now() - begin);
    if (error) session_.fail(request, "commit", error);
    // A commit stops before a block that is being loaded. The next commit continues from there.
    const std::uint32_t before = std::max(life.committed, request.prompt_blocks);
    life.committed = std::max(life.committed, committed.units.value());
    counts.output_blocks += std::max(life.committed, before) - before;
    if (to == life.end() && session_.options().release == Release::launch) {
      session_.tell(life.request, life.grant.lease);
      end_lease(life);
    }
    co_await wait_for_compute(computing);
    if (!life.prompted && to >= request.prompt_tokens) {
      life.prompted = true;
      session_.first_tokens().add(steady_now() - life.came);
    }
    if (first_hits && !batch->hits.empty()) life.compared = batch->hits.front().compared;
  }

  void end_lease(Life& life) {
    timed(session_.latencies().release, [&] { life.grant.lease.reset(); });
  }

  /// Returns false if the replay stops before.
  asio::awaitable<bool> wait_until_due(TimePoint due) {
    while (!session_.stopping() && steady_now() < due) co_await wait_for_change(due);
    co_return !session_.stopping();
  }

  /// Completes when something that this driver waits for may have changed, or at `until`.
  asio::awaitable<void> wait_for_change(TimePoint until) {
    changed_.expires_at(until);
    ErrorCode ignored;  // the timer is cancelled when something changed
    co_await changed_.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
  }

  /// Completes at once if the launch is done already.
  static asio::awaitable<void> wait_for_compute(Computing& computing) {
    ErrorCode ignored;  // the timer is cancelled when the computation is done
    if (!computing.done) co_await computing.timer.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
  }

  /// The computation only wakes this descriptor and uses no object of the loop, because these objects are destroyed before the
  /// device's threads end.
  void watch_wakes() {
    wakes_.async_wait(asio::posix::stream_descriptor::wait_read, [this](const ErrorCode& error) {
      if (error) return;
      waker_.acknowledge();
      const std::uint64_t done = session_.launches_done();
      for (; !computing_.empty() && computing_.front()->launch <= done; computing_.pop_front()) {
        computing_.front()->done = true;
        computing_.front()->timer.cancel();
      }
      if (session_.stopping()) changed_.cancel();
      watch_wakes();
    });
  }

  void ended(const std::exception_ptr& error) {
    --in_flight_;
    changed_.cancel();
    if (!error) return;
    try {
      std::rethrow_exception(error);
    } catch (const std::exception& failure) {
      session_.fail(failure.what());
    }
  }

  Session& session_;
  EventFdWaker& waker_;

  asio::io_context context_;
  asio::strand<asio::any_io_executor> strand_;
  AsyncCache cache_;
  asio::posix::stream_descriptor wakes_;
  asio::steady_timer changed_;
  std::deque<Computing*> computing_;  ///< in the order of their launches
  std::uint32_t in_flight_ = 0;
};

}  // namespace

void run_loop(Session& session, CacheSystem& system, EventFdWaker& waker) { LoopDriver{session, system, waker}.run(); }

}  // namespace terrace::tools
