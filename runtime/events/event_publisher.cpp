#include "terrace/event_publisher.hpp"

#include "base/failure.hpp"
#include "base/fork.hpp"
#include "base/thread.hpp"
#include "base/waker.hpp"
#include "runtime/events/endpoint.hpp"
#include "runtime/events/event_stream.hpp"
#include "runtime/events/inbox.hpp"

#include <fmt/format.h>
#include <zmq.hpp>
#include <zmq_addon.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <list>
#include <mutex>
#include <stdexcept>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace terrace {
namespace {

using events::Batch;

/// Answers that are sent at the same time. Further requests wait in their socket.
constexpr std::size_t replays_max = 16;
/// Batches of one answer between two looks at the queue.
constexpr std::size_t replay_share = 64;
/// A subscriber that takes no batch of its answer for so long gets no more.
constexpr std::chrono::seconds replay_patience{10};
/// Pause before the next try when a subscriber's queue is full.
constexpr std::chrono::milliseconds retry_after{2};
/// Ends an answer in place of a sequence number.
constexpr std::uint64_t end_of_replay = ~std::uint64_t{0};

const EventPublisherOptions& checked(const EventPublisherOptions& options) {
  const auto at_least_1 = [](const char* option, std::uint64_t value) {
    if (value == 0) throw std::invalid_argument{fmt::format("{} is 0, must be at least 1", option)};
  };
  at_least_1("buffer_steps", options.buffer_steps);
  at_least_1("hwm", options.hwm);
  at_least_1("max_queue_size", options.max_queue_size);
  at_least_1("max_blocks", options.max_blocks);
  if (options.hwm > std::uint32_t{1} << 30U)
    throw std::invalid_argument{fmt::format("hwm is {}, must be at most 2^30", options.hwm)};
  if (options.heartbeat < std::chrono::milliseconds{1}) throw std::invalid_argument{"heartbeat must be at least 1 ms"};
  return options;
}

std::array<char, 8> big_endian(std::uint64_t number) {
  std::array<char, 8> bytes{};
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(number >> (56 - 8 * i));
  return bytes;
}

std::uint64_t from_big_endian(const zmq::message_t& bytes) {
  std::uint64_t number = 0;
  for (std::size_t i = 0; i < bytes.size(); ++i) number = number << 8U | bytes.data<std::uint8_t>()[i];
  return number;
}

/// A message that shares the text instead of copying it.
zmq::message_t message_of(const std::shared_ptr<const std::string>& text) {
  auto kept = std::make_unique<std::shared_ptr<const std::string>>(text);
  zmq::message_t message{const_cast<char*>(text->data()), text->size(),
                         [](void*, void* owner) { delete static_cast<std::shared_ptr<const std::string>*>(owner); }, kept.get()};
  (void)kept.release();
  return message;
}

double seconds_since_1970() { return std::chrono::duration<double>{std::chrono::system_clock::now().time_since_epoch()}.count(); }

}  // namespace

struct EventPublisher::State {
  explicit State(const EventPublisherOptions& given)
      : options{checked(given)}, inbox{options.max_queue_size}, stream{options}, stats{stream.stats()} {
    bind("endpoint", options.endpoint, publishing, publishing_at);
    if (!options.replay_endpoint.empty()) bind("replay_endpoint", options.replay_endpoint, replaying, replaying_at);
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
  std::string publishing_at;
  std::string replaying_at;

  // ---- any thread
  events::Inbox inbox;
  EventFdWaker waker;
  std::atomic<bool> ends{false};
  mutable std::mutex stats_mutex;

  // ---- the publisher's thread, after construction
  zmq::context_t context;
  zmq::socket_t publishing{context, zmq::socket_type::pub};
  zmq::socket_t replaying{context, zmq::socket_type::router};
  struct Answer {
    zmq::message_t subscriber;
    events::Replay replay;
    std::optional<Batch> next;  ///< not sent yet
    bool at_end = false;        ///< only the end is left to send
    TimePoint give_up_at;
  };
  std::list<Answer> answers;
  bool is_blocked = false;  ///< no answer can continue now
  events::EventStream stream;
  events::Inbox::Content content;
  std::vector<Batch> batches;
  std::uint64_t descriptions_refused = 0;
  std::uint64_t malformed_requests = 0;
  std::uint64_t replays_cut = 0;
  TimePoint last_batch_at = std::chrono::steady_clock::now();

  EventPublisherStats stats;  ///< stats_mutex

  std::thread thread;

  void bind(const char* option, const std::string& endpoint, zmq::socket_t& socket, std::string& at) const {
    const bool connects = options.connect && &socket == &publishing;
    const std::string address = events::endpoint_of_rank(option, endpoint, connects ? 0 : options.data_parallel_rank);
    socket.set(zmq::sockopt::linger, 0);
    socket.set(zmq::sockopt::ipv6, address.find('[') == std::string::npos ? 0 : 1);
    socket.set(zmq::sockopt::sndhwm, static_cast<int>(options.hwm));
    if (&socket == &replaying) {
      socket.set(zmq::sockopt::router_mandatory, 1);  // a full queue is an error, so that nothing of an answer is dropped
    }
    try {
      connects ? socket.connect(address) : socket.bind(address);
    } catch (const zmq::error_t& error) {
      const std::string sentence = fmt::format("{}: cannot {} {}", option, connects ? "connect to" : "bind", address);
      if (error.num() == EINVAL || error.num() == EPROTONOSUPPORT) {
        throw std::invalid_argument{sentence + ": it is no address of this machine, as tcp://127.0.0.1:5557 or tcp://*:5557"};
      }
      throw std::system_error{error.num(), std::generic_category(), sentence};
    }
    at = connects ? address : socket.get(zmq::sockopt::last_endpoint);
  }

  // ---- the thread

  void run() {
    bool last_round = false;
    while (!last_round) {
      last_round = ends;
      wait(last_round);
      waker.acknowledge();
      take_inbox();
      if (!last_round) {
        take_requests();
        answer();
      }
      update_stats();
    }
    publishing.close();
    replaying.close();
  }

  void wait(bool last_round) {
    std::array<zmq::pollitem_t, 2> items{{{nullptr, waker.fd(), ZMQ_POLLIN, 0}, {replaying.handle(), 0, ZMQ_POLLIN, 0}}};
    const std::size_t watched = options.replay_endpoint.empty() || answers.size() >= replays_max ? 1 : 2;
    using std::chrono::milliseconds;
    auto timeout = std::chrono::ceil<milliseconds>(last_batch_at + options.heartbeat - std::chrono::steady_clock::now());
    if (!answers.empty()) timeout = is_blocked ? retry_after : milliseconds{0};
    if (last_round) timeout = milliseconds{0};
    try {
      (void)zmq::poll(items.data(), watched, std::max(milliseconds{0}, timeout));
    } catch (const zmq::error_t& error) {
      if (error.num() != EINTR) throw;  // a debugger has stopped the thread
    }
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
    for (const Batch& batch : batches) {
      publishing.send(zmq::buffer(options.topic), zmq::send_flags::sndmore | zmq::send_flags::dontwait);
      publishing.send(zmq::buffer(big_endian(batch.sequence)), zmq::send_flags::sndmore | zmq::send_flags::dontwait);
      publishing.send(message_of(batch.payload), zmq::send_flags::dontwait);
    }
    batches.clear();
  }

  /// Accepts requests: [subscriber, empty, first sequence number].
  void take_requests() {
    if (options.replay_endpoint.empty()) return;
    while (answers.size() < replays_max) {
      std::vector<zmq::message_t> frames;
      if (!zmq::recv_multipart(replaying, std::back_inserter(frames), zmq::recv_flags::dontwait)) return;
      if (frames.size() != 3 || !frames[1].empty() || frames[2].size() != 8) {
        ++malformed_requests;
        continue;
      }
      answers.push_back({std::move(frames[0]), stream.replay(from_big_endian(frames[2])), std::nullopt, false, give_up_time()});
    }
  }

  [[nodiscard]] static TimePoint give_up_time() { return std::chrono::steady_clock::now() + replay_patience; }

  /// Continues all answers.
  void answer() {
    is_blocked = true;
    const double time = seconds_since_1970();
    for (auto it = answers.begin(); it != answers.end();) {
      bool is_over = false;
      for (std::size_t i = 0; i < replay_share && !is_over; ++i) {
        if (!it->next && !it->at_end) {
          it->next = stream.next(it->replay, time);
          it->at_end = !it->next;
        }
        const Sent sent = send(*it);
        if (sent == Sent::full) {
          if (std::chrono::steady_clock::now() < it->give_up_at) break;
          ++replays_cut;
          is_over = true;
        } else if (sent == Sent::unreachable) {
          ++replays_cut;
          is_over = true;
        } else {
          is_blocked = false;
          is_over = it->at_end;
          it->next.reset();
          it->give_up_at = give_up_time();
        }
      }
      it = is_over ? answers.erase(it) : std::next(it);
    }
  }

  enum class Sent : unsigned char { yes, full, unreachable };

  /// Sends the next batch of an answer, or its end. The first frame decides whether there is room for the message.
  [[nodiscard]] Sent send(const Answer& answer) {
    using zmq::send_flags;
    const auto more = send_flags::sndmore | send_flags::dontwait;
    try {
      if (!replaying.send(zmq::buffer(answer.subscriber.data(), answer.subscriber.size()), more)) return Sent::full;
    } catch (const zmq::error_t& error) {
      if (error.num() == EHOSTUNREACH) return Sent::unreachable;
      throw;
    }
    replaying.send(zmq::const_buffer{}, more);
    replaying.send(answer.next ? zmq::buffer(options.topic) : zmq::const_buffer{}, more);
    replaying.send(zmq::buffer(big_endian(answer.next ? answer.next->sequence : end_of_replay)), more);
    if (answer.next) replaying.send(message_of(answer.next->payload), send_flags::dontwait);
    else replaying.send(zmq::const_buffer{}, send_flags::dontwait);
    return Sent::yes;
  }

  void update_stats() {
    EventPublisherStats now = stream.stats();
    now.descriptions_refused = descriptions_refused;
    now.malformed_requests = malformed_requests;
    now.replays_cut += replays_cut;
    const std::lock_guard lock{stats_mutex};
    stats = now;
  }
};

EventPublisher::EventPublisher(const EventPublisherOptions& options) {
  const SignalsBlocked blocked;  // for the threads of ZeroMQ
  state_ = std::make_unique<State>(options);
}

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

const std::string& EventPublisher::endpoint() const { return state_->publishing_at; }
const std::string& EventPublisher::replay_endpoint() const { return state_->replaying_at; }
bool EventPublisher::is_of_this_process() const { return state_->home.is_here(); }

}  // namespace terrace
