#include "storage/redis/socket_transport.hpp"

#include <boost/asio/connect.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>

#include <array>
#include <optional>
#include <string>

namespace terrace {

namespace asio = boost::asio;
using tcp = asio::ip::tcp;

/// One connection: from the name of the host to the last byte. It is kept by what it waits for, and says nothing once it is
/// closed.
class SocketTransport::Link : public std::enable_shared_from_this<Link> {
 public:
  Link(SocketTransport& transport, const RedisConnectionId& id)
      : transport_{transport}, id_{id}, resolver_{transport.loop_}, socket_{transport.loop_} {}

  void start(const RedisAddress& to) {
    host_ = to.host;
    resolver_.async_resolve(to.host, std::to_string(to.port),
                            [self = shared_from_this()](const ErrorCode& error, const tcp::resolver::results_type& found) {
                              if (self->closed_) return;
                              if (error) return self->lost("the name of the host: " + error.message());
                              asio::async_connect(self->socket_, found, [self](const ErrorCode& failed, const tcp::endpoint&) {
                                if (self->closed_) return;
                                if (failed) self->lost(failed.message());
                                else self->open();
                              });
                            });
  }

  void close() {
    closed_ = true;
    resolver_.cancel();
    stream_.reset();
    ErrorCode ignored;
    socket_.close(ignored);
  }

  void send() {
    if (closed_ || !ready_ || waits_to_write_) return;
    // The client is in the middle of a call, so it hears of a loss later.
    if (!write()) asio::post(transport_.loop_, [self = shared_from_this()] { self->lost(self->stream_trouble()); });
  }

 private:
  /// The bytes that one connection may read before others have their turn.
  static constexpr std::size_t turn_bytes = std::size_t{1} << 20;

  RedisClient& client() { return *transport_.client_; }
  Channel& channel() { return client().channel(id_); }
  std::string stream_trouble() const { return stream_ ? stream_->trouble() : std::string{}; }

  void lost(const std::string& why) {
    if (closed_) return;
    client().lost(id_, why);
    transport_.after_();
  }

  void open() {
    ErrorCode ignored;
    socket_.non_blocking(true, ignored);
    socket_.set_option(tcp::no_delay{true}, ignored);
    socket_.set_option(tcp::socket::keep_alive{true}, ignored);
    stream_.emplace(socket_.native_handle(), transport_.tls_.get(), host_);
    shake_hands();
  }

  void shake_hands() {
    using State = ByteStream::State;
    switch (stream_->shake_hands()) {
      case State::done:
        ready_ = true;
        client().connected(id_);
        transport_.after_();
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
    client().moved();
    transport_.after_();
    if (closed_) return;
    // A write of TLS may have waited for what was read.
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
    client().moved();
    transport_.after_();
  }

  SocketTransport& transport_;
  const RedisConnectionId id_;
  tcp::resolver resolver_;
  tcp::socket socket_;
  std::string host_;
  std::optional<ByteStream> stream_;
  bool ready_ = false;
  bool closed_ = false;
  bool waits_to_write_ = false;
};

SocketTransport::SocketTransport(asio::io_context& loop, const RedisOptions& options, std::function<void()> after)
    : loop_{loop}, tls_{options.tls ? std::make_unique<const TlsContext>(options) : nullptr}, after_{std::move(after)} {}

SocketTransport::~SocketTransport() {
  for (const auto& [place, link] : links_) link->close();
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
