#include "tools/shared/session.hpp"

#include "storage/redis/exchange.hpp"

#include <fmt/format.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <span>
#include <system_error>
#include <utility>

namespace terrace::tools {
namespace {

/// One command and its whole answer.
class WholeReply final : public Exchange {
 public:
  explicit WholeReply(std::optional<RespValue>& answer) : answer_{answer} { whole_replies = true; }
  void replied(RespValue reply) override { answer_ = std::move(reply); }
  void broken() override {}

 private:
  std::optional<RespValue>& answer_;
};

TimePoint now() { return std::chrono::steady_clock::now(); }

std::string message_of(int error) { return std::generic_category().message(error); }

}  // namespace

RedisSession::RedisSession(RedisAddress to, const RedisOptions& options, const TlsContext* context)
    : address_{std::move(to)}, options_{options}, password_{current_password(options)} {
  connect();
  stream_.emplace(socket_.get(), context, address_.host);
  shake_hands();
  greet();
}

void RedisSession::fail(std::string_view what) const {
  throw ServerUnreachable{fmt::format("{}: {}", to_string(address_), what)};
}

void RedisSession::wait(short events, TimePoint until, std::string_view hint) const {
  pollfd descriptor{socket_.get(), events, 0};
  while (true) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - now()).count();
    const int ready = left > 0 ? ::poll(&descriptor, 1, static_cast<int>(left)) : 0;
    if (ready > 0) return;
    if (ready == 0) fail(fmt::format("no answer within {} s; {}", patience / std::chrono::seconds{1}, hint));
    if (errno != EINTR) fail(message_of(errno));
  }
}

void RedisSession::connect() {
  const TimePoint until = now() + patience;
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int unknown = ::getaddrinfo(address_.host.c_str(), std::to_string(address_.port).c_str(), &hints, &found);
  if (unknown != 0) fail(fmt::format("the name of the host is not known ({})", ::gai_strerror(unknown)));
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> all{found, ::freeaddrinfo};
  int error = 0;
  for (const addrinfo* each = found; each != nullptr; each = each->ai_next) {
    socket_ = Descriptor{::socket(each->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)};
    if (!socket_.is_open()) fail(message_of(errno));
    error = ::connect(socket_.get(), each->ai_addr, each->ai_addrlen) == 0 ? 0 : errno;
    if (error == EINPROGRESS) {
      wait(POLLOUT, until);
      socklen_t size = sizeof error;
      ::getsockopt(socket_.get(), SOL_SOCKET, SO_ERROR, &error, &size);
    }
    if (error == 0) return;
  }
  if (error == ECONNREFUSED) fail("nobody listens there; does the server run, and is the port right?");
  fail(fmt::format("cannot be reached ({})", message_of(error)));
}

void RedisSession::shake_hands() {
  using State = ByteStream::State;
  const TimePoint until = now() + patience;
  for (State state = stream_->shake_hands(); state != State::done; state = stream_->shake_hands()) {
    if (state == State::closed) {
      const std::string& trouble = stream_->trouble();
      if (trouble.find("certificate") != std::string::npos && trouble.find("not good") != std::string::npos) {
        fail(fmt::format("{}; ca-file names the authority that has signed it", trouble));
      }
      fail(fmt::format("there is no TLS there ({}); the URL of a server without TLS begins with redis://", trouble));
    }
    wait(state == State::wait_to_read ? POLLIN : POLLOUT, until, "the URL of a server without TLS begins with redis://");
  }
}

void RedisSession::greet() {
  const std::string user = options_.user.empty() ? "default" : options_.user;
  const std::string& password = password_;
  RespValue reply = password.empty() ? ask({"HELLO", "2"}) : ask({"HELLO", "2", "AUTH", user, password});
  const bool no_hello = reply.is_error("NOPROTO") || reply.is_error("NOPERM") || reply.text.starts_with("ERR unknown command");
  if (no_hello && !password.empty()) reply = options_.user.empty() ? ask({"AUTH", password}) : ask({"AUTH", user, password});
  greeted_ = true;
  if (reply.is_error("NOAUTH"))
    fail("the server wants a password, and none is given (password-file, or TERRACE_SHARED_PASSWORD)");
  if (reply.is_error("WRONGPASS")) fail(fmt::format("the password of the user {} is wrong: {}", user, reply.text));
  if (reply.is_error() && !no_hello) fail(fmt::format("the server does not let the user {} in: {}", user, reply.text));
  greeting_ = std::move(reply);
  if (options_.database == 0) return;
  const RespValue selected = ask({"SELECT", std::to_string(options_.database)});
  if (selected.is_error()) fail(fmt::format("the database {} cannot be used: {}", options_.database, selected.text));
}

std::string RedisSession::greeting(std::string_view field) const {
  for (std::size_t at = 0; at + 1 < greeting_.items.size(); at += 2) {
    if (greeting_.items[at].text == field) return greeting_.items[at + 1].text;
  }
  return {};
}

RespValue RedisSession::ask(std::initializer_list<std::string_view> words) {
  std::optional<RespValue> answer;
  auto question = std::make_unique<WholeReply>(answer);
  append_command(question->segments[0].text, words);
  channel_.submit(std::move(question));
  const TimePoint until = now() + patience;
  send(until);
  while (!answer) receive(until);
  answer->text = without(answer->text, password_);
  return *std::move(answer);
}

void RedisSession::send(TimePoint until) {
  using State = ByteStream::State;
  std::array<iovec, 4> pieces;
  while (const std::size_t count = channel_.outgoing(pieces)) {
    const ByteStream::Moved moved = stream_->write(std::span{pieces}.first(count));
    if (moved.state == State::closed) fail(stream_->trouble());
    if (moved.state == State::done) channel_.sent(moved.bytes);
    else wait(moved.state == State::wait_to_read ? POLLIN : POLLOUT, until);
  }
}

void RedisSession::receive(TimePoint until) {
  using State = ByteStream::State;
  const ByteStream::Moved moved = stream_->read(channel_.incoming());
  if (moved.state == State::done) channel_.received(moved.bytes);
  const bool wants_tls = !stream_->is_tls() && !greeted_;
  if (moved.state == State::closed || channel_.is_broken()) {
    const std::string why = moved.state == State::closed ? stream_->trouble() : "this is not the Redis protocol";
    fail(wants_tls ? fmt::format("{}; the URL of a server with TLS begins with rediss://", why) : why);
  }
  if (moved.state != State::done) wait(moved.state == State::wait_to_read ? POLLIN : POLLOUT, until);
}

}  // namespace terrace::tools
