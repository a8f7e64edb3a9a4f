#include "tools/replay/confined_driver.hpp"

#include "base/check.hpp"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <utility>

namespace terrace::tools {
namespace {

/// How long requests that wait for their blocks are waited for after an interruption.
constexpr auto interrupted_wait = std::chrono::seconds{10};

TimePoint now() { return std::chrono::steady_clock::now(); }

}  // namespace

ConfinedDriver::ConfinedDriver(Session& session, Stack& stack, EventFdWaker& waker, const Interrupt& interrupt)
    : session_{session}, cache_{stack.cache()}, device_{stack.device()}, waker_{waker}, interrupt_{interrupt} {}

void ConfinedDriver::run() {
  began_ = now();
  for (;;) {
    // Before looking: what happens after this wakes again.
    waker_.acknowledge();
    bool progress = collect();
    progress |= reap();
    if (!stopping()) {
      if (session_.options().reference && in_flight() == 0) cache_.drain();
      progress |= admit();
      if (in_flight() == 0 && !next_ && !progress) return;
    } else {
      if (in_flight() == 0) return;
      if (!stop_waiting_at_) stop_waiting_at_ = now() + interrupted_wait;
      if (now() >= *stop_waiting_at_) give_up_pending();
    }
    if (!progress) sleep();
  }
}

bool ConfinedDriver::collect() {
  const std::span<const RequestEvent> events = cache_.poll();
  for (const RequestEvent& event : events) {
    auto node = pending_.extract(event.id.value());
    if (node.empty()) continue;  // given up meanwhile
    std::unique_ptr<Flight> flight = std::move(node.mapped());
    if (!event.error) {
      start(std::move(flight));
      continue;
    }
    end_lease(*flight);
    if (event.error == Errc::no_room) {
      again_.push_back(std::move(flight));
    } else {
      session_.fail(fmt::format("request {} failed: {}", flight->request.number, event.error.message()));
    }
  }
  return !events.empty();
}

bool ConfinedDriver::reap() {
  const Fence reached = device_.reached();
  bool any = false;
  while (!computing_.empty() && computing_.front()->computed <= reached) {
    const std::unique_ptr<Flight> flight = std::move(computing_.front());
    computing_.pop_front();
    if (flight->lease) {
      // A commit stops before a block that is being loaded; by now it is there.
      const auto committed = cache_.manager().committed_blocks(flight->lease.id());
      if (committed && *committed < flight->request.keys.size()) commit(*flight);
      end_lease(*flight);
    }
    session_.finish(flight->request, flight->stats);
    any = true;
  }
  return any;
}

bool ConfinedDriver::admit() {
  bool any = false;
  while (in_flight() < session_.options().concurrency && !stopping()) {
    if (!next_ && !again_.empty()) {
      next_ = std::move(again_.front());
      again_.pop_front();
    }
    if (!next_) {
      std::optional<Prepared> request = session_.next();
      if (!request) break;
      next_ = std::make_unique<Flight>();
      next_->request = std::move(*request);
      any = true;
    }
    if (now() < due(next_->request)) break;
    if (try_admit(next_) == Admission::later) break;
    next_.reset();
    any = true;
    // One at a time, and each to its end.
    if (session_.options().reference) break;
  }
  return any;
}

/// Takes the flight, but where it has to wait for room.
ConfinedDriver::Admission ConfinedDriver::try_admit(std::unique_ptr<Flight>& flight) {
  const Prepared& request = flight->request;
  if (request.blocks == 0) {
    session_.finish(request, {});
    return Admission::decided;
  }
  CallLatencies& latencies = session_.latencies();
  if (!flight->matched) {
    (void)timed(latencies.match, [&] { return cache_.match(request.keys); });
    flight->matched = true;
  }
  Result<Lease> lease = timed(latencies.acquire, [&] { return cache_.acquire(session_.acquire_request(request)); });
  if (!lease) {
    if (lease.error() == Errc::never_fits) {
      session_.reject();
      return Admission::decided;
    }
    // With nothing in flight and nothing under way, room will never come.
    const bool stuck = in_flight() == 0 && !cache_.has_pending_work();
    if (lease.error() == Errc::no_room && !stuck) return Admission::later;
    session_.fail(fmt::format("request {} ({} blocks) was refused: {}", request.number, request.blocks, lease.error().message()));
    return Admission::decided;
  }
  flight->lease = std::move(*lease);
  if (cache_.ready(flight->lease)) {
    start(std::move(flight));
  } else {
    const std::uint64_t number = request.number;
    pending_.emplace(number, std::move(flight));
  }
  return Admission::decided;
}

/// Everything the request needs is there: its work goes to the device, its blocks are shared, and compute wakes us.
void ConfinedDriver::start(std::unique_ptr<Flight> flight) {
  const auto slots = cache_.block_table(flight->lease);
  const auto tiers = cache_.hit_tiers(flight->lease);
  const auto stats = cache_.request_stats(flight->lease);
  TERRACE_CHECK(slots && tiers && stats);
  flight->stats = *stats;
  auto job = std::make_shared<ComputeJob>();
  job->request = flight->request.number;
  job->keys = flight->request.keys;
  job->hit_tiers.assign(tiers->begin(), tiers->end());
  job->slots.assign(slots->begin(), slots->end());
  flight->computed = session_.launch(device_, std::move(job));
  // A launch of its own: when it runs, the one before it has been reached.
  device_.launch([waker = &waker_](BlockAccess&) { waker->wake(); });
  commit(*flight);
  if (session_.options().release == Release::launch) end_lease(*flight);
  computing_.push_back(std::move(flight));
}

void ConfinedDriver::commit(const Flight& flight) {
  const auto duplicates = timed(session_.latencies().commit,
                                [&] { return cache_.commit(flight.lease, flight.request.keys, flight.computed); });
  if (!duplicates) {
    session_.fail(fmt::format("request {}: commit failed: {}", flight.request.number, duplicates.error().message()));
  }
}

void ConfinedDriver::end_lease(Flight& flight) {
  const auto begin = now();
  cache_.release(std::move(flight.lease), flight.computed);
  session_.latencies().release.add(now() - begin);
}

void ConfinedDriver::give_up_pending() {
  for (auto& [number, flight] : pending_) end_lease(*flight);
  pending_.clear();
}

/// Until something is to be collected, compute has got on, a signal came, or the next request is due.
void ConfinedDriver::sleep() {
  TimePoint until = std::min(cache_.next_deadline(), stop_waiting_at_.value_or(never));
  if (next_ && !stopping() && in_flight() < session_.options().concurrency) {
    const TimePoint next_due = due(next_->request);
    if (now() < next_due) until = std::min(until, next_due);
  }
  timespec timeout{};
  if (until != never) {
    const auto left = std::max<std::int64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(until - now()).count(), 0);
    constexpr std::int64_t second = 1'000'000'000;
    timeout.tv_sec = static_cast<time_t>(left / second);
    timeout.tv_nsec = static_cast<long>(left % second);
  }
  std::array<pollfd, 2> entries{pollfd{cache_.wake_fd(), POLLIN, 0}, pollfd{waker_.fd(), POLLIN, 0}};
  ::ppoll(entries.data(), entries.size(), until == never ? nullptr : &timeout, nullptr);
}

TimePoint ConfinedDriver::due(const Prepared& request) {
  const std::optional<double> speed = session_.options().speed;
  if (!speed) return began_;
  if (!first_timestamp_ms_) first_timestamp_ms_ = request.timestamp_ms;
  const std::chrono::duration<double, std::milli> after{(request.timestamp_ms - *first_timestamp_ms_) / *speed};
  return began_ + std::chrono::duration_cast<Duration>(after);
}

}  // namespace terrace::tools
