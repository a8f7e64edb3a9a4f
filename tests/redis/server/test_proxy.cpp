#include "tests/redis/server/test_proxy.hpp"

#include "tests/redis/server/real_server.hpp"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <stdexcept>
#include <utility>

namespace terrace::test {
namespace {

/// Appends what has arrived. Returns false at the end of the stream.
bool receive(int socket, std::string& into) {
  std::array<char, 65'536> bytes;
  if (into.size() > 4 * bytes.size()) return true;
  const ssize_t count = ::recv(socket, bytes.data(), bytes.size(), MSG_DONTWAIT);
  if (count > 0) into.append(bytes.data(), static_cast<std::size_t>(count));
  return count > 0 || (count < 0 && errno == EAGAIN);
}

/// Sends what goes of the first `most` bytes, and removes it. Returns how much.
std::size_t send_some(int socket, std::string& from, std::size_t most) {
  const ssize_t count = ::send(socket, from.data(), std::min(from.size(), most), MSG_NOSIGNAL | MSG_DONTWAIT);
  if (count <= 0) return 0;
  from.erase(0, static_cast<std::size_t>(count));
  return static_cast<std::size_t>(count);
}

}  // namespace

TestProxy::TestProxy(std::uint16_t server) : server_{server}, listener_{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)} {
  sockaddr_in address = loopback(0);
  socklen_t size = sizeof address;
  if (::bind(listener_, reinterpret_cast<sockaddr*>(&address), size) != 0 || ::listen(listener_, 64) != 0) {
    throw std::runtime_error{"no proxy"};
  }
  ::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size);
  port_ = ntohs(address.sin_port);
  thread_ = std::thread{[this] { run(); }};
}

TestProxy::~TestProxy() {
  end_ = true;
  thread_.join();
  for (Pair& pair : pairs_) close(pair);
  ::close(listener_);
}

void TestProxy::inject(std::string bytes) {
  const std::lock_guard lock{mutex_};
  injected_ = std::move(bytes);
}

void TestProxy::close(Pair& pair) {
  if (pair.closed) return;
  // The client sees a connection that is reset, or one that ends.
  ::close(pair.client);
  ::close(pair.server);
  pair.closed = true;
}

void TestProxy::move(Pair& pair) {
  const bool server_talks = receive(pair.server, pair.to_client);
  const bool client_talks = receive(pair.client, pair.to_server);
  if (!client_stalled_) (void)send_some(pair.server, pair.to_server, pair.to_server.size());
  if (!pair.to_client.empty() && !stalled_) {
    {
      const std::lock_guard lock{mutex_};
      pair.to_client.insert(0, std::exchange(injected_, {}));
    }
    std::size_t most = pair.to_client.size();
    if (const std::size_t rate = rate_; rate > 0) most = std::min(most, rate / 1000 + 1);
    const std::int64_t cut = cut_;
    if (cut >= 0) most = std::min(most, static_cast<std::size_t>(cut));
    const std::int64_t flip = flip_;
    const bool flips = flip >= 0 && static_cast<std::size_t>(flip) < most;
    if (flips) {
      char& byte = pair.to_client[static_cast<std::size_t>(flip)];
      byte = static_cast<char>(byte ^ (1 << (flip % 8)));
      flip_ = nowhere;
    }
    passed_ += most;  // before the client can have them: it may ask at once
    const std::size_t sent = send_some(pair.client, pair.to_client, most);
    passed_ -= most - sent;
    if (!flips && flip >= 0) flip_ = flip - static_cast<std::int64_t>(sent);
    if (cut >= 0) {
      cut_ = cut - static_cast<std::int64_t>(sent);
      if (cut_ == 0) {
        cut_ = nowhere;
        return close(pair);
      }
    }
  }
  if ((!server_talks && pair.to_client.empty()) || !client_talks) close(pair);
}

void TestProxy::run() {
  while (!end_) {
    std::vector<pollfd> waits{{.fd = listener_, .events = POLLIN, .revents = 0}};
    for (const Pair& pair : pairs_) {
      waits.push_back({.fd = pair.client, .events = POLLIN, .revents = 0});
      waits.push_back({.fd = pair.server, .events = POLLIN, .revents = 0});
    }
    const bool waiting =
        std::ranges::any_of(pairs_, [](const Pair& pair) { return pair.to_client.size() + pair.to_server.size() > 0; });
    ::poll(waits.data(), waits.size(), waiting ? 1 : 5);
    if ((waits[0].revents & POLLIN) != 0) {
      const int client = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
      const int server = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
      const sockaddr_in address = loopback(server_);
      const int at_once = 1;
      for (const int fd : {client, server}) ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &at_once, sizeof at_once);
      ++accepted_;
      Pair pair{.client = client, .server = server};
      if (::connect(server, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) close(pair);
      pairs_.push_back(std::move(pair));
    }
    const bool cut = cut_now_.exchange(false);
    for (Pair& pair : pairs_) {
      if (cut) close(pair);
      if (!pair.closed) move(pair);
    }
    std::erase_if(pairs_, [](const Pair& pair) { return pair.closed; });
  }
}

}  // namespace terrace::test
