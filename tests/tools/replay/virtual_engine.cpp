#include "tests/tools/replay/virtual_engine.hpp"

#include "base/check.hpp"
#include "runtime/cache/control/cache_manager.hpp"
#include "runtime/engine/cache_parts.hpp"

#include <boost/asio/bind_cancellation_slot.hpp>

#include <algorithm>
#include <chrono>
#include <utility>

namespace terrace::test {
namespace {

using namespace std::chrono_literals;
using tools::Action;
using tools::Answer;
using tools::RequestNumber;

constexpr tools::SchedulerLimits limits{.step_tokens = 512, .in_flight_max = 8, .block_tokens = VirtualEngine::block_tokens};
constexpr Duration step_time = 5ms;
constexpr Duration token_time = 50us;

/// A block stands for one of 64 KiB: a piece has as many of them as it would have then.
TransferSchedulerConfig transfer_config() {
  constexpr Bytes stands_for = KiB * 64;
  constexpr std::uint64_t scale = stands_for / VirtualEngine::block_bytes;
  TransferSchedulerConfig config;
  config.pieces.bytes = Bytes{count(config.pieces.bytes) / scale};
  config.pieces.bytes_in_flight = Bytes{count(config.pieces.bytes_in_flight) / scale};
  return config;
}

std::unique_ptr<FileStore> make_store(const VirtualOptions& options, SimulatedIo& disk) {
  if (!options.manager.storage) return nullptr;
  FileStoreConfig config;
  config.directory = "/store";
  config.block_bytes = VirtualEngine::block_bytes;
  config.capacity = VirtualEngine::block_bytes * (options.stored_blocks + 64);  // including the catalog
  return std::make_unique<FileStore>(config, disk);
}

}  // namespace

VirtualEngine::VirtualEngine(const VirtualOptions& options)
    : options_{options},
      arena_{options.manager.pools[0].host_blocks + options.manager.pools[0].staging_blocks, block_bytes, MiB},
      device_{options.manager.pools[0].device_blocks, arena_, 1},
      transfers_{transfer_config(), device_, clock_, waker_},
      store_{make_store(options, disk_)},
      scheduler_{limits, counts_} {
  cache_ = std::make_unique<Cache>(options.manager, CacheParts{transfers_, {{&arena_, store_.get()}}, clock_, &waker_});
  if (options.disk_stops_after) disk_stops_ = clock_.now() + *options.disk_stops_after;
  if (options.mode == tools::Mode::loop) runtime_ = std::make_unique<AsyncCache>(loop_.get_executor(), *cache_);
}

VirtualEngine::~VirtualEngine() {
  flights_.clear();
  options_.disk_operation = 1us;  // the disk is repaired
  disk_stops_ = never;
  for (bool stopped = runtime_ == nullptr; !stopped || cache_->has_pending_work();) {
    const auto handler = [&stopped](ErrorCode, const WorkLeft&) { stopped = true; };
    if (!stopped) runtime_->stop(handler);
    pass(1ms);
    device_.run();
    link();
  }
  runtime_.reset();
  cache_->manager().check_invariants();
}

VirtualResult VirtualEngine::run(std::span<const VirtualRequest> requests) {
  VirtualResult result;
  const TimePoint begin = clock_.now();
  RequestNumber last = 0;
  result.first_tokens.resize(requests.size());
  for (;;) {
    for (; last < requests.size() && scheduler_.wants_more(); ++last) {
      const VirtualRequest& request = requests[last];
      scheduler_.add({last + 1, request.prompt_tokens, request.output_tokens, {}});
      Flight& flight = flights_[last + 1];
      flight.request = &request;
      flight.came = clock_.now();
    }
    if (scheduler_.empty()) break;
    link();
    tell_scheduler();
    step(result);
    TERRACE_CHECK(clock_.now() - begin < 1h);
  }
  result.counts = counts_;
  result.took = clock_.now() - begin;
  result.stats = cache_->manager().stats();
  if (store_) result.store = store_->stat();
  return result;
}

void VirtualEngine::step(VirtualResult& result) {
  tokens_ = 0;
  scheduler_.step([this](const Action& action) { return carry_out(action); });
  launch();
  pass(tokens_ > 0 ? step_time + token_time * tokens_ : 1ms);
  device_.run();
  for (const RequestNumber number : std::exchange(prompted_, {})) {
    result.first_tokens[number - 1] = clock_.now() - flights_.at(number).came;
  }
  for (const RequestNumber number : std::exchange(ended_, {})) {
    end_lease(flights_.at(number));
    flights_.erase(number);
    scheduler_.ended(number);
  }
}

Answer VirtualEngine::carry_out(const Action& action) {
  using Kind = Action::Kind;
  switch (action.kind) {
    case Kind::acquire: return acquire(action);
    case Kind::compute:
      tokens_ += action.tokens.size();
      members_.push_back({action.request, action.tokens.to, action.last});
      break;
    case Kind::extend:
      return {extend(flights_.at(action.request), action.blocks) ? Answer::Outcome::done : Answer::Outcome::no_room};
    case Kind::preempt: {
      Flight& flight = flights_.at(action.request);
      if (flight.lease && !flight.pending) share(flight);
      end_lease(flight);
      flight.launched_tokens = 0;
      link();
      break;
    }
    default: break;
  }
  return {};
}

Answer VirtualEngine::acquire(const Action& action) {
  launch();
  Flight& flight = flights_.at(action.request);
  AcquireRequest wanted;
  wanted.id = RequestId{action.request};
  const std::size_t full = action.tokens.to / block_tokens;
  wanted.keys = std::span{flight.request->keys}.first(std::min(full, flight.request->keys.size()));
  wanted.units = HashUnits{action.blocks};
  wanted.hit_units_max = HashUnits{static_cast<std::uint32_t>((action.tokens.to - 1) / block_tokens)};
  wanted.farthest_source = options_.farthest_source;
  flight.pending = true;
  flight.failed = false;
  if (runtime_) {
    flight.cancel = std::make_unique<asio::cancellation_signal>();
    const auto handler = [this, number = action.request](ErrorCode error, Grant grant) {
      flights_.at(number).lease = std::move(grant.lease);
      granted(number, error);
    };
    runtime_->acquire(wanted, asio::bind_cancellation_slot(flight.cancel->slot(), handler));
  } else {
    Result<Lease> lease = cache_->acquire(wanted);
    if (!lease) {
      TERRACE_CHECK(lease.error() == Errc::no_room);
      flight.pending = false;
      return {Answer::Outcome::no_room};
    }
    flight.lease = std::move(*lease);
    if (cache_->state(flight.lease) == RequestState::ready) granted(action.request, {});
  }
  if (flight.pending) link();
  flight.told_pending = flight.pending || flight.failed;
  if (flight.told_pending) return {Answer::Outcome::pending};
  return {Answer::Outcome::done, static_cast<std::uint32_t>(flight.hits)};
}

/// The wait has ended: the request is ready, or holds nothing.
void VirtualEngine::granted(RequestNumber number, ErrorCode error) {
  Flight& flight = flights_.at(number);
  flight.pending = false;
  flight.failed = static_cast<bool>(error);
  flight.hits = flight.failed ? 0 : cache_->hit_sources(flight.lease)->size();
  flight.committed = flight.hits;
  if (flight.failed) flight.lease.reset();
}

bool VirtualEngine::extend(Flight& flight, std::uint32_t blocks) {
  if (!runtime_) return cache_->extend(flight.lease, HashUnits{blocks}).has_value();
  ErrorCode how = Errc::paused;
  const auto handler = [&how](ErrorCode error, const std::vector<SlotId>&) { how = error; };
  runtime_->extend(flight.lease, HashUnits{blocks}, handler);
  collect();
  return !how;
}

/// The decided work is computed by the end of the step. Its full blocks are shared.
void VirtualEngine::launch() {
  if (members_.empty()) return;
  const Fence fence = device_.launch([](BlockAccess&) {});
  for (const Member& member : std::exchange(members_, {})) {
    Flight& flight = flights_.at(member.request);
    flight.computed = fence;
    flight.launched_tokens = member.tokens_end;
    if (!flight.prompted && member.tokens_end >= flight.request->prompt_tokens) {
      flight.prompted = true;
      prompted_.push_back(member.request);
    }
    share(flight);
    if (member.last) ended_.push_back(member.request);
  }
}

void VirtualEngine::share(Flight& flight) {
  const std::size_t full = std::min<std::size_t>(flight.launched_tokens / block_tokens, flight.request->keys.size());
  if (full <= flight.committed) return;
  const std::span<const BlockKey> keys = std::span{flight.request->keys}.first(full);
  if (runtime_) {
    const auto handler = [](ErrorCode error, const Commit&) { TERRACE_CHECK(!error); };
    runtime_->commit(flight.lease, keys, flight.computed, handler);
    collect();
  } else {
    TERRACE_CHECK(cache_->commit(flight.lease, keys, flight.computed).has_value());
  }
  flight.committed = cache_->committed_units(flight.lease)->value();
}

void VirtualEngine::end_lease(Flight& flight) {
  if (runtime_ && flight.pending) {
    flight.cancel->emit(asio::cancellation_type::total);
    collect();
  } else if (flight.lease) {
    flight.lease.used_until(flight.computed);
    flight.lease.reset();
    if (runtime_) collect();
  }
  flight.pending = flight.told_pending = false;
}

void VirtualEngine::tell_scheduler() {
  for (auto& [number, flight] : flights_) {
    if (!flight.told_pending || flight.pending) continue;
    flight.told_pending = false;
    if (flight.failed) {
      scheduler_.lost(number);
    } else {
      scheduler_.became_ready(number, static_cast<std::uint32_t>(flight.hits));
    }
  }
}

void VirtualEngine::link() {
  const auto next = [this] {
    const std::vector<SimulatedDevice::Part> parts = device_.step_options();
    const auto copy = std::ranges::find_if(parts, [](auto part) { return part != SimulatedDevice::Part::compute; });
    return copy == parts.end() ? std::nullopt : std::optional{*copy};
  };
  // A transfer that one poll decides is given to the device by the next poll.
  for (int quiet = 0; quiet < 2; ++quiet) {
    for (auto part = next(); part; part = next()) {
      device_.step(*part);
      quiet = -1;
    }
    collect();
  }
}

void VirtualEngine::collect() {
  if (runtime_) {
    waker_.wake();
    loop_.poll();
    return;
  }
  for (const RequestEvent& event : cache_->poll()) granted(event.id.value(), event.error);
}

void VirtualEngine::pass(Duration time) {
  const TimePoint end = clock_.now() + time;
  if (disk_is_idle_) disk_began_ = clock_.now();
  const TimePoint works_until = std::min(end, disk_stops_);
  while (options_.disk_operation && disk_.queued() > 0 && disk_began_ + *options_.disk_operation <= works_until) {
    disk_began_ += *options_.disk_operation;
    disk_.step(0);
  }
  disk_is_idle_ = disk_.queued() == 0;
  clock_.advance(end - clock_.now());
}

}  // namespace terrace::test
