#include "storage/redis/socket_transport.hpp"

#include "base/thread.hpp"

#include <boost/asio/connect.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>

#include <netdb.h>

#include <array>
#include <cstring>
#include <functional>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

namespace terrace {

namespace asio = boost::asio;
using tcp = asio::ip::tcp;

/// Finds the addresses of hosts. A name server may take half a minute, and getaddrinfo() cannot be interrupted, so each look-up
/// has its own thread. Nothing waits for this thread, not even at the end, so it owns all data that it uses. Concurrent look-ups
/// of the same name share one answer. Threads: the thread of the loop.
class SocketTransport::LookUps : public std::enable_shared_from_this<LookUps> {
 public:
  struct Found {
    std::vector<tcp::endpoint> endpoints{};
    std::string trouble{};  ///< the reason, if there are no addresses
  };
  using Then = std::function<void(const Found&)>;

  explicit LookUps(asio::io_context& loop) : loop_{&loop} {}

  /// Calls `then` later, unless end() comes first.
  void find(const RedisAddress& host, Then then) {
    const auto [entry, is_new] = waiting_.try_emplace(host);
    entry->second.push_back(std::move(then));
    if (!is_new) return;
    const auto tell = [self = shared_from_this(), host](Found found) { self->post(host, std::move(found)); };
    if (Found found = look_up(host, AI_NUMERICHOST); !found.endpoints.empty()) return tell(std::move(found));
    // The slot map of a cluster may have many names.
    if (waiting_.size() > look_ups_max) return tell({.trouble = "too many other names are being looked up"});
    try {
      start_thread("terrace-resolve", [tell, host] { tell(look_up(host, 0)); }).detach();
    } catch (const std::system_error& error) {
      tell({.trouble = error.what()});
    }
  }
  void end() {
    waiting_.clear();
    const std::lock_guard lock{mutex_};
    loop_ = nullptr;
  }

 private:
  static constexpr std::size_t look_ups_max = 16;

  static Found look_up(const RedisAddress& host, int flags) {
    addrinfo wanted{};
    wanted.ai_socktype = SOCK_STREAM;
    wanted.ai_flags = flags | AI_NUMERICSERV;
    addrinfo* first = nullptr;
    const int error = ::getaddrinfo(host.host.c_str(), std::to_string(host.port).c_str(), &wanted, &first);
    if (error != 0) return {.trouble = ::gai_strerror(error)};
    const std::unique_ptr<addrinfo, void (*)(addrinfo*)> all{first, ::freeaddrinfo};
    Found found;
    for (const addrinfo* each = first; each != nullptr; each = each->ai_next) {
      tcp::endpoint& endpoint = found.endpoints.emplace_back();
      if (each->ai_addrlen > endpoint.capacity()) return {.trouble = "the address is of an unknown kind"};
      std::memcpy(endpoint.data(), each->ai_addr, each->ai_addrlen);
      endpoint.resize(each->ai_addrlen);
    }
    return found;
  }

  /// Threads: any.
  void post(const RedisAddress& host, Found found) {
    const std::lock_guard lock{mutex_};
    if (loop_ == nullptr) return;
    asio::post(*loop_, [self = shared_from_this(), host, found = std::move(found)] {
      auto waiting = self->waiting_.extract(host);
      if (waiting.empty()) return;
      for (const Then& then : waiting.mapped()) then(found);
    });
  }

  std::map<RedisAddress, std::vector<Then>> waiting_;
  std::mutex mutex_;
  asio::io_context* loop_;  ///< guarded by mutex_; null after the end
};

/// One connection, from the look-up of the host to the last byte. The handlers of its pending operations keep it alive, and it
/// reports nothing after it is closed.
class SocketTransport::Link : public std::enable_shared_from_this<Link> {
 public:
  Link(SocketTransport& transport, const RedisConnectionId& id) : transport_{transport}, id_{id}, socket_{transport.loop_} {}

  void start(const RedisAddress& to) {
    host_ = to.host;
    transport_.look_ups_->find(to, [self = shared_from_this()](const LookUps::Found& found) {
      if (self->closed_) return;
      if (found.endpoints.empty()) return self->lost("the name of the host: " + found.trouble);
      asio::async_connect(self->socket_, found.endpoints, [self](const ErrorCode& failed, const tcp::endpoint&) {
        if (self->closed_) return;
        if (failed) self->lost(failed.message());
        else self->open();
      });
    });
  }

  void close() {
    closed_ = true;
    stream_.reset();
    ErrorCode ignored;
    socket_.close(ignored);
  }

  void send() {
    if (closed_ || !ready_ || waits_to_write_) return;
    // The client is in the middle of a call, so a loss is reported to it later.
    if (!write())
      asio::post(transport_.loop_,
                 [self = shared_from_this()] { self->lost(self->stream_ ? self->stream_->trouble() : std::string{}); });
  }

 private:
  /// The bytes that one connection may read before other connections get a turn.
  static constexpr std::size_t turn_bytes = std::size_t{1} << 20;

  RedisClient& client() { return *transport_.client_; }
  Channel& channel() { return client().channel(id_); }

  void lost(const std::string& why) {
    if (closed_) return;
    client().lost(id_, why);
  }

  void open() {
    ErrorCode ignored;
    socket_.non_blocking(true, ignored);
    socket_.set_option(tcp::no_delay{true}, ignored);
    socket_.set_option(tcp::socket::keep_alive{true}, ignored);
    const RedisOptions& options = transport_.options_;
    try {
      password_ = current_password(options);
      const std::optional<TlsContext> tls = options.tls ? std::optional<TlsContext>{std::in_place, options} : std::nullopt;
      stream_.emplace(socket_.native_handle(), tls ? &*tls : nullptr, host_);
    } catch (const std::invalid_argument& error) {
      return lost(error.what());
    }
    shake_hands();
  }

  void shake_hands() {
    using State = ByteStream::State;
    switch (stream_->shake_hands()) {
      case State::done:
        ready_ = true;
        client().connected(id_, std::exchange(password_, {}));
        if (!closed_) wait_to_read();
        return;
      case State::closed: return lost(stream_->trouble());
      case State::wait_to_read: return wait(tcp::socket::wait_read, &Link::shake_hands);
      case State::wait_to_write: return wait(tcp::socket::wait_write, &Link::shake_hands);
    }
  }

  void wait(tcp::socket::wait_type what, void (Link::*then)()) {
    socket_.async_wait(what, [self = shared_from_this(), then](const ErrorCode& error) {
      if (self->closed_) return;
      if (error) self->lost(error.message());
      else ((*self).*then)();
    });
  }
  void wait_to_read() { wait(tcp::socket::wait_read, &Link::read); }

  void read() {
    using State = ByteStream::State;
    std::size_t turn = 0;
    ByteStream::Moved moved;
    while (turn < turn_bytes && !channel().is_broken()) {
      moved = stream_->read(channel().incoming());
      if (moved.state != State::done) break;
      channel().received(moved.bytes);
      turn += moved.bytes;
      if (moved.drained) break;
    }
    if (moved.state == State::closed) return lost(stream_->trouble());
    client().tick();
    if (closed_) return;
    // A TLS write may have waited for the bytes that were read.
    if (waits_to_write_ && stream_->is_tls() && !write()) return lost(stream_->trouble());
    if (turn < turn_bytes) wait_to_read();
    else
      asio::post(transport_.loop_, [self = shared_from_this()] {
        if (!self->closed_) self->read();
      });
  }

  /// Returns false if the connection is lost.
  bool write() {
    using State = ByteStream::State;
    std::array<iovec, 16> pieces;
    while (const std::size_t count = channel().outgoing(pieces)) {
      const ByteStream::Moved moved = stream_->write(std::span{pieces}.first(count));
      if (moved.state == State::closed) return false;
      if (moved.state != State::done) {
        if (stream_->is_tls()) channel().begun();
        if (!waits_to_write_) wait(tcp::socket::wait_write, &Link::writable);
        waits_to_write_ = true;
        return true;
      }
      channel().sent(moved.bytes);
    }
    return true;
  }
  void writable() {
    waits_to_write_ = false;
    if (!write()) return lost(stream_->trouble());
    client().tick();
  }

  SocketTransport& transport_;
  const RedisConnectionId id_;
  tcp::socket socket_;
  std::string host_;
  std::string password_;
  std::optional<ByteStream> stream_;
  bool ready_ = false;
  bool closed_ = false;
  bool waits_to_write_ = false;
};

SocketTransport::SocketTransport(asio::io_context& loop, const RedisOptions& options)
    : loop_{loop}, options_{options}, look_ups_{std::make_shared<LookUps>(loop)} {
  (void)current_password(options);
  if (options.tls) (void)TlsContext{options};
}

SocketTransport::~SocketTransport() {
  for (const auto& [place, link] : links_) link->close();
  look_ups_->end();
}

void SocketTransport::connect(const RedisConnectionId& id, const RedisAddress& to) {
  const auto link = std::make_shared<Link>(*this, id);
  links_[{id.node, id.connection}] = link;
  link->start(to);
}

void SocketTransport::close(const RedisConnectionId& id) {
  const auto found = links_.find({id.node, id.connection});
  if (found == links_.end()) return;
  found->second->close();
  links_.erase(found);
}

void SocketTransport::send(const RedisConnectionId& id) {
  if (const auto found = links_.find({id.node, id.connection}); found != links_.end()) found->second->send();
}

}  // namespace terrace
