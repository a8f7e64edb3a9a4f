#pragma once

#include "storage/redis/redis_client.hpp"
#include "storage/redis/redis_node.hpp"
#include "terrace/clock.hpp"

#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace terrace::test {

using Words = std::vector<std::string>;

inline std::string bulk_of(const std::string& text) { return fmt::format("${}\r\n{}\r\n", text.size(), text); }

/// A server of the Redis protocol without sockets, and without what a client of ours does not use.
class FakeServer {
 public:
  std::map<std::string, std::string> values{};
  std::vector<Words> commands{};      ///< all that came, but greetings
  bool reachable = true;              ///< connections can be made
  bool silent = false;                ///< answers nothing, as if stopped
  std::size_t answer_max = SIZE_MAX;  ///< bytes of answers that still leave the server
  /// Answers a command if it gives something.
  std::function<std::string(const Words&)> special{};

  std::string answer(const Words& words) {
    const std::string& what = words.at(0);
    const bool greeting =
        what == "HELLO" || what == "AUTH" || what == "SELECT" || (what == "EXISTS" && words[1].ends_with(":health"));
    if (!greeting) commands.push_back(words);
    if (special) {
      if (const std::string answer = special(words); !answer.empty()) return answer;
    }
    if (what == "HELLO") return "%2\r\n+proto\r\n:3\r\n+mode\r\n+standalone\r\n";
    if (what == "EXISTS") return values.contains(words[1]) ? ":1\r\n" : ":0\r\n";
    if (what == "PEXPIRE") return values.contains(words[1]) ? ":1\r\n" : ":0\r\n";
    if (what == "UNLINK") return values.erase(words[1]) > 0 ? ":1\r\n" : ":0\r\n";
    if (what == "GET") return values.contains(words[1]) ? bulk_of(values[words[1]]) : "_\r\n";
    if (what == "SET") values[words[1]] = words[2];
    return "+OK\r\n";
  }
};

/// Takes the first command from `bytes`. Returns nothing if it is not complete.
inline Words take_command(std::string& bytes) {
  std::size_t at = 0;
  const auto number = [&](char type) -> long {
    const std::size_t end = bytes.find("\r\n", at);
    if (end == std::string::npos) return -1;
    if (bytes[at] != type) throw std::runtime_error{"the client sent no command: " + bytes.substr(at, 40)};
    const long value = std::stol(bytes.substr(at + 1, end - at - 1));
    at = end + 2;
    return value;
  };
  const long count = number('*');
  Words words;
  for (long i = 0; i < count; ++i) {
    const long size = number('$');
    if (size < 0 || bytes.size() < at + static_cast<std::size_t>(size) + 2) return {};
    words.push_back(bytes.substr(at, static_cast<std::size_t>(size)));
    at += static_cast<std::size_t>(size) + 2;
  }
  if (!words.empty()) bytes.erase(0, at);
  return words;
}

/// Servers, and a client of them, whose bytes move when run() is called.
class FakeEngine final : public RedisTransport {
 public:
  explicit FakeEngine(RedisOptions options) : password{options.password}, options_{std::move(options)} {}

  [[nodiscard]] FakeServer& server(std::uint16_t port) { return servers_[port]; }
  void begin() { client_ = std::make_unique<RedisClient>(options_, *this, clock_, nullptr); }
  [[nodiscard]] RedisClient& client() { return *client_; }
  [[nodiscard]] ManualClock& clock() { return clock_; }
  /// Connections that were made or tried, since the beginning.
  [[nodiscard]] std::size_t connects() const { return connects_; }
  [[nodiscard]] std::size_t open_links() const { return links_.size(); }
  std::size_t bytes_at_once = 1 << 20;
  std::string password{};  ///< for connections that are made from now on

  /// Moves bytes until nothing happens any more.
  void run() {
    client_->tick();
    bool moved = true;
    while (moved) {
      moved = false;
      std::vector<RedisConnectionId> ids;
      for (const auto& [place, link] : links_) ids.push_back(link.id);
      for (const RedisConnectionId& id : ids) moved = step(id) || moved;
      if (client_->next_deadline() <= clock_.now()) client_->tick(), moved = true;
      std::vector<SharedEvent> events;
      client_->take_events(events);
      for (const SharedEvent& event : events) events_.emplace(event.token, event);
    }
  }
  void pass(Duration time) {
    clock_.advance(time);
    run();
  }
  /// Ends the connections to a server, or the first `most` of them.
  void cut(std::uint16_t port, std::size_t most = SIZE_MAX) {
    std::vector<RedisConnectionId> ids;
    for (const auto& [place, link] : links_) {
      if (link.port == port && ids.size() < most) ids.push_back(link.id);
    }
    for (const RedisConnectionId& id : ids) client_->lost(id, "cut");
  }
  [[nodiscard]] std::map<std::uint64_t, SharedEvent>& events() { return events_; }

  void connect(const RedisConnectionId& id, const RedisAddress& to) override {
    ++connects_;
    links_[{id.node, id.connection}] = {.id = id, .port = to.port};
  }
  void close(const RedisConnectionId& id) override { links_.erase({id.node, id.connection}); }
  void send(const RedisConnectionId&) override {}

 private:
  struct Link {
    RedisConnectionId id{};
    std::uint16_t port = 0;
    bool connected = false;
    std::string to_server{};
    std::string to_client{};
  };

  Link* find(const RedisConnectionId& id) {
    const auto found = links_.find({id.node, id.connection});
    return found != links_.end() && found->second.id == id ? &found->second : nullptr;
  }

  bool step(const RedisConnectionId& id) {
    Link* link = find(id);
    if (link == nullptr) return false;
    FakeServer& server = servers_[link->port];
    if (!link->connected) {
      if (server.silent) return false;
      link->connected = true;
      if (server.reachable) client_->connected(id, password);
      else client_->lost(id, "connection refused");
      return true;
    }
    bool moved = false;
    std::array<iovec, 3> pieces{};
    while (const std::size_t count = client_->channel(id).outgoing(pieces)) {
      std::size_t bytes = 0;
      for (std::size_t i = 0; i < count; ++i) {
        link->to_server.append(static_cast<const char*>(pieces[i].iov_base), pieces[i].iov_len);
        bytes += pieces[i].iov_len;
      }
      client_->channel(id).sent(bytes);
      moved = true;
    }
    if (server.silent) {
      if (moved) client_->tick();
      return moved;
    }
    for (Words words = take_command(link->to_server); !words.empty(); words = take_command(link->to_server)) {
      link->to_client += server.answer(words);
    }
    std::string arriving = link->to_client.substr(0, server.answer_max);
    if (server.answer_max != SIZE_MAX) server.answer_max -= arriving.size();
    link->to_client.erase(0, arriving.size());
    while (!arriving.empty() && !client_->channel(id).is_broken()) {
      std::size_t bytes = 0;
      for (const iovec& piece : client_->channel(id).incoming()) {
        const std::size_t part = std::min({piece.iov_len, arriving.size(), bytes_at_once - bytes});
        if (part > 0) std::memcpy(piece.iov_base, arriving.data(), part);
        arriving.erase(0, part);
        bytes += part;
      }
      client_->channel(id).received(bytes);
      moved = true;
    }
    if (moved) client_->tick();
    return moved;
  }

  const RedisOptions options_;
  ManualClock clock_;
  std::map<std::uint16_t, FakeServer> servers_;
  std::map<std::pair<std::uint32_t, std::uint32_t>, Link> links_;
  std::unique_ptr<RedisClient> client_;
  std::map<std::uint64_t, SharedEvent> events_;
  std::size_t connects_ = 0;
};

}  // namespace terrace::test
