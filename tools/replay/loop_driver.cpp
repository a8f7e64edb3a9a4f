#include "tools/replay/loop_driver.hpp"

#include "base/check.hpp"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <fmt/format.h>

#include <chrono>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

namespace terrace::tools {
namespace {

constexpr auto as_result = asio::as_tuple(asio::use_awaitable);
/// How often a request that lost what it counted on is tried again.
constexpr int attempts_max = 100;
constexpr auto interrupted_wait = std::chrono::seconds{10};

TimePoint now() { return std::chrono::steady_clock::now(); }

/// As Runtime::acquire, and measures the call alone, not the wait for blocks.
template <class Token>
auto timed_acquire(Runtime& runtime, const AcquireRequest& request, Latencies& latencies, Token&& token) {
  return asio::async_initiate<Token, void(ErrorCode, Grant)>(
      [&runtime, &latencies](auto handler, const AcquireRequest& wanted) {
        const TimePoint begin = now();
        runtime.acquire(wanted, std::move(handler));
        latencies.add(now() - begin);
      },
      token, request);
}

}  // namespace

LoopDriver::LoopDriver(Session& session, Stack& stack, EventFdWaker& waker, const Interrupt& interrupt)
    : session_{session},
      device_{stack.device()},
      waker_{waker},
      interrupt_{interrupt},
      context_{static_cast<int>(session.options().threads)},
      strand_{asio::make_strand(asio::any_io_executor{context_.get_executor()})},
      runtime_{context_.get_executor(), stack.cache()},
      wakes_{strand_, waker.fd()},
      changed_{strand_} {}

void LoopDriver::run() {
  began_ = now();
  watch_wakes();
  asio::co_spawn(strand_, serve_all(), [this](std::exception_ptr error) {
    wakes_.release();  // the descriptor is the waker's
    if (error) std::rethrow_exception(error);
  });
  std::vector<std::jthread> others;
  for (std::uint32_t i = 1; i < session_.options().threads; ++i) others.emplace_back([this] { context_.run(); });
  context_.run();
}

asio::awaitable<void> LoopDriver::serve_all() {
  while (!stopping()) {
    if (in_flight_ >= session_.options().concurrency) {
      co_await wait_for_change(never);
      continue;
    }
    std::optional<Prepared> request = session_.next();
    if (!request) break;
    const bool is_due = co_await wait_until_due(request->timestamp_ms);
    if (!is_due) break;
    ++in_flight_;
    asio::co_spawn(strand_, serve(std::move(*request)), [this](std::exception_ptr error) { ended(error); });
  }
  std::optional<TimePoint> stop_waiting_at;
  while (in_flight_ > 0) {
    if (stopping() && !stop_waiting_at) stop_waiting_at = now() + interrupted_wait;
    if (stop_waiting_at && now() >= *stop_waiting_at) break;
    co_await wait_for_change(stop_waiting_at.value_or(never));
  }
  // Fails those that still wait; those that have their blocks end first.
  auto [error, left] = co_await runtime_.stop(as_result);
  TERRACE_CHECK(!error && left == 0);
  while (in_flight_ > 0) co_await wait_for_change(never);
}

asio::awaitable<void> LoopDriver::serve(Prepared request) {
  if (request.blocks == 0) {
    session_.finish(request, {});
    co_return;
  }
  CallLatencies& latencies = session_.latencies();
  TimePoint begin = now();
  const std::span<const BlockKey> keys{request.keys};
  co_await runtime_.match(keys, as_result);
  latencies.match.add(now() - begin);

  const AcquireRequest wanted = session_.acquire_request(request);
  ErrorCode error;
  Grant grant;
  for (int attempt = 0; attempt < attempts_max; ++attempt) {
    std::tie(error, grant) = co_await timed_acquire(runtime_, wanted, latencies.acquire, as_result);
    if (error != Errc::no_room) break;
  }
  if (error == Errc::never_fits) {
    session_.reject();
    co_return;
  }
  if (error == Errc::stopped && stopping()) co_return;
  if (error) {
    session_.fail(fmt::format("request {} ({} blocks) was refused: {}", request.number, request.blocks, error.message()));
    co_return;
  }

  auto job = std::make_shared<ComputeJob>();
  job->request = request.number;
  job->keys = request.keys;
  job->hit_tiers = std::move(grant.hit_tiers);
  job->slots = std::move(grant.table);
  const Fence fence = session_.launch(device_, std::move(job));
  // A launch of its own: when it runs, the one before it has been reached.
  device_.launch([waker = &waker_](BlockAccess&) { waker->wake(); });
  Computing computing{fence, asio::steady_timer{strand_, never}};
  computing_.push_back(&computing);
  grant.lease.used_until(fence);

  begin = now();
  auto [commit_error, duplicates] = co_await runtime_.commit(grant.lease, keys, fence, as_result);
  latencies.commit.add(now() - begin);
  if (commit_error) session_.fail(fmt::format("request {}: commit failed: {}", request.number, commit_error.message()));

  if (session_.options().release == Release::done) co_await wait_for_compute(computing);
  begin = now();
  grant.lease.reset();
  latencies.release.add(now() - begin);
  co_await wait_for_compute(computing);
  session_.finish(request, grant.stats);
}

/// False where the replay stops before.
asio::awaitable<bool> LoopDriver::wait_until_due(double timestamp_ms) {
  const std::optional<double> speed = session_.options().speed;
  if (!speed) co_return true;
  if (!first_timestamp_ms_) first_timestamp_ms_ = timestamp_ms;
  const std::chrono::duration<double, std::milli> after{(timestamp_ms - *first_timestamp_ms_) / *speed};
  const TimePoint due = began_ + std::chrono::duration_cast<Duration>(after);
  while (!stopping() && now() < due) co_await wait_for_change(due);
  co_return !stopping();
}

asio::awaitable<void> LoopDriver::wait_for_change(TimePoint until) {
  changed_.expires_at(until);
  ErrorCode ignored;  // cancelled: something changed
  co_await changed_.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
}

asio::awaitable<void> LoopDriver::wait_for_compute(Computing& computing) {
  ErrorCode ignored;  // cancelled: reached
  if (!computing.reached) co_await computing.timer.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
}

/// Compute only wakes; it touches nothing of the loop, whose objects end before the device's threads do.
void LoopDriver::watch_wakes() {
  wakes_.async_wait(asio::posix::stream_descriptor::wait_read, [this](const ErrorCode& error) {
    if (error) return;
    waker_.acknowledge();
    for (const Fence reached = device_.reached(); !computing_.empty() && computing_.front()->fence <= reached;
         computing_.pop_front()) {
      computing_.front()->reached = true;
      computing_.front()->timer.cancel();
    }
    if (interrupt_.requested()) changed_.cancel();
    watch_wakes();
  });
}

void LoopDriver::ended(std::exception_ptr error) {
  --in_flight_;
  changed_.cancel();
  if (!error) return;
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& failure) {
    session_.fail(failure.what());
  }
}

}  // namespace terrace::tools
