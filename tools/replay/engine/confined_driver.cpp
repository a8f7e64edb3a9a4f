#include "base/check.hpp"
#include "radix/groups/groups.hpp"
#include "runtime/cache/control/cache_manager.hpp"
#include "tools/replay/engine/scheduler.hpp"
#include "tools/replay/engine/session.hpp"
#include "tools/replay/engine/slot_reserve.hpp"
#include "tools/replay/options/options.hpp"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <deque>
#include <limits>
#include <memory>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

namespace terrace::tools {
namespace {

/// How many launched parts of steps may still be computed when the next step is decided.
constexpr std::size_t launches_ahead_max = 1;

SchedulerLimits limits_of(const ReplayOptions& options) {
  return {.step_tokens = options.reference ? std::numeric_limits<std::uint64_t>::max() : options.step_tokens,
          .in_flight_max = options.concurrency,
          .block_tokens = options.block_tokens};
}

/// A request that has lost or not got its blocks for this reason asks again: when something has changed, or an operator has
/// resumed what was cleared or paused.
bool is_asked_again(const ErrorCode& error) {
  return error == Errc::no_room || error == Errc::load_failed || error == Errc::cleared || error == Errc::paused;
}

class ConfinedDriver {
 public:
  ConfinedDriver(Session& session, CacheSystem& system, EventFdWaker& waker, std::uint32_t reserved_slots)
      : session_{session}, cache_{system.cache()}, waker_{waker}, scheduler_{limits_of(session.options()), session.engine()} {
    if (reserved_slots > 0) reserve_.emplace(cache_, reserved_slots);
    const ReplayOptions& options = session.options();
    const std::vector<PoolOptions> pools = pools_of(options);
    const std::vector<GroupConfig> groups = groups_of(options);
    const std::size_t counted = counted_group(groups);
    for (const GroupConfig& group : groups) {
      const GroupRule& rule = rules_.emplace_back(group, options.block_tokens);
      const PoolOptions& pool = pools[group.pool.value()];
      groups_.push_back({.id = GroupId{static_cast<std::uint16_t>(groups_.size())},
                         .pool = group.pool,
                         .counted = groups_.size() == counted,
                         .units = rule.units_per_block(),
                         .layers = pool.layers,
                         .null = pool.null_block ? std::optional{SlotId{pool.first_slot}} : std::nullopt});
    }
  }

  void run() {
    for (;;) {
      // First acknowledge earlier wakes, then look for work: an event that comes after this wakes the thread again.
      waker_.acknowledge();
      bool progress = collect();
      progress |= reap();
      if (session_.stopping()) {
        give_up();
        if (launched_.empty()) break;
      } else {
        progress |= take_requests();
        if (scheduler_.empty() && coming_.empty()) break;
        if (launched_.size() <= launches_ahead_max) progress |= step();
        if (!progress) check_not_stuck();
        if (session_.failed()) continue;  // do not sleep, because nothing might wake this thread
      }
      if (!progress) sleep();
    }
    if (reserve_) reserve_->give();
  }

  [[nodiscard]] std::uint64_t reserve_requests() const { return reserve_ ? reserve_->requests() : 0; }

 private:
  /// A request that was taken from the trace and has not ended.
  struct Flight : Served {
    Lease lease;
    Fence computed;                     ///< the fence of the last work launched for it
    std::uint64_t launched_tokens = 0;  ///< tokens since its last admission, including those from the cache
    std::uint32_t committed = 0;
    std::uint32_t layers = 0;  ///< leading layers of its hits that have arrived and are compared, while it waits
    bool matched = false;
    bool ending = false;  ///< all its work has been launched
  };
  /// A launched part of a step.
  struct Launch {
    std::uint64_t number = 0;
    std::shared_ptr<const ComputeBatch> batch;
    std::vector<RequestNumber> begun;  ///< requests that got their first hits in this launch
    std::vector<TimePoint> prompted;   ///< arrival times of the requests that get their first token in this launch
    std::vector<RequestNumber> ended;
  };

  // Each function that returns a bool tells whether anything happened. If so, the loop runs again before it sleeps.

  bool collect() {
    const std::span<const RequestEvent> events = cache_.poll();
    for (const RequestEvent& event : events) {
      const auto at = flights_.find(event.id.value());
      if (at == flights_.end() || !at->second->lease) continue;  // the request has given up its lease meanwhile
      Flight& flight = *at->second;
      if (!event.ends_wait()) {
        compare_layers(flight, event.layers);
        continue;
      }
      if (!event.error) {
        scheduler_.became_ready(at->first, hits_of(flight));
        continue;
      }
      end_lease(flight);
      scheduler_.lost(at->first);
      // A request of which layers were reported is not planned again. It is admitted again instead, as after a clear.
      if (!is_asked_again(event.error)) {
        session_.fail(fmt::format("request {} failed: {}", at->first, event.error.message()));
      }
    }
    return !events.empty();
  }

  bool reap() {
    const std::uint64_t done = session_.launches_done();
    bool any = false;
    for (; !launched_.empty() && launched_.front().number <= done; launched_.pop_front()) {
      const Launch& launch = launched_.front();
      for (const TimePoint came : launch.prompted) session_.first_tokens().add(steady_now() - came);
      for (const ComputeBatch::Hits& hits : launch.batch->hits) {
        const bool first = std::ranges::find(launch.begun, hits.request) != launch.begun.end();
        const auto at = flights_.find(hits.request);  // empty if the request was aborted meanwhile
        if (first && at != flights_.end()) at->second->compared += hits.compared;
      }
      for (const RequestNumber number : launch.ended) {
        Flight& ended = flight(number);
        if (ended.lease) {
          share(ended);
          if (session_.options().reference) cache_.drain();  // its blocks must still be pinned here
          session_.tell(ended.request, ended.lease);
          end_lease(ended);
        }
        session_.finish(ended.request, ended.stats, ended.compared);
        scheduler_.ended(number);
        flights_.erase(number);
      }
      any = true;
    }
    return any;
  }

  /// The request of the trace that comes `n` requests after the next one. Null: there is none.
  const Prepared* coming(std::size_t n) {
    while (coming_.size() <= n) {
      std::optional<Prepared> request = session_.next();
      if (!request) return nullptr;
      coming_.push_back(std::move(*request));
    }
    return &coming_[n];
  }

  /// Takes requests from the trace, as many as could be admitted and are due.
  bool take_requests() {
    announce();
    bool any = false;
    while (scheduler_.wants_more()) {
      const Prepared* const next = coming(0);
      if (next == nullptr || steady_now() < session_.due(*next)) break;
      any = true;
      Prepared request = std::move(coming_.front());
      coming_.pop_front();
      announced_ -= std::min<std::size_t>(announced_, 1);
      if (request.prompt_tokens == 0) {
        session_.finish(request, {}, 0);
        continue;
      }
      scheduler_.add({request.number, request.prompt_tokens, request.output_tokens, request.abort});
      auto flight = std::make_unique<Flight>();
      flight->came = session_.options().speed ? session_.due(request) : steady_now();
      flight->request = std::move(request);
      flights_.emplace(flight->request.number, std::move(flight));
    }
    return any;
  }

  /// Tells the cache of requests that will soon be due. A prefetch that is refused is no loss: the request loads its blocks
  /// itself.
  void announce() {
    if (!session_.options().prefetch_ahead) return;
    const auto ahead = std::chrono::duration_cast<Duration>(*session_.options().prefetch_ahead);
    for (;; ++announced_) {
      const Prepared* const request = coming(announced_);
      if (request == nullptr || steady_now() + ahead < session_.due(*request)) return;
      PrefetchOrder order;
      order.keys = session_.to_share(*request, request->prompt_tokens);
      order.tenant = session_.acquire_request(*request, request->prompt_tokens).tenant;
      if (!order.keys.empty()) (void)timed(session_.latencies().prefetch, [&] { return cache_.prefetch(order); });
    }
  }

  bool step() {
    bool progress = false;
    scheduler_.step([&](const Action& action) {
      const Answer answer = carry_out(action);
      progress |= answer.outcome != Answer::Outcome::no_room;
      return answer;
    });
    launch();
    cache_.end_step();
    return progress;
  }

  Answer carry_out(const Action& action) {
    switch (action.kind) {
      case Action::Kind::acquire: return acquire(action);
      case Action::Kind::compute: add_to_batch(action); break;
      case Action::Kind::extend: {
        const Flight& extended = flight(action.request);
        const Result<void> done =
            timed(session_.latencies().extend, [&] { return cache_.extend(extended.lease, HashUnits{action.blocks}); });
        // A request that has outgrown the pool is handled like one that finds no room.
        if (!done && done.error() != Errc::no_room && done.error() != Errc::never_fits) {
          session_.fail(extended.request, "extend", done.error());
        }
        if (!done) return {Answer::Outcome::no_room};
        break;
      }
      case Action::Kind::preempt: {
        Flight& preempted = flight(action.request);
        share(preempted);
        end_lease(preempted);
        preempted.launched_tokens = 0;
        preempted.preempted = true;
        break;
      }
      case Action::Kind::abort:
        if (Flight& aborted = flight(action.request); aborted.lease) end_lease(aborted);
        flights_.erase(action.request);
        break;
    }
    return {};
  }

  Answer acquire(const Action& action) {
    // Launched blocks are shared, so the request can find them.
    launch();
    Flight& flight = this->flight(action.request);
    AcquireRequest wanted = session_.acquire_request(flight.request, action.tokens.to);
    wanted.preempted = flight.preempted;
    TERRACE_CHECK(wanted.units.value() == action.blocks);
    CallLatencies& latencies = session_.latencies();
    if (!flight.matched) {
      (void)timed(latencies.match, [&] { return cache_.match(wanted.keys); });
      flight.matched = true;
    }
    const auto ask = [&] { return timed(latencies.acquire, [&] { return cache_.acquire(wanted); }); };
    if (reserve_ && !reserve_->take()) return {Answer::Outcome::no_room};
    if (reserve_) reserve_->give();
    Result<Lease> lease = ask();
    while (reserve_ && lease) {
      // The hits free their host slots when they are loaded.
      const Result<void> ready = cache_.wait(*lease);
      if (ready) break;
      cache_.release(std::move(*lease), flight.computed);
      // Blocks that a clear or a failed load took are asked for again at once, because nothing would wake this thread.
      if (ready.error() == Errc::cleared || ready.error() == Errc::load_failed) lease = ask();
      else lease = ready.error();
    }
    if (lease) flight.lease = std::move(*lease);
    flight.layers = 0;
    // If it cannot be taken now, the next request takes it first.
    if (reserve_) (void)reserve_->take();
    if (lease) {
      if (cache_.state(flight.lease) != RequestState::ready) return {Answer::Outcome::pending};
      return {Answer::Outcome::done, hits_of(flight)};
    }
    if (lease.error() == Errc::never_fits) {
      session_.reject();
      flights_.erase(action.request);
      return {Answer::Outcome::never_fits};
    }
    if (!is_asked_again(lease.error())) {
      session_.fail(
          fmt::format("request {} ({} blocks) was refused: {}", action.request, wanted.units.value(), lease.error().message()));
    }
    return {Answer::Outcome::no_room};
  }

  /// Returns how many blocks a request that has just become ready got from the cache.
  std::uint32_t hits_of(Flight& flight) {
    const auto sources = cache_.hit_sources(flight.lease);
    TERRACE_CHECK(sources);
    flight.committed = static_cast<std::uint32_t>(sources->size());
    flight.has_new_hits = true;
    return flight.committed;
  }

  /// Launches a comparison of the layers that have arrived since the last one. The step does not wait for it.
  void compare_layers(Flight& flight, std::uint32_t layers) {
    ++session_.engine().layer_events;
    auto batch = std::make_shared<ComputeBatch>();
    add_hits(*batch, flight, LayerRange{flight.layers, layers - flight.layers});
    flight.layers = layers;
    const Launched launched = session_.launch(batch);
    flight.computed = launched.fence;
    launched_.push_back({launched.number, std::move(batch), {}, {}, {}});
  }

  /// Adds the hits of the request in every group that serves them.
  void add_hits(ComputeBatch& batch, const Flight& flight, std::optional<LayerRange> layers) {
    const auto sources = cache_.hit_sources(flight.lease);
    TERRACE_CHECK(sources);
    for (std::size_t g = 0; g < groups_.size(); ++g) {
      BatchGroup group = groups_[g];
      const auto table = cache_.block_table(flight.lease, group.id);
      TERRACE_CHECK(table);
      if (cache_.group_state(flight.lease, group.id) == GroupState::does_not_serve) continue;
      if (!rules_[g].chained()) group.first = rules_[g].first_needed(sources->size() * session_.options().block_tokens);
      batch.add_hits(flight.request.number, flight.request.keys, *sources, *table, group, layers);
    }
  }

  void add_to_batch(const Action& action) {
    Flight& flight = this->flight(action.request);
    const Prepared& request = flight.request;
    if (flight.has_new_hits) {
      const auto sources = cache_.hit_sources(flight.lease);
      const auto stats = cache_.request_stats(flight.lease);
      TERRACE_CHECK(sources && stats);
      add_hits(batch_, flight, std::nullopt);
      if (flight.begun) {
        session_.engine().hits_again += sources->size();
      } else {
        flight.stats = *stats;
      }
      flight.has_new_hits = false;
    }
    for (std::size_t g = 0; g < groups_.size(); ++g) {
      const auto table = cache_.block_table(flight.lease, groups_[g].id);
      TERRACE_CHECK(table);
      batch_.add_tokens(request.number, request.keys, *table, rules_[g].config().block_tokens, action.tokens, groups_[g]);
    }
    flight.ending = action.last;
    members_.push_back(action);
  }

  /// Launches the batch that was gathered, and shares the blocks that it fills.
  void launch() {
    if (members_.empty()) return;
    auto batch = std::make_shared<ComputeBatch>(std::exchange(batch_, {}));
    const Launched launched = session_.launch(batch);
    Launch launch;
    launch.number = launched.number;
    launch.batch = std::move(batch);
    for (const Action& member : members_) {
      Flight& flight = this->flight(member.request);
      flight.computed = launched.fence;
      if (!flight.begun) launch.begun.push_back(member.request);
      flight.begun = true;
      flight.launched_tokens = member.tokens.to;
      if (!flight.prompted && member.tokens.to >= flight.request.prompt_tokens) {
        flight.prompted = true;
        launch.prompted.push_back(flight.came);
      }
      share(flight);
      advance(flight);
      if (!member.last) continue;
      launch.ended.push_back(member.request);
      if (session_.options().release != Release::launch) continue;
      session_.tell(flight.request, flight.lease);
      end_lease(flight);
    }
    members_.clear();
    launched_.push_back(std::move(launch));
  }

  /// Shares the full blocks of the request that are computed, or that will be computed when its fence is reached.
  void share(Flight& flight) {
    const std::span<const BlockKey> keys = session_.to_share(flight.request, flight.launched_tokens);
    if (keys.size() <= flight.committed) return;
    const auto duplicates =
        timed(session_.latencies().commit, [&] { return cache_.commit(flight.lease, keys, flight.computed); });
    if (!duplicates) {
      session_.fail(flight.request, "commit", duplicates.error());
      return;
    }
    // A commit stops before a block that is being loaded. The next commit continues from there.
    const std::uint32_t prompt_blocks = flight.request.prompt_blocks;
    const std::uint32_t before = std::max(flight.committed, prompt_blocks);
    flight.committed = cache_.manager().requests().committed_units(flight.lease.id()).value();
    session_.engine().output_blocks += std::max(flight.committed, before) - before;
  }

  /// Gives up the blocks of window and state groups to which no later token attends.
  void advance(const Flight& flight) {
    if (groups_.size() == 1) return;
    const Result<void> advanced = cache_.advance(flight.lease, flight.launched_tokens, flight.computed);
    if (!advanced) session_.fail(flight.request, "advance", advanced.error());
  }

  void end_lease(Flight& flight) {
    timed(session_.latencies().release, [&] { cache_.release(std::move(flight.lease), flight.computed); });
  }

  /// Drops all requests except those whose work has been launched completely.
  void give_up() {
    std::erase_if(flights_, [this](auto& entry) {
      Flight& flight = *entry.second;
      if (flight.ending) return false;
      if (flight.lease) end_lease(flight);
      return true;
    });
  }

  /// Fails the session if requests wait although nothing is under way that could end their wait.
  void check_not_stuck() {
    if (!launched_.empty() || scheduler_.empty() || cache_.has_pending_work()) return;
    if (cache_.status() != CacheStatus::normal) return;  // an operator resumes it
    session_.fail(fmt::format("{} requests wait for blocks that will never become free", flights_.size()));
  }

  /// Sleeps until the cache or the computation has something to report, a signal comes, or the next request is due.
  void sleep() {
    TimePoint until = cache_.next_deadline();
    if (!coming_.empty() && !session_.stopping()) {
      if (scheduler_.wants_more()) until = std::min(until, session_.due(coming_.front()));
      const auto& ahead = session_.options().prefetch_ahead;
      if (ahead && announced_ < coming_.size()) {
        until = std::min(until, session_.due(coming_[announced_]) - std::chrono::duration_cast<Duration>(*ahead));
      }
    }
    timespec timeout{};
    if (const TimePoint present = steady_now(); until != never && until > present) {
      const auto left = std::chrono::duration_cast<std::chrono::nanoseconds>(until - present).count();
      constexpr std::int64_t second = 1'000'000'000;
      timeout.tv_sec = static_cast<time_t>(left / second);
      timeout.tv_nsec = static_cast<long>(left % second);
    }
    std::array<pollfd, 2> entries{pollfd{cache_.wake_fd(), POLLIN, 0}, pollfd{waker_.fd(), POLLIN, 0}};
    ::ppoll(entries.data(), entries.size(), until == never ? nullptr : &timeout, nullptr);
  }

  [[nodiscard]] Flight& flight(RequestNumber number) { return *flights_.at(number); }

  Session& session_;
  Cache& cache_;
  EventFdWaker& waker_;
  std::optional<SlotReserve> reserve_;
  std::vector<GroupRule> rules_;    ///< by GroupId
  std::vector<BatchGroup> groups_;  ///< by GroupId

  Scheduler scheduler_;
  std::unordered_map<RequestNumber, std::unique_ptr<Flight>> flights_;  ///< by number; the same requests as in scheduler_
  std::deque<Prepared> coming_;  ///< the next requests of the trace, which are not due yet or cannot be admitted
  std::size_t announced_ = 0;    ///< the first of them, of which the cache has been told (ReplayOptions::prefetch_ahead)
  ComputeBatch batch_;
  std::vector<Action> members_;  ///< the computations in batch_
  std::deque<Launch> launched_;
};

}  // namespace

std::uint64_t run_confined(Session& session, CacheSystem& system, EventFdWaker& waker, std::uint32_t reserved_slots) {
  ConfinedDriver driver{session, system, waker, reserved_slots};
  driver.run();
  return driver.reserve_requests();
}

}  // namespace terrace::tools
