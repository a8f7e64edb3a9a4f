#include "lab/room/room_model.hpp"

#include "base/check.hpp"
#include "base/waker.hpp"
#include "runtime/cache/types/config.hpp"
#include "runtime/engine/cache_parts.hpp"
#include "terrace/cache.hpp"
#include "transfer/emulated/timed_device.hpp"
#include "transfer/engine/transfer_engine.hpp"
#include "transfer/host/host_arena.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <queue>
#include <unordered_map>
#include <utility>

namespace terrace::tools {
namespace {

constexpr Bytes host_slot_bytes = Bytes{64};  // no bytes are moved, so host slots can be small

ManagerConfig config_of(const RoomModel& model) {
  ManagerConfig config;
  config.pools[0].device_blocks = model.device_blocks;
  config.pools[0].host_blocks = model.host_blocks;
  config.device_reserve_max = model.device_reserve_max;
  config.inclusion = model.inclusion;
  config.policy = model.policy;
  config.unit_prefill_seconds = model.block_tokens / model.prefill_speed;
  return config;
}

Duration seconds(double count) { return std::chrono::round<Duration>(std::chrono::duration<double>{count}); }

class Server {
 public:
  Server(std::span<const RoomRequest> requests, const RoomModel& model)
      : requests_{requests},
        model_{model},
        arena_{model.host_blocks, host_slot_bytes},
        device_{{DevicePool{.slots = model.device_blocks, .block_bytes = model.block_bytes}},
                {model.link_bandwidth, model.notice},
                clock_},
        transfers_{{}, device_, clock_, waker_},
        cache_{config_of(model), CacheParts{transfers_, {{&arena_, nullptr}}, clock_, nullptr}} {}

  ~Server() {
    flights_.clear();
    while (cache_.has_pending_work()) {
      (void)cache_.poll();
      const TimePoint next = device_.next_notice();
      if (next != never) clock_.advance(next - clock_.now());
    }
  }
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  RoomResult run() {
    for (;;) {
      arrive();
      while (collect() || end_due() || admit()) {
      }
      const TimePoint next = next_event();
      if (next == never) break;
      clock_.advance(std::max(next - clock_.now(), Duration{1}));
    }
    result_.swapped_out = cache_.moved().swap_out.bytes;
    result_.swapped_in = cache_.moved().swap_in.bytes;
    if (!requests_.empty()) result_.lasted = clock_.now() - arrival(0);
    return std::move(result_);
  }

 private:
  enum class Stage : unsigned char { waiting, prefill, output };
  struct Flight {
    Lease lease;
    TimePoint accepted;
    Stage stage = Stage::waiting;
  };
  struct End {
    TimePoint at;
    std::size_t request;
    bool operator>(const End& other) const { return std::pair{at, request} > std::pair{other.at, other.request}; }
  };

  [[nodiscard]] TimePoint arrival(std::size_t request) const { return begin_ + requests_[request].arrival; }
  [[nodiscard]] TimePoint next_event() const {
    TimePoint next = device_.next_notice();
    if (arrived_ < requests_.size()) next = std::min(next, arrival(arrived_));
    if (!ends_.empty()) next = std::min(next, ends_.top().at);
    if (!flights_.empty() || arrived_ < requests_.size()) next = std::min(next, cache_.next_deadline());
    return next;
  }

  void arrive() {
    for (; arrived_ < requests_.size() && arrival(arrived_) <= clock_.now(); ++arrived_) queue_.push_back(arrived_);
  }

  /// Accepts the first request of the queue if there are slots for it. Returns whether there was one less to accept.
  bool admit() {
    if (queue_.empty()) return false;
    const std::size_t number = queue_.front();
    const RoomRequest& request = requests_[number];
    const std::uint32_t tokens = request.input_tokens + request.output_tokens;
    AcquireRequest wanted;
    wanted.id = RequestId{number};
    wanted.keys = request.keys;
    wanted.units = HashUnits{std::max((tokens + model_.block_tokens - 1) / model_.block_tokens, 1U)};
    // The last token of a prompt is computed, so that there are logits.
    wanted.hit_units_max = HashUnits{(std::max(request.input_tokens, 1U) - 1) / model_.block_tokens};
    Result<Lease> lease = cache_.acquire(wanted);
    if (!lease && lease.error() == Errc::no_room) {
      if (std::exchange(last_queued_, number) != number) ++result_.queued;
      return false;
    }
    queue_.pop_front();
    if (!lease) {
      TERRACE_CHECK(lease.error() == Errc::never_fits);
      ++result_.never_fit;
      return true;
    }
    Flight& flight = flights_[number];
    flight = {.lease = std::move(*lease), .accepted = clock_.now()};
    if (cache_.state(flight.lease) == RequestState::ready) begin_prefill(number, flight);
    return true;
  }

  /// Returns whether the cache had something to report.
  bool collect() {
    const std::span<const RequestEvent> events = cache_.poll();
    for (const RequestEvent& event : events) {
      TERRACE_CHECK(!event.error);
      const std::size_t number = event.id.value();
      Flight& flight = flights_.at(number);
      const std::span<const Source> hits = *cache_.hit_sources(flight.lease);
      auto& waits = std::ranges::find(hits, Source::host) == hits.end() ? result_.slot_waits : result_.load_waits;
      waits.push_back(clock_.now() - flight.accepted);
      begin_prefill(number, flight);
    }
    return !events.empty();
  }

  void begin_prefill(std::size_t number, Flight& flight) {
    const RoomRequest& request = requests_[number];
    const std::span<const Source> hits = *cache_.hit_sources(flight.lease);
    const auto from_host = static_cast<std::uint64_t>(std::ranges::count(hits, Source::host));
    ++result_.served;
    result_.blocks += request.keys.size();
    result_.host_hits += from_host;
    result_.device_hits += hits.size() - from_host;
    const double tokens = static_cast<double>(request.input_tokens) - static_cast<double>(hits.size()) * model_.block_tokens;
    flight.stage = Stage::prefill;
    ends_.push({clock_.now() + seconds(tokens / model_.prefill_speed), number});
  }

  /// Ends prefills and outputs whose time has come. Returns whether there was one.
  bool end_due() {
    bool ended = false;
    for (; !ends_.empty() && ends_.top().at <= clock_.now(); ends_.pop()) {
      ended = true;
      const std::size_t number = ends_.top().request;
      const RoomRequest& request = requests_[number];
      Flight& flight = flights_.at(number);
      if (flight.stage == Stage::prefill) {
        result_.first_tokens.push_back(clock_.now() - arrival(number));
        TERRACE_CHECK(cache_.commit(flight.lease, request.keys, Fence{}).has_value());
        flight.stage = Stage::output;
        outputs_.push_back({clock_.now() + seconds(request.output_tokens / model_.output_speed), number});
      } else {
        flight.lease.used_until(no_longer_used);
        flights_.erase(number);
      }
    }
    for (const End& end : std::exchange(outputs_, {})) ends_.push(end);
    return ended;
  }

  std::span<const RoomRequest> requests_;
  RoomModel model_;
  RoomResult result_;
  ManualClock clock_;
  NullWaker waker_;
  HostArena arena_;
  TimedDevice device_;
  TransferEngine transfers_;
  Cache cache_;

  const TimePoint begin_ = clock_.now();
  std::size_t arrived_ = 0;
  std::size_t last_queued_ = static_cast<std::size_t>(-1);
  std::deque<std::size_t> queue_;
  std::unordered_map<std::size_t, Flight> flights_;
  std::priority_queue<End, std::vector<End>, std::greater<>> ends_;
  std::vector<End> outputs_;  ///< scratch memory of end_due()
};

}  // namespace

RoomResult serve_in_virtual_time(std::span<const RoomRequest> requests, const RoomModel& model) {
  return Server{requests, model}.run();
}

}  // namespace terrace::tools
