#include "terrace/event_publisher.hpp"

#include "base/failure.hpp"
#include "base/fork.hpp"
#include "base/thread.hpp"
#include "base/waker.hpp"
#include "runtime/events/event_server.hpp"
#include "runtime/events/event_stream.hpp"
#include "runtime/events/inbox.hpp"

#include <fmt/format.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

namespace terrace {
namespace {

using events::Batch;

const EventPublisherOptions& checked(const EventPublisherOptions& options) {
  const auto at_least_1 = [](const char* option, std::uint64_t value) {
    if (value == 0) throw std::invalid_argument{fmt::format("{} is 0, must be at least 1", option)};
  };
  at_least_1("buffer_steps", options.buffer_steps);
  at_least_1("hwm", options.hwm);
  at_least_1("max_queue_size", options.max_queue_size);
  at_least_1("max_blocks", options.max_blocks);
  if (options.heartbeat < std::chrono::milliseconds{1}) throw std::invalid_argument{"heartbeat must be at least 1 ms"};
  return options;
}

double seconds_since_1970() { return std::chrono::duration<double>{std::chrono::system_clock::now().time_since_epoch()}.count(); }

}  // namespace

struct EventPublisher::State {
  explicit State(const EventPublisherOptions& given)
      : options{checked(given)}, inbox{options.max_queue_size}, stream{options}, server{options, stream}, stats{stream.stats()} {
    thread = start_thread("terrace-events", [this] { run(); });
  }
  ~State() {
    ends = true;
    waker.wake();
    if (thread.joinable()) thread.join();
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  // ---- constant after construction
  const EventPublisherOptions options;
  const HomeProcess home;

  // ---- any thread
  events::Inbox inbox;
  EventFdWaker waker;
  std::atomic<bool> ends{false};
  mutable std::mutex stats_mutex;

  // ---- the publisher's thread, after construction
  events::EventStream stream;
  events::EventServer server;
  events::Inbox::Content content;
  std::vector<Batch> batches;
  std::uint64_t descriptions_refused = 0;
  std::uint64_t failures = 0;
  bool has_failed = false;
  TimePoint last_batch_at = std::chrono::steady_clock::now();

  EventPublisherStats stats;  ///< stats_mutex

  std::thread thread;

  // ---- the thread

  void run() {
    for (bool last_round = false; !last_round;) {
      last_round = ends;
      try {
        if (has_failed) begin_again();
        waker.acknowledge();
        take_inbox();
        update_stats();
        if (last_round) server.flush();
        else server.serve(waker.fd(), last_batch_at + options.heartbeat);
      } catch (...) {
        // No memory is left, for example. The engine must not end for that; it can read in the statistics what happened.
        ++failures;
        has_failed = true;
        update_stats();
        if (!ends) std::this_thread::sleep_for(std::chrono::milliseconds{10});
      }
    }
  }

  /// It is not known what a failure has left undone.
  void begin_again() {
    batches.clear();
    stream = events::EventStream{options};
    server.begin_again();
    has_failed = false;
  }

  void take_inbox() {
    inbox.take(content);
    const double time = seconds_since_1970();
    descriptions_refused += content.descriptions_refused;
    content.for_each_description([&](const BlockTokens& blocks) { stream.describe(blocks, time, batches); });
    if (content.lost) stream.lose_all(time, batches);
    stream.apply(content.events, time, batches);
    stream.flush(time, batches);
    const TimePoint now = std::chrono::steady_clock::now();
    if (batches.empty() && now - last_batch_at >= options.heartbeat) stream.beat(time, batches);
    if (batches.empty()) return;
    last_batch_at = now;
    for (const Batch& batch : batches) server.publish(batch);
    batches.clear();
  }

  void update_stats() {
    EventPublisherStats now = stream.stats();
    now.descriptions_refused = descriptions_refused;
    now.failures = failures;
    server.add_to(now);
    const std::lock_guard lock{stats_mutex};
    stats = now;
  }
};

EventPublisher::EventPublisher(const EventPublisherOptions& options) { state_ = std::make_unique<State>(options); }

EventPublisher::~EventPublisher() {
  if (!is_of_this_process()) (void)state_.release();  // its threads are in the parent
}

Result<void> EventPublisher::describe(const BlockTokens& blocks) {
  if (!is_of_this_process()) return failure<Errc::stopped, "the publisher belongs to the parent of this forked process">;
  if (blocks.block_tokens == 0) return failure<Errc::invalid_argument, "block_tokens is 0, must be at least 1">;
  if (blocks.tokens.size() % blocks.block_tokens != 0 || blocks.tokens.size() / blocks.block_tokens != blocks.keys.size()) {
    return failure<Errc::invalid_argument, "there must be block_tokens tokens for each key">;
  }
  if (blocks.keys.empty()) return {};
  if (!state_->inbox.describe(blocks)) return failure<Errc::refused, "the publisher's queue is full (max_queue_size)">;
  state_->waker.wake();
  return {};
}

Result<void> EventPublisher::publish(std::span<const KvEvent> events) {
  if (!is_of_this_process()) return failure<Errc::stopped, "the publisher belongs to the parent of this forked process">;
  if (events.empty()) return {};
  const bool is_accepted = state_->inbox.publish(events);
  state_->waker.wake();
  if (!is_accepted) return failure<Errc::refused, "the publisher's queue is full (max_queue_size)">;
  return {};
}

EventPublisherStats EventPublisher::stats() const {
  const std::lock_guard lock{state_->stats_mutex};
  return state_->stats;
}

const std::string& EventPublisher::endpoint() const { return state_->server.endpoint(); }
const std::string& EventPublisher::replay_endpoint() const { return state_->server.replay_endpoint(); }
bool EventPublisher::is_of_this_process() const { return state_->home.is_here(); }

}  // namespace terrace
