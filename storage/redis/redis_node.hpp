#pragma once

#include "base/random.hpp"
#include "storage/redis/channel.hpp"
#include "storage/redis/exchange.hpp"
#include "storage/redis/redis_options.hpp"
#include "storage/resilience/circuit_breaker.hpp"
#include "terrace/shared_store.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace terrace {

/// Identifies one attempt to connect to a node. Reports about an earlier attempt of the same connection are ignored.
struct RedisConnectionId {
  std::uint32_t node = 0;
  std::uint32_t connection = 0;
  std::uint64_t serial = 0;

  friend bool operator==(const RedisConnectionId&, const RedisConnectionId&) = default;
};

/// Does the I/O of connections: the interface between the state machines and the sockets. It reports results to the client after
/// a call has returned, never during the call. Threads: the thread of the client.
class RedisTransport {
 public:
  virtual ~RedisTransport() = default;
  /// Connects, including the TLS handshake. Ends in RedisClient::connected() or lost(). The address of the host, certificates and
  /// the password are read anew each time, because a connection may have failed due to old ones.
  virtual void connect(const RedisConnectionId& id, const RedisAddress& to) = 0;
  /// Closes the connection. Nothing is reported about it any more.
  virtual void close(const RedisConnectionId& id) = 0;
  /// Sends the data that the channel of the connection has.
  virtual void send(const RedisConnectionId& id) = 0;
};

/// One server of the engine: its connections, the exchanges that wait for them, and the circuit breaker that stops its use while
/// it does not answer. A state machine without I/O and without a clock. Threads: one.
///
///     waiting --when it is time--> opening --connected--> greeting --HELLO, AUTH, SELECT, EXISTS answered--> ready
///        ^                            |                       |                                                |
///        +----------------------------+-----------------------+------------------lost--------------------------+
///
/// While the breaker is not closed, there is no connection, except that the first connection is tried when the breaker admits a
/// probe; the greeting is that probe. A server counts as stalled if it owes a reply and sends nothing for
/// RedisOptions::silence_max, or if it is not connected within RedisOptions::connect_timeout. Then the breaker opens at once, so
/// that no operation waits for this server any more.
class RedisNode {
 public:
  enum class Lane : std::uint8_t { asking, reading, writing };  ///< in the order of priority
  static constexpr std::size_t lanes = 3;
  static constexpr int looks = 4;  ///< number of checks of a silent connection until its server counts as stalled
  using Outcome = CircuitBreaker::Outcome;

  // Set and read by the client.
  TimePoint full_until{};    ///< the node is full: no writes before this time
  std::uint32_t orders = 0;  ///< renewals and removals under way

  /// Options, transport and random numbers must outlive the node.
  RedisNode(std::uint32_t number, RedisAddress address, const RedisOptions& options, RedisTransport& transport, Random& random);

  [[nodiscard]] const RedisAddress& address() const { return address_; }
  /// Sets the number of connections, at most that of the options; 0: the node is not used. A connection that is no longer wanted
  /// is closed when its exchanges have ended.
  void use(std::uint32_t connections) { wanted_ = std::min(connections, options_.connections); }
  [[nodiscard]] bool is_used() const { return wanted_ > 0; }
  /// Returns true if there is no connection, and no exchange waits for one.
  [[nodiscard]] bool is_idle() const;

  /// Returns true if exchanges can be submitted: a connection is ready, or may become ready.
  [[nodiscard]] bool usable() const;
  [[nodiscard]] bool is_ready() const { return ready_connections() > 0; }
  [[nodiscard]] bool declines() const { return breaker_.state() != BreakerState::closed; }
  /// Sends the exchange when there is room in a window. If the node is not usable(), calls broken() of the exchange at once.
  void submit(std::unique_ptr<Exchange> exchange, Lane lane);
  /// Reports the outcome of an operation that was sent to this node. `why` is for people.
  void ended(Outcome outcome, TimePoint now, std::string_view why = {});
  /// Records, for people, that the node forbids something, until the node is connected anew. Each sentence is kept once.
  void complain(std::string_view words);
  /// Reconnects all connections that have been ready for this time, because a new connection may lead to a different result.
  void renew(Duration after, TimePoint now, std::string_view why);
  void count_redirection() { ++redirections_; }

  /// Does the work that is due: connects, gives up, sends. Called after each call of this node and of its channels, and at
  /// next().
  void work(TimePoint now);
  [[nodiscard]] TimePoint next() const;
  /// Returns true once after a connection was lost or could not be made.
  [[nodiscard]] bool take_lost() { return std::exchange(lost_, false); }

  [[nodiscard]] bool is_current(const RedisConnectionId& id) const;
  [[nodiscard]] Channel& channel(const RedisConnectionId& id) { return connections_[id.connection].channel; }
  /// Reports a current connection as connected. `password` is the current password.
  void connected(const RedisConnectionId& id, std::string_view password);
  void lost(const RedisConnectionId& id, std::string_view why, TimePoint now);
  /// Ends everything without reports.
  void close();

  [[nodiscard]] SharedNode describe() const;
  /// Returns a number that grows with each change of describe(), except changes of bytes under way and of redirections.
  [[nodiscard]] std::uint64_t changes() const { return changes_; }
  /// Returns why the node cannot be used; empty if no reason is known.
  [[nodiscard]] const std::string& trouble() const { return trouble_; }
  [[nodiscard]] const std::string& complaint() const { return complaint_; }
  /// Returns text of the server without the password, which a server may have repeated.
  [[nodiscard]] std::string without_password(std::string_view words) const { return terrace::without(words, password_); }

 private:
  enum class State : std::uint8_t { waiting, opening, greeting, ready };

  struct Connection {
    Channel channel;
    State state = State::waiting;
    std::uint64_t serial = 0;
    CircuitBreaker::Admission admission{};  ///< admission of the attempt under way
    TimePoint retry_at{};                   ///< waiting
    TimePoint give_up_at = never;           ///< opening, greeting
    TimePoint ready_at{};                   ///< ready: time since which it is ready
    TimePoint looked_at{};                  ///< ready: time of the last check
    Duration silent_for{};                  ///< how long the server has sent nothing although it owed a reply
    std::uint64_t sent = 0;                 ///< bytes of the channel at the last check, as in the next members
    std::uint64_t received = 0;
    bool owed_answer = false;
    std::string renew_for{};  ///< why it is reconnected; empty: it is not
    Duration pause{};         ///< pause before the last attempt
    bool to_send = false;     ///< the channel may have more to send than before
  };
  class Greeting;

  void start(std::uint32_t number, CircuitBreaker::Admission admission, TimePoint now);
  void greet(std::uint32_t number, bool hello);
  void greeted(std::uint32_t number, TimePoint now);
  void fail(std::uint32_t number, std::string_view why, TimePoint now);
  void drop(std::uint32_t number, TimePoint now);
  void disconnect(std::uint32_t number, Outcome outcome, TimePoint now);
  void measure_silence(Connection& connection, TimePoint now) const;
  void check_connection(std::uint32_t number, TimePoint now);
  void break_waiting();
  void pump();
  [[nodiscard]] RedisConnectionId id_of(std::uint32_t number) const { return {number_, number, connections_[number].serial}; }
  [[nodiscard]] std::uint32_t ready_connections() const;
  [[nodiscard]] bool is_connecting() const;
  [[nodiscard]] Connection* least_busy();

  const std::uint32_t number_;
  const RedisAddress address_;
  const RedisOptions& options_;
  RedisTransport& transport_;
  Random& random_;
  std::uint32_t wanted_ = 0;  ///< number of connections
  bool tried_ = false;        ///< at least one try to connect has ended
  bool lost_ = false;
  CircuitBreaker breaker_;
  std::vector<Connection> connections_;
  std::array<std::deque<std::unique_ptr<Exchange>>, lanes> waiting_;
  std::vector<std::pair<std::uint32_t, std::string>> greetings_;  ///< ended greetings: the connection, and why it was refused
  std::uint64_t connects_ = 0;
  std::uint64_t redirections_ = 0;
  std::uint64_t failed_ = 0;
  std::uint64_t changes_ = 0;
  std::string password_;  ///< password of the last connection
  std::string trouble_;
  std::string complaint_;
};

}  // namespace terrace
