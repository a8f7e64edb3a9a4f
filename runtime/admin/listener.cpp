#include "runtime/admin/listener.hpp"

#include "base/fork.hpp"
#include "base/thread.hpp"

#include <boost/asio/basic_socket_acceptor.hpp>
#include <boost/asio/bind_executor.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/basic_stream.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <list>
#include <optional>
#include <stdexcept>
#include <thread>
#include <utility>
#include <variant>

namespace terrace::admin {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;

using Socket = asio::generic::stream_protocol::socket;
using Stream = beast::basic_stream<asio::generic::stream_protocol, asio::any_io_executor>;
using HttpReply = http::response<http::span_body<const char>>;

constexpr std::uint64_t body_max = 64ULL * 1024;
constexpr std::uint32_t headers_max = 8 * 1024;
constexpr unsigned unauthorized = 401;

class Connection;

/// The parts that all connections share. They are for the thread of the endpoint, except `io`.
struct Shared {
  /// Processes the observations of the cache.
  void observe() const {
    for (Observed& portion : mailbox.observed()) observations.add(std::move(portion));
  }
  /// Notes a command and its outcome in the history.
  void note(std::string_view target, unsigned status) const {
    target = target.substr(0, target.find('?'));
    observations.history().note(
        status < 300 ? fmt::format("command {}: done", target) : fmt::format("command {}: refused ({})", target, status),
        std::chrono::system_clock::now());
  }

  asio::io_context& io;
  Mailbox& mailbox;
  Observations& observations;
  const Routes& routes;
  Duration command_deadline;
  Duration silence_max;
  std::uint32_t connections = 0;
  /// Connections that have sent no valid request yet, the oldest first. If all places are taken, the oldest one is closed for a
  /// new connection. So clients without the token cannot block clients that have it.
  std::list<Connection*> unverified{};
};

/// One connection. It exists while one of its operations is under way.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(Socket socket, Shared& shared) : stream_{std::move(socket)}, timer_{shared.io}, shared_{shared} {
    ++shared_.connections;
    shared_.unverified.push_back(this);
  }
  ~Connection() { leave(); }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  /// Frees the place of the connection. The operation under way ends, and with it the object.
  void leave() {
    if (!std::exchange(has_place_, false)) return;
    --shared_.connections;
    shared_.unverified.remove(this);
    stream_.close();
  }

  void read() {
    parser_.emplace();
    parser_->body_limit(body_max);
    parser_->header_limit(headers_max);
    stream_.expires_after(shared_.silence_max);
    http::async_read(
        stream_, buffer_, *parser_,
        [self = shared_from_this()](const boost::system::error_code& error, std::size_t) { self->on_request(error); });
  }

 private:
  void on_request(const boost::system::error_code& error) {
    if (error) return on_bad_request(error);
    const http::request<http::string_body>& request = parser_->get();
    shared_.observe();
    keep_alive_ = request.keep_alive();
    head_ = request.method() == http::verb::head;
    const std::string method{request.method_string()};
    const std::string target{request.target()};
    const std::string authorization{request[http::field::authorization]};
    auto routed = shared_.routes.route({method, target, authorization, request.body()});
    auto* const reply = std::get_if<Reply>(&routed);
    if (reply != nullptr && reply->status == unauthorized) keep_alive_ = false;
    else shared_.unverified.remove(this);
    if (reply != nullptr) return write(std::move(*reply));
    order(std::get<Command>(std::move(routed)));
  }

  void on_bad_request(const boost::system::error_code& error) {
    keep_alive_ = false;
    unread_ = true;
    if (error == http::error::body_limit) return write({413, error_body("the body is larger than 64 KiB")});
    if (error == http::error::header_limit) return write({431, error_body("the headers are larger than 8 KiB")});
    const bool gone =
        error == http::error::end_of_stream || error == http::error::partial_message || error == beast::error::timeout;
    const bool of_http = error.category() == make_error_code(http::error::bad_version).category();
    if (!gone && of_http) return write({400, error_body(fmt::format("this is not HTTP: {}", error.message()))});
    close();
  }

  /// Gives the command to the cache, and waits for its reply. If the cache has not taken the command by the deadline, the command
  /// is withdrawn. A command that was taken always gets its reply, even a late one: this object exists until then.
  void order(Command command) {
    stream_.expires_never();
    // The thread of the cache passes its reference on with the reply, so that it never destroys this object.
    const auto id = shared_.mailbox.post(std::move(command), [self = shared_from_this(), &io = shared_.io](Reply reply) mutable {
      asio::post(io, [self = std::move(self), reply = std::move(reply)]() mutable { self->on_reply(std::move(reply)); });
    });
    if (!id) return write({503, error_body("too many commands wait, or the cache or store has ended; nothing was done")});
    withdraw_on_disconnect(*id);
    timer_.expires_after(shared_.command_deadline);
    timer_.async_wait([self = shared_from_this(), id = *id](const boost::system::error_code& error) {
      if (error || !self->shared_.mailbox.withdraw(id)) return;
      self->shared_.note(self->parser_->get().target(), 503);
      self->write({503, error_body("the engine did not poll within the deadline (option admin.command-deadline); "
                                   "nothing was done")});
    });
  }

  /// Withdraws the command if the client closes the connection before the cache has taken it: the client assumes that it was not
  /// carried out.
  void withdraw_on_disconnect(Mailbox::CommandId id) {
    stream_.socket().async_receive(asio::buffer(&peeked_, sizeof peeked_), Socket::message_peek,
                                   [self = shared_from_this(), id](const boost::system::error_code& error, std::size_t) {
                                     const bool left = error && error != asio::error::operation_aborted;
                                     if (left && self->shared_.mailbox.withdraw(id)) self->timer_.cancel();
                                   });
  }

  void on_reply(Reply reply) {
    timer_.cancel();
    shared_.note(parser_->get().target(), reply.status);
    write(std::move(reply));
  }

  void write(Reply reply) {
    stream_.cancel();  // ends the wait of withdraw_on_disconnect()
    sent_ = std::move(reply);
    const std::string& text = sent_.capture ? *sent_.capture : sent_.body;
    reply_.emplace(static_cast<http::status>(sent_.status), 11);
    reply_->set(http::field::content_type, sent_.type);
    reply_->set(http::field::cache_control, "no-store");
    if (sent_.status == unauthorized) reply_->set(http::field::www_authenticate, "Bearer");
    reply_->keep_alive(keep_alive_);
    reply_->body() = {text.data(), text.size()};
    reply_->prepare_payload();
    if (head_) reply_->body() = {};
    serializer_.emplace(*reply_);
    write_more();
  }

  /// Writes the part that the client accepts now. A client may be slow, but must make progress.
  void write_more() {
    stream_.expires_after(shared_.silence_max);
    http::async_write_some(stream_, *serializer_,
                           [self = shared_from_this()](const boost::system::error_code& error, std::size_t) {
                             if (!error && !self->serializer_->is_done()) return self->write_more();
                             self->on_written(error);
                           });
  }

  void on_written(const boost::system::error_code& error) {
    sent_ = {};
    if (!error && keep_alive_) return read();
    close();
    if (!error && unread_) discard();
  }

  /// Reads the rest of a request that was refused, for a short time: if a TCP socket is closed with unread bytes, the client may
  /// lose the reply.
  void discard() {
    buffer_.clear();
    stream_.async_read_some(buffer_.prepare(headers_max),
                            [self = shared_from_this()](const boost::system::error_code& error, std::size_t) {
                              if (!error) self->discard();
                            });
  }

  void close() {
    boost::system::error_code ignored;
    stream_.socket().shutdown(Socket::shutdown_send, ignored);
  }

  Stream stream_;
  asio::steady_timer timer_;
  Shared& shared_;
  beast::flat_buffer buffer_{headers_max + body_max};
  std::optional<http::request_parser<http::string_body>> parser_;
  Reply sent_;                      ///< owns the bytes of `reply_`
  std::optional<HttpReply> reply_;  ///< written by `serializer_`
  std::optional<http::response_serializer<HttpReply::body_type>> serializer_;
  char peeked_ = 0;
  bool has_place_ = true;
  bool keep_alive_ = false;
  bool unread_ = false;  ///< a part of the request was not read
  bool head_ = false;
};

}  // namespace

struct Listener::State {
  State(const AdminOptions& options, Mailbox& mailbox, const Clock& clock, Room room, Duration silence_max)
      : address{checked_address(options)},
        observations{room.host},
        routes{options, token_of(options), mailbox, observations, clock, std::move(room)},
        shared{io, mailbox, observations, routes, options.command_deadline, silence_max},
        connections_max{options.connections_max} {
    if (address.is_unix) {
      if (address.socket.empty()) address.socket = new_socket_name();
      acceptor.assign(asio::local::stream_protocol{}, listen_on(address.socket));
      struct stat info {};
      if (::stat(address.socket.c_str(), &info) == 0) inode = info.st_ino;
    } else {
      listen_on_tcp();
    }
    listening = close_in_children(acceptor.native_handle());
    try {
      accept();
      observe();
      thread = start_thread("terrace-admin", [this] { io.run(); });
    } catch (...) {
      stop();
      leave_to_children(listening);
      throw;
    }
  }
  ~State() { leave_to_children(listening); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  static std::string token_of(const AdminOptions& options) {
    return options.token_file.empty() ? std::string{} : read_token(options.token_file);
  }

  void listen_on_tcp() {
    try {
      const asio::ip::tcp::endpoint endpoint{asio::ip::make_address(address.host), address.port};
      asio::ip::tcp::acceptor tcp{io, endpoint};
      address.port = tcp.local_endpoint().port();
      acceptor.assign(endpoint.protocol(), tcp.release());
    } catch (const boost::system::system_error& error) {
      throw std::runtime_error{fmt::format("admin.listen: {}: {}", to_string(address), error.code().message())};
    }
  }

  void accept() {
    acceptor.async_accept([this](const boost::system::error_code& error, Socket socket) {
      if (!acceptor.is_open()) return;
      if (!error) {
        if (shared.connections >= connections_max && !shared.unverified.empty()) shared.unverified.front()->leave();
        if (shared.connections < connections_max) std::make_shared<Connection>(std::move(socket), shared)->read();
        return accept();
      }
      // For example, no descriptor is left. Clients wait until one is free.
      retry.expires_after(std::chrono::milliseconds{100});
      retry.async_wait([this](const boost::system::error_code& cancelled) {
        if (!cancelled && acceptor.is_open()) accept();
      });
    });
  }

  void stop() noexcept {
    if (std::exchange(stopped, true)) return;
    struct stat info {};
    // A process that was started later may have replaced the socket.
    if (address.is_unix && ::stat(address.socket.c_str(), &info) == 0 && info.st_ino == inode) ::unlink(address.socket.c_str());
    io.stop();
  }

  /// Processes the observations at least once a second, so that few of them wait.
  void observe() {
    shared.observe();
    routes.look(std::chrono::system_clock::now());
    look.expires_after(std::chrono::seconds{1});
    look.async_wait([this](const boost::system::error_code& cancelled) {
      if (!cancelled) observe();
    });
  }

  Address address;
  Observations observations;
  const Routes routes;
  Shared shared;
  std::uint32_t connections_max;
  asio::io_context io{1};  ///< owns the connections, which use the members above
  asio::basic_socket_acceptor<asio::generic::stream_protocol> acceptor{io};
  int listening = -1;  ///< the descriptor of the acceptor
  asio::steady_timer retry{io};
  asio::steady_timer look{io};
  ino_t inode = 0;
  bool stopped = false;
  std::thread thread;
};

Listener::Listener(const AdminOptions& options, Mailbox& mailbox, const Clock& clock, Room room, Duration silence_max)
    : state_{std::make_unique<State>(options, mailbox, clock, std::move(room), silence_max)} {}

Listener::~Listener() {
  state_->stop();
  state_->thread.join();
  state_->shared.mailbox.close();  // waiting commands hold connections
}

std::string Listener::address() const { return to_string(state_->address); }

void Listener::stop() noexcept { state_->stop(); }

}  // namespace terrace::admin
