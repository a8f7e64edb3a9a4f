#include "storage/redis/redis_node.hpp"

#include "base/check.hpp"
#include "storage/redis/exchange.hpp"

#include <algorithm>
#include <utility>

namespace terrace {

using Admission = CircuitBreaker::Admission;

/// The first commands on a connection: protocol and user, the database, and a query that the server answers only if it serves
/// this user. For a server that does not know HELLO (before Redis 6), the greeting is repeated without it.
class RedisNode::Greeting final : public Exchange {
 public:
  Greeting(RedisNode& node, std::uint32_t number, bool hello) : node_{node}, number_{number}, hello_{hello} {
    const RedisOptions& options = node.options_;
    std::string& text = segments[0].text;
    replies = 1;
    const std::string_view user = options.user.empty() ? "default" : std::string_view{options.user};
    const std::string& password = node.password_;
    if (hello && password.empty()) {
      append_command(text, {"HELLO", "3", "SETNAME", "terrace"});
    } else if (hello) {
      append_command(text, {"HELLO", "3", "AUTH", user, password, "SETNAME", "terrace"});
    } else if (options.user.empty() && !password.empty()) {
      append_command(text, {"AUTH", password});
    } else if (!password.empty()) {
      append_command(text, {"AUTH", user, password});
    } else {
      replies = 0;
    }
    if (options.database != 0) {
      append_command(text, {"SELECT", std::to_string(options.database)});
      ++replies;
    }
    append_command(text, {"EXISTS", options.prefix + ":health"});
    ++replies;
    whole_replies = true;
  }

  void replied(RespValue reply) override {
    ++answered_;
    // The server answers; it only does not have the name of the query.
    const bool elsewhere =
        reply.is_error("MOVED") || reply.is_error("ASK") || reply.text.starts_with("CLUSTERDOWN Hash slot not served");
    if (reply.is_error() && !elsewhere && refusal_.empty()) {
      refusal_ = reply.text;
      again_ = hello_ && answered_ == 1 && (reply.is_error("NOPROTO") || reply.text.starts_with("ERR unknown command"));
    }
    if (hello_ && answered_ == 1 && !node_.options_.cluster) {
      for (std::size_t i = 0; i + 1 < reply.items.size(); i += 2) {
        if (reply.items[i].text == "mode" && reply.items[i + 1].text == "cluster") {
          refusal_ = "it is a node of a cluster, and the URL has no ?cluster=1";
        }
      }
    }
    if (answered_ < replies) return;
    if (again_) node_.greet(number_, false);
    else node_.greetings_.emplace_back(number_, refusal_);
  }
  void broken() override {}

 private:
  RedisNode& node_;
  const std::uint32_t number_;
  const bool hello_;
  bool again_ = false;
  std::uint32_t answered_ = 0;
  std::string refusal_;
};

RedisNode::RedisNode(std::uint32_t number, RedisAddress address, const RedisOptions& options, RedisTransport& transport,
                     Random& random)
    : number_{number},
      address_{std::move(address)},
      options_{options},
      transport_{transport},
      random_{random},
      breaker_{options.breaker},
      connections_(options.connections) {}

// ---- calls of the client -----------------------------------------------------------------------------------------------------

std::uint32_t RedisNode::ready_connections() const {
  return static_cast<std::uint32_t>(std::ranges::count(connections_, State::ready, &Connection::state));
}

bool RedisNode::is_connecting() const {
  return std::ranges::any_of(
      connections_, [](const Connection& each) { return each.state == State::opening || each.state == State::greeting; });
}

bool RedisNode::usable() const {
  if (!is_used() || declines()) return false;
  return !tried_ || is_connecting() || ready_connections() > 0;
}

bool RedisNode::is_idle() const {
  const auto waits = [](const Connection& each) { return each.state == State::waiting; };
  return std::ranges::all_of(connections_, waits) && std::ranges::all_of(waiting_, [](const auto& lane) { return lane.empty(); });
}

bool RedisNode::is_current(const RedisConnectionId& id) const {
  const Connection& connection = connections_[id.connection];
  return connection.serial == id.serial && connection.state != State::waiting;
}

void RedisNode::submit(std::unique_ptr<Exchange> exchange, Lane lane) {
  if (!usable()) return exchange->broken();
  waiting_[static_cast<std::size_t>(lane)].push_back(std::move(exchange));
}

void RedisNode::ended(Outcome outcome, TimePoint now, std::string_view why) {
  if (outcome == Outcome::failed) {
    ++failed_;
    ++changes_;
    trouble_ = without_password(why);
  }
  breaker_.ended(Admission::passed, outcome, now);
}

void RedisNode::complain(std::string_view words) {
  constexpr std::size_t bytes_max = 512;  // room for the sentences of some forbidden commands
  const std::string what = without_password(words);
  if (complaint_.find(what) != std::string::npos || complaint_.size() >= bytes_max) return;
  if (!complaint_.empty()) complaint_ += "; ";
  complaint_ += what;
  ++changes_;
}

// ---- connections ---------------------------------------------------------------------------------------------------------

void RedisNode::renew(Duration after, TimePoint now, std::string_view why) {
  for (Connection& each : connections_) {
    if (each.state == State::ready && now - each.ready_at >= after) each.renew_for = why;
  }
}

void RedisNode::start(std::uint32_t number, Admission admission, TimePoint now) {
  Connection& connection = connections_[number];
  connection.state = State::opening;
  connection.admission = admission;
  connection.give_up_at = now + options_.connect_timeout;
  ++connection.serial;
  transport_.connect(id_of(number), address_);
}

void RedisNode::connected(const RedisConnectionId& id, std::string_view password) {
  Connection& connection = connections_[id.connection];
  TERRACE_CHECK(connection.state == State::opening);
  connection.state = State::greeting;
  password_ = password;
  greet(id.connection, true);
}

void RedisNode::greet(std::uint32_t number, bool hello) {
  connections_[number].channel.submit(std::make_unique<Greeting>(*this, number, hello));
  connections_[number].to_send = true;
}

void RedisNode::fail(std::uint32_t number, std::string_view why, TimePoint now) {
  Connection& connection = connections_[number];
  TERRACE_CHECK(connection.state != State::waiting);
  trouble_ = without_password(why);
  lost_ = true;
  tried_ = true;
  const bool was_well = connection.state == State::ready && now - connection.ready_at >= options_.retry_max;
  connection.pause = was_well ? Duration{} : std::clamp(2 * connection.pause, options_.retry_first, options_.retry_max);
  // Half of the pause is random, so that many users of one server do not reconnect at the same time.
  const auto half = static_cast<std::uint64_t>((connection.pause / 2).count());
  connection.retry_at = now + connection.pause / 2 + Duration{static_cast<Duration::rep>(random_.between(0, half))};
  disconnect(number, Outcome::failed, now);
}

/// Closes a connection that is no longer wanted.
void RedisNode::drop(std::uint32_t number, TimePoint now) {
  connections_[number].retry_at = now;
  connections_[number].pause = {};
  disconnect(number, Outcome::unclear, now);
}

void RedisNode::disconnect(std::uint32_t number, Outcome outcome, TimePoint now) {
  Connection& connection = connections_[number];
  transport_.close(id_of(number));
  connection.state = State::waiting;
  connection.give_up_at = never;
  connection.to_send = false;
  connection.renew_for.clear();
  ++changes_;
  breaker_.ended(std::exchange(connection.admission, Admission::passed), outcome, now);
  connection.sent = connection.received = 0;
  connection.channel.end();
}

void RedisNode::lost(const RedisConnectionId& id, std::string_view why, TimePoint now) {
  if (is_current(id)) fail(id.connection, why, now);
}

void RedisNode::close() {
  for (std::uint32_t number = 0; number < connections_.size(); ++number) {
    if (connections_[number].state != State::waiting) transport_.close(id_of(number));
  }
}

void RedisNode::greeted(std::uint32_t number, TimePoint now) {
  Connection& connection = connections_[number];
  // While no connection existed, the rules of the node may have changed, so old complaints are dropped. A further connection
  // gives no such information.
  if (ready_connections() == 0) complaint_.clear();
  connection.state = State::ready;
  connection.give_up_at = never;
  connection.ready_at = connection.looked_at = now;
  connection.silent_for = {};
  connection.renew_for.clear();
  tried_ = true;
  ++changes_;
  ++connects_;
  trouble_.clear();
  const Admission admission = std::exchange(connection.admission, Admission::passed);
  breaker_.ended(admission, Outcome::succeeded, now);
  if (admission != Admission::probe) return;
  for (Connection& each : connections_) each.retry_at = now;
}

// ---- work ----------------------------------------------------------------------------------------------------------------

void RedisNode::break_waiting() {
  for (auto& lane : waiting_) {
    const auto all = std::exchange(lane, {});
    for (const auto& exchange : all) {
      if (exchange->wanted()) exchange->broken();
    }
  }
}

RedisNode::Connection* RedisNode::least_busy() {
  Connection* least = nullptr;
  for (Connection& each : connections_) {
    if (each.state != State::ready) continue;
    if (least == nullptr || each.channel.window_bytes() < least->channel.window_bytes()) least = &each;
  }
  return least;
}

void RedisNode::pump() {
  for (std::size_t lane = 0; lane < lanes; ++lane) {
    auto& waiting = waiting_[lane];
    while (!waiting.empty()) {
      if (!waiting.front()->wanted()) {
        waiting.pop_front();
        continue;
      }
      Connection* const connection = least_busy();
      if (connection == nullptr) return;
      Channel& channel = connection->channel;
      const std::size_t after = channel.window_bytes() + waiting.front()->window_bytes;
      if (lane != 0 && channel.window_bytes() > 0 && after > count(options_.window)) return;
      std::unique_ptr<Exchange> exchange = std::move(waiting.front());
      waiting.pop_front();
      exchange->prepare();
      channel.submit(std::move(exchange));
      connection->to_send = true;
    }
  }
}

/// Measures how long the server has been silent. Bytes that the server accepts are a sign of life only while it owes no reply,
/// because the kernel of a stalled server still accepts some megabytes. Each check adds at most a part of
/// RedisOptions::silence_max, so a thread that did not run for some time reads the data that has arrived meanwhile before it
/// gives up the server.
void RedisNode::measure_silence(Connection& connection, TimePoint now) const {
  const Channel& channel = connection.channel;
  const bool received = std::exchange(connection.received, channel.bytes_received()) != channel.bytes_received();
  const bool sent = std::exchange(connection.sent, channel.bytes_sent()) != channel.bytes_sent();
  const bool owed_answer = std::exchange(connection.owed_answer, channel.owes_answer());
  const Duration time = now - std::exchange(connection.looked_at, now);
  connection.silent_for += std::min(time, options_.silence_max / looks);
  if (received || (sent && !owed_answer) || channel.exchanges() == 0) connection.silent_for = {};
}

/// Gives up a connection that cannot be used any more.
void RedisNode::check_connection(std::uint32_t number, TimePoint now) {
  Connection& connection = connections_[number];
  if (connection.state == State::waiting) return;
  if (connection.channel.is_broken()) return fail(number, "a reply was malformed, or a command was given up halfway", now);
  measure_silence(connection, now);
  const bool silent = connection.state == State::ready && connection.silent_for >= options_.silence_max;
  if (silent || now >= connection.give_up_at) {
    fail(number, silent ? "it stands still: it owes an answer and sends nothing" : "it does not answer in time", now);
    return breaker_.stands_still(now);
  }
  if (!connection.renew_for.empty()) return fail(number, std::string{connection.renew_for}, now);
  if (number >= wanted_ && connection.channel.exchanges() == 0) drop(number, now);
}

void RedisNode::work(TimePoint now) {
  for (const auto& [number, refusal] : std::exchange(greetings_, {})) {
    if (connections_[number].state != State::greeting) continue;
    if (refusal.empty()) greeted(number, now);
    else fail(number, refusal, now);
  }
  for (std::uint32_t number = 0; number < connections_.size(); ++number) check_connection(number, now);
  // An open breaker ends all connections: their operations would be late, and the next probe shall test the current state.
  if (breaker_.state() == BreakerState::open) {
    for (std::uint32_t number = 0; number < connections_.size(); ++number) {
      if (connections_[number].state != State::waiting) fail(number, std::string{trouble_}, now);
    }
  }
  for (std::uint32_t number = 0; number < wanted_; ++number) {
    Connection& connection = connections_[number];
    if (connection.state != State::waiting) continue;
    if (!declines()) {
      if (now >= connection.retry_at) start(number, Admission::passed, now);
    } else if (number == 0 && !is_connecting() && now >= breaker_.next_probe()) {
      start(number, breaker_.admit(now), now);
    }
  }
  if (!usable()) break_waiting();
  pump();
  for (std::uint32_t number = 0; number < connections_.size(); ++number) {
    if (!std::exchange(connections_[number].to_send, false)) continue;
    transport_.send(id_of(number));
    measure_silence(connections_[number], now);
  }
}

TimePoint RedisNode::next() const {
  TimePoint next = never;
  for (std::uint32_t number = 0; number < connections_.size(); ++number) {
    const Connection& each = connections_[number];
    next = std::min(next, each.give_up_at);
    if (each.state == State::ready && each.channel.exchanges() > 0) {
      next = std::min(next, each.looked_at + std::min(options_.silence_max / looks, options_.silence_max - each.silent_for));
    }
    if (number < wanted_ && each.state == State::waiting && !declines()) next = std::min(next, each.retry_at);
  }
  if (is_used() && declines() && !is_connecting()) next = std::min(next, breaker_.next_probe());
  return next;
}

SharedNode RedisNode::describe() const {
  SharedNode node{.address = to_string(address_), .breaker = breaker_.state(), .connections = ready_connections()};
  std::size_t bytes = 0;
  for (const Connection& each : connections_) bytes += each.channel.window_bytes();
  node.in_flight = Bytes{bytes};
  node.reconnects = connects_ > connections_.size() ? connects_ - connections_.size() : 0;
  node.redirections = redirections_;
  node.failed = failed_;
  node.next_probe = breaker_.next_probe();
  return node;
}

}  // namespace terrace
