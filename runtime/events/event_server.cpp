#include "runtime/events/event_server.hpp"

#include "base/descriptor.hpp"
#include "base/fork.hpp"
#include "runtime/events/endpoint.hpp"
#include "runtime/events/zmtp.hpp"

#include <boost/asio/awaitable.hpp>
#include <boost/asio/basic_socket_acceptor.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/connect.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <deque>
#include <exception>
#include <list>
#include <set>
#include <stdexcept>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace terrace::events {
namespace {

namespace asio = boost::asio;
using asio::awaitable;
using asio::use_awaitable;
using boost::system::error_code;
using Protocol = asio::generic::stream_protocol;

constexpr std::size_t subscribers_max = 256;
constexpr std::size_t requesters_max = 64;
/// The longest frame of a peer, beside the topic.
constexpr std::size_t frame_max = 1024;
/// A peer that does not finish its handshake, or takes no byte of what is sent to it, for so long is disconnected.
constexpr std::chrono::seconds patience{30};
constexpr std::chrono::seconds between_looks{1};
/// Before the next try to accept or to connect.
constexpr std::chrono::milliseconds retry_after{100};
/// Bytes of one write, after which further batches wait for the next one.
constexpr std::size_t write_share = std::size_t{64} * 1024;
/// Ends an answer in place of a sequence number.
constexpr std::uint64_t end_of_replay = ~std::uint64_t{0};
constexpr std::string_view ipc = "ipc://";

TimePoint now() { return std::chrono::steady_clock::now(); }
double seconds_since_1970() { return std::chrono::duration<double>{std::chrono::system_clock::now().time_since_epoch()}.count(); }
void close_on_exec(int fd) { (void)::fcntl(fd, F_SETFD, FD_CLOEXEC); }

/// A connection. Its coroutines own it.
struct Peer {
  Peer(Protocol::socket connected, asio::io_context& io) : socket{std::move(connected)}, news{io, TimePoint::max()} {
    close_on_exec(socket.native_handle());
    error_code ignored;  // a Unix socket has no such option
    socket.set_option(asio::ip::tcp::no_delay{true}, ignored);
    socket.set_option(asio::socket_base::keep_alive{true}, ignored);
  }
  void close() {
    error_code ignored;
    socket.close(ignored);
    news.cancel();
  }

  Protocol::socket socket;
  asio::steady_timer news;  ///< cancelled when there may be something to send
  TimePoint give_up_at = now() + patience;
  bool is_ready = false;  ///< the handshake is over
  // Of a subscriber:
  std::set<std::size_t> prefixes;  ///< lengths of the beginnings of the topic to which it subscribes
  std::uint64_t next = 0;          ///< number of the batch that it gets next
  std::string pong;                ///< to be sent
};
using PeerPtr = std::shared_ptr<Peer>;

/// Messages that are sent by one write.
class Messages {
 public:
  explicit Messages(const std::string& topic) : topic_{topic} {}

  void add(const Batch& batch, bool is_answer) {
    std::string head = begin(is_answer, topic_, batch.sequence);
    zmtp::append_header(head, 0, batch.payload->size());
    bytes_ += head.size() + batch.payload->size();
    parts_.emplace_back(std::move(head), batch.payload);
  }
  void add_end_of_answer() {
    std::string head = begin(true, {}, end_of_replay);
    zmtp::append_header(head, 0, 0);
    add(std::move(head));
  }
  void add(std::string frame) {
    bytes_ += frame.size();
    parts_.emplace_back(std::move(frame), nullptr);
  }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }
  [[nodiscard]] std::vector<asio::const_buffer> buffers() const {
    std::vector<asio::const_buffer> buffers;
    for (const auto& [head, payload] : parts_) {
      buffers.push_back(asio::buffer(head));
      if (payload) buffers.push_back(asio::buffer(*payload));
    }
    return buffers;
  }

 private:
  [[nodiscard]] static std::string begin(bool is_answer, std::string_view topic, std::uint64_t sequence) {
    std::string head;
    if (is_answer) zmtp::append_frame(head, zmtp::has_more, {});
    zmtp::append_frame(head, zmtp::has_more, topic);
    const auto number = zmtp::big_endian(sequence);
    zmtp::append_frame(head, zmtp::has_more, {number.data(), number.size()});
    return head;
  }

  const std::string& topic_;
  std::vector<std::pair<std::string, std::shared_ptr<const std::string>>> parts_;
  std::size_t bytes_ = 0;
};

/// Sends, and gives up if the peer takes no byte for too long.
awaitable<void> write(Peer& peer, std::vector<asio::const_buffer> buffers) {
  const auto progress = [&peer](const error_code& error, std::size_t) {
    peer.give_up_at = now() + patience;
    return error ? std::size_t{0} : write_share;
  };
  co_await asio::async_write(peer.socket, buffers, progress, use_awaitable);
  if (peer.is_ready) peer.give_up_at = TimePoint::max();
}
awaitable<void> write(Peer& peer, std::string bytes) {
  std::vector<asio::const_buffer> buffers{asio::buffer(bytes)};
  co_await write(peer, std::move(buffers));
}

[[noreturn]] void refuse() { throw std::invalid_argument{"the peer does not keep to the protocol"}; }

}  // namespace

struct EventServer::State {
  /// A socket of ZeroMQ.
  struct Door {
    using Serve = awaitable<void> (State::*)(PeerPtr);
    asio::basic_socket_acceptor<Protocol> acceptor;
    std::string_view type;                   ///< of the socket
    std::array<std::string_view, 3> theirs;  ///< the types of sockets that may connect
    std::size_t peers_max;
    Serve serve;
    std::string at{};
    std::string file{};  ///< of a Unix socket; removed at the end
    ino_t inode = 0;
    std::list<PeerPtr> peers{};  ///< the oldest first
    bool is_served = false;      ///< a coroutine accepts or connects
  };

  State(const EventPublisherOptions& given, EventStream& its) : options{given}, stream{its} {
    open("endpoint", options.endpoint, options.connect ? 0 : options.data_parallel_rank, publishing);
    if (!options.replay_endpoint.empty()) open("replay_endpoint", options.replay_endpoint, options.data_parallel_rank, replaying);
  }
  ~State() {
    (void)woken.release();
    for (Door* const door : {&publishing, &replaying}) {
      if (!door->acceptor.is_open()) continue;
      struct stat info {};
      // Another process may have replaced the socket.
      if (!door->file.empty() && ::stat(door->file.c_str(), &info) == 0 && info.st_ino == door->inode)
        ::unlink(door->file.c_str());
      leave_to_children(door->acceptor.native_handle());
    }
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  const EventPublisherOptions& options;
  EventStream& stream;
  asio::io_context io{1};  ///< owns the coroutines, which use the members below
  asio::posix::stream_descriptor woken{io};
  bool is_watched = false;
  Door publishing{asio::basic_socket_acceptor<Protocol>{io}, "PUB", {"SUB", "XSUB"}, subscribers_max, &State::subscriber};
  Door replaying{
      asio::basic_socket_acceptor<Protocol>{io}, "ROUTER", {"DEALER", "REQ", "ROUTER"}, requesters_max, &State::requester};
  /// The latest batches: as many as a subscriber may be behind.
  std::deque<Batch> latest;
  std::size_t latest_bytes = 0;
  std::uint64_t end = 0;  ///< number of the next batch
  TimePoint look_at{};
  std::exception_ptr failed;  ///< what a coroutine has thrown
  EventPublisherStats counts;

  // ---- addresses

  void open(const char* option, const std::string& endpoint, std::uint32_t rank, Door& door) {
    const std::string address = endpoint_of_rank(option, endpoint, rank);
    door.at = address;
    if (options.connect && &door == &publishing) return;
    const std::string sentence = fmt::format("{}: cannot bind {}", option, address);
    try {
      address.starts_with(ipc) ? listen_on_ipc(address.substr(ipc.size()), door) : listen_on_tcp(address, door);
    } catch (const boost::system::system_error& error) {
      if (error.code().category() != boost::system::system_category()) {
        throw std::invalid_argument{sentence + ": it is no address of this machine, as tcp://127.0.0.1:5557 or tcp://*:5557"};
      }
      throw std::system_error{error.code().value(), std::generic_category(), sentence};
    }
    close_on_exec(door.acceptor.native_handle());
    (void)close_in_children(door.acceptor.native_handle());
  }

  static void listen_on_ipc(const std::string& path, Door& door) {
    Descriptor fd;
    const int error = listen_on_socket(path, 0777, fd);
    // A file of another kind uses the address, too.
    if (error != 0) throw boost::system::system_error{error == ENOTSOCK ? EADDRINUSE : error, boost::system::system_category()};
    struct stat info {};
    if (::stat(path.c_str(), &info) == 0) door.inode = info.st_ino;
    door.file = path;
    door.acceptor.assign(asio::local::stream_protocol{}, fd.release());
  }

  /// The host and the port of tcp://HOST:PORT.
  static std::pair<std::string, std::string> parts_of(const std::string& address) {
    constexpr std::string_view tcp = "tcp://";
    const std::size_t colon = address.rfind(':');
    std::string host = address.substr(tcp.size(), colon - tcp.size());
    if (host == "*") host = "0.0.0.0";
    if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
    return {std::move(host), address.substr(colon + 1)};
  }

  void listen_on_tcp(const std::string& address, Door& door) {
    const auto [host, port] = parts_of(address);
    asio::ip::tcp::resolver resolver{io};
    const asio::ip::tcp::endpoint endpoint = *resolver.resolve(host, port).begin();
    asio::ip::tcp::acceptor acceptor{io, endpoint};
    const asio::ip::tcp::endpoint bound = acceptor.local_endpoint();
    const std::string name = bound.address().to_string();
    door.at = fmt::format("tcp://{}:{}", bound.address().is_v6() ? '[' + name + ']' : name, bound.port());
    door.acceptor.assign(bound.protocol(), acceptor.release());
  }

  // ---- connections

  /// Returns what is called at the end of a coroutine of the peer.
  auto ended(Door& door, PeerPtr peer) {
    return [this, &door, peer = std::move(peer)](const std::exception_ptr& thrown) {
      peer->close();
      door.peers.remove(peer);
      note(thrown);
    };
  }

  void note(const std::exception_ptr& thrown) {
    try {
      if (thrown) std::rethrow_exception(thrown);
    } catch (const boost::system::system_error&) {  // the peer has gone
    } catch (const std::invalid_argument&) {
      ++counts.peers_dropped;
    } catch (...) {
      failed = thrown;
    }
  }

  awaitable<void> pause() {
    asio::steady_timer timer{io, retry_after};
    co_await timer.async_wait(use_awaitable);
  }

  awaitable<void> accept(Door& door) {
    for (;;) {
      error_code error;
      Protocol::socket socket = co_await door.acceptor.async_accept(asio::redirect_error(use_awaitable, error));
      if (error) co_await pause();  // no descriptor is left
      else admit(door, std::move(socket));
    }
  }

  void admit(Door& door, Protocol::socket socket) {
    if (door.peers.size() >= door.peers_max) {
      ++counts.peers_refused;
      // A peer that has finished its handshake keeps its place.
      const auto silent = std::ranges::find_if(door.peers, [](const PeerPtr& peer) { return !peer->is_ready; });
      if (silent == door.peers.end()) return;
      (*silent)->close();
      door.peers.erase(silent);
    }
    auto peer = std::make_shared<Peer>(std::move(socket), io);
    door.peers.push_back(peer);
    asio::co_spawn(io, (this->*door.serve)(peer), ended(door, peer));
  }

  /// Connects to a subscriber that is bound, again and again.
  awaitable<void> connect() {
    for (;;) {
      std::exception_ptr thrown;
      PeerPtr peer;
      try {
        Protocol::socket socket = co_await connected();
        peer = std::make_shared<Peer>(std::move(socket), io);
        publishing.peers.push_back(peer);
        co_await subscriber(peer);
      } catch (...) {
        thrown = std::current_exception();
      }
      if (peer) ended(publishing, peer)(thrown);
      else note(thrown);
      co_await pause();
    }
  }

  awaitable<Protocol::socket> connected() {
    if (publishing.at.starts_with(ipc)) {
      asio::local::stream_protocol::socket socket{io};
      co_await socket.async_connect(publishing.at.substr(ipc.size()), use_awaitable);
      co_return Protocol::socket{std::move(socket)};
    }
    const auto [host, port] = parts_of(publishing.at);
    asio::ip::tcp::resolver resolver{io};
    const asio::ip::tcp::resolver::results_type found = co_await resolver.async_resolve(host, port, use_awaitable);
    asio::ip::tcp::socket socket{io};
    co_await asio::async_connect(socket, found, use_awaitable);
    co_return Protocol::socket{std::move(socket)};
  }

  awaitable<zmtp::Frame> read(Peer& peer) const {
    std::array<char, 9> head{};
    co_await asio::async_read(peer.socket, asio::buffer(head, 2), use_awaitable);
    const auto flags = static_cast<unsigned char>(head[0]);
    std::uint64_t size = static_cast<unsigned char>(head[1]);
    if ((flags & zmtp::is_long) != 0) {
      co_await asio::async_read(peer.socket, asio::buffer(head.data() + 2, 7), use_awaitable);
      size = zmtp::from_big_endian({head.data() + 1, 8});
    }
    if (flags > (zmtp::has_more | zmtp::is_long | zmtp::is_command) || size > frame_max + options.topic.size()) refuse();
    zmtp::Frame frame{(flags & zmtp::has_more) != 0, (flags & zmtp::is_command) != 0, std::string(size, '\0')};
    co_await asio::async_read(peer.socket, asio::buffer(frame.body), use_awaitable);
    co_return frame;
  }

  awaitable<void> shake_hands(Peer& peer, const Door& door) {
    co_await write(peer, zmtp::greeting() + zmtp::ready(door.type));
    std::string theirs(zmtp::greeting_bytes, '\0');
    co_await asio::async_read(peer.socket, asio::buffer(theirs), use_awaitable);
    if (!zmtp::is_greeting(theirs)) refuse();
    const zmtp::Frame frame = co_await read(peer);
    const auto type = zmtp::socket_type_of(frame);
    if (!type || type->empty() || std::ranges::find(door.theirs, *type) == door.theirs.end()) refuse();
    peer.is_ready = true;
    peer.give_up_at = TimePoint::max();
  }

  // ---- subscribers

  awaitable<void> subscriber(PeerPtr peer) {
    co_await shake_hands(*peer, publishing);
    asio::co_spawn(io, send_batches(peer), ended(publishing, peer));
    for (;;) {
      const zmtp::Frame frame = co_await read(*peer);
      if (const auto asked = zmtp::subscription_of(frame)) {
        // Only a beginning of the topic makes a difference, so nothing else is kept.
        if (!options.topic.starts_with(asked->topic)) continue;
        if (peer->prefixes.empty()) peer->next = end;
        asked->ends ? (void)peer->prefixes.erase(asked->topic.size()) : (void)peer->prefixes.insert(asked->topic.size());
      } else if (auto pong = zmtp::pong_for(frame)) {
        peer->pong = std::move(*pong);
      }
      peer->news.cancel();
    }
  }

  awaitable<void> send_batches(PeerPtr peer) {
    while (peer->socket.is_open()) {
      Messages messages{options.topic};
      if (!peer->pong.empty()) messages.add(std::exchange(peer->pong, {}));
      while (!peer->prefixes.empty() && peer->next < end && messages.bytes() < write_share) {
        const std::uint64_t first = end - latest.size();
        if (peer->next < first) counts.batches_lost += first - std::exchange(peer->next, first);
        messages.add(latest[peer->next++ - first], false);
      }
      if (messages.bytes() > 0) {
        co_await write(*peer, messages.buffers());
        continue;
      }
      error_code woken_up;
      co_await peer->news.async_wait(asio::redirect_error(use_awaitable, woken_up));
    }
  }

  void publish(const Batch& batch) {
    end = batch.sequence + 1;
    latest.push_back(batch);
    latest_bytes += batch.payload->size();
    while (publishing.peers.empty()
               ? !latest.empty()
               : latest.size() > options.hwm || (latest.size() > 1 && latest_bytes > count(options.buffer_bytes))) {
      latest_bytes -= latest.front().payload->size();
      latest.pop_front();
    }
    for (const PeerPtr& peer : publishing.peers) peer->news.cancel();
  }

  void begin_again() {
    for (Door* const door : {&publishing, &replaying}) {
      for (const PeerPtr& peer : door->peers) peer->close();
    }
    latest.clear();
    latest_bytes = 0;
    end = 0;
  }

  // ---- replay

  /// Reads requests of two frames: an empty one, and the number of the first batch.
  awaitable<void> requester(PeerPtr peer) {
    co_await shake_hands(*peer, replaying);
    for (;;) {
      std::size_t frames = 0;
      bool is_right = true;
      std::uint64_t from = 0;
      for (bool more = true; more;) {
        const zmtp::Frame frame = co_await read(*peer);
        if (frame.command) {
          if (const auto pong = zmtp::pong_for(frame)) co_await write(*peer, *pong);
          continue;
        }
        is_right = is_right && ++frames <= 2 && frame.body.size() == (frames == 1 ? 0 : 8);
        if (is_right) from = zmtp::from_big_endian(frame.body);
        more = frame.more;
      }
      if (is_right && frames == 2) co_await answer(*peer, from);
      else ++counts.malformed_requests;
    }
  }

  awaitable<void> answer(Peer& peer, std::uint64_t from) {
    Replay replay = stream.replay(from);
    try {
      for (bool is_over = false; !is_over;) {
        Messages messages{options.topic};
        while (!is_over && messages.bytes() < write_share) {
          const std::optional<Batch> batch = stream.next(replay, seconds_since_1970());
          is_over = !batch;
          is_over ? messages.add_end_of_answer() : messages.add(*batch, true);
        }
        co_await write(peer, messages.buffers());
      }
    } catch (const boost::system::system_error&) {
      ++counts.replays_cut;
      throw;
    }
  }

  // ---- the thread

  void serve(int descriptor, TimePoint until) {
    if (!is_watched) {
      if (!woken.is_open()) woken.assign(descriptor);
      woken.async_wait(asio::posix::stream_descriptor::wait_read, [this](const error_code&) { is_watched = false; });
      is_watched = true;
    }
    for (Door* const door : {&publishing, &replaying}) {
      const bool connects = door == &publishing && options.connect;
      if (door->is_served || !(connects || door->acceptor.is_open())) continue;
      asio::co_spawn(io, connects ? connect() : accept(*door), [this, door](const std::exception_ptr& thrown) {
        door->is_served = false;
        note(thrown);
      });
      door->is_served = true;
    }
    if (now() >= look_at) {
      look_at = now() + between_looks;
      for (Door* const door : {&publishing, &replaying}) {
        for (const PeerPtr& peer : door->peers) {
          if (!peer->socket.is_open() || now() < peer->give_up_at) continue;
          ++counts.peers_dropped;
          peer->close();
        }
      }
    }
    io.run_one_until(std::min(until, look_at));
    if (failed) std::rethrow_exception(std::exchange(failed, nullptr));
  }
};

EventServer::EventServer(const EventPublisherOptions& options, EventStream& stream)
    : state_{std::make_unique<State>(options, stream)} {}
EventServer::~EventServer() = default;

const std::string& EventServer::endpoint() const { return state_->publishing.at; }
const std::string& EventServer::replay_endpoint() const { return state_->replaying.at; }
void EventServer::publish(const Batch& batch) { state_->publish(batch); }
void EventServer::serve(int descriptor, TimePoint until) { state_->serve(descriptor, until); }
void EventServer::flush() { state_->io.poll(); }
void EventServer::begin_again() { state_->begin_again(); }

void EventServer::add_to(EventPublisherStats& stats) const {
  stats.malformed_requests += state_->counts.malformed_requests;
  stats.replays_cut += state_->counts.replays_cut;
  stats.peers_refused += state_->counts.peers_refused;
  stats.peers_dropped += state_->counts.peers_dropped;
  stats.batches_lost += state_->counts.batches_lost;
  stats.subscribers = static_cast<std::uint64_t>(
      std::ranges::count_if(state_->publishing.peers, [](const PeerPtr& peer) { return !peer->prefixes.empty(); }));
}

}  // namespace terrace::events
