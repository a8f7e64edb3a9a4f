#pragma once

#include "base/random.hpp"
#include "storage/redis/channel.hpp"
#include "storage/redis/exchange.hpp"
#include "storage/redis/redis_options.hpp"
#include "storage/resilience/circuit_breaker.hpp"
#include "terrace/shared_store.hpp"

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

/// Names one try to connect to a node. What is said about an earlier try of the same connection is ignored.
struct RedisConnectionId {
  std::uint32_t node = 0;
  std::uint32_t connection = 0;
  std::uint64_t serial = 0;

  friend bool operator==(const RedisConnectionId&, const RedisConnectionId&) = default;
};

/// Moves the bytes of connections; the seam between the state machines and the sockets. It tells the client how a call ended
/// later, never during the call. Threads: that of the client.
class RedisTransport {
 public:
  virtual ~RedisTransport() = default;
  /// Connects, and with TLS agrees on a cipher. Ends in RedisClient::connected() or lost(). The address of the host, certificates
  /// and the password are those of now, because a connection may have failed for old ones.
  virtual void connect(const RedisConnectionId& id, const RedisAddress& to) = 0;
  /// Nothing more is said about this connection.
  virtual void close(const RedisConnectionId& id) = 0;
  /// The channel of the connection has something to send.
  virtual void send(const RedisConnectionId& id) = 0;
};

/// One server of the engine: its connections, what waits for them, and the breaker that keeps everybody away while it does not
/// answer. A state machine: no I/O, no clock. Threads: one.
///
///     waiting --when it is time--> opening --connected--> greeting --HELLO, AUTH, SELECT, EXISTS answered--> ready
///        ^                            |                       |                                                |
///        +----------------------------+-----------------------+------------------lost--------------------------+
///
/// While the breaker is not closed, there is no connection, except that the first one is tried when the breaker admits a probe.
/// The greeting is that probe. A server that owes an answer and sends nothing for RedisOptions::silence_max stands still, and so
/// does one that is not connected within RedisOptions::connect_timeout: then the breaker opens at once, so that nothing waits for
/// this server any more.
class RedisNode {
 public:
  enum class Lane : std::uint8_t { asking, reading, writing };  ///< what goes first
  static constexpr std::size_t lanes = 3;
  static constexpr int looks = 4;  ///< at a connection, until its server stands still
  using Outcome = CircuitBreaker::Outcome;

  /// Options, transport and random numbers outlive the node.
  RedisNode(std::uint32_t number, RedisAddress address, const RedisOptions& options, RedisTransport& transport, Random& random);

  [[nodiscard]] const RedisAddress& address() const { return address_; }
  /// How many connections are wanted, up to those of the options; 0: the node is not used. What is under way on a connection that
  /// is not wanted any more ends by itself, and then the connection is closed.
  void use(std::uint32_t connections) { wanted_ = connections; }
  [[nodiscard]] bool is_used() const { return wanted_ > 0; }
  /// There is no connection, and nothing waits for one.
  [[nodiscard]] bool is_idle() const;

  /// True if something can be submitted: a connection is ready, or may become so.
  [[nodiscard]] bool usable() const;
  [[nodiscard]] bool is_ready() const { return ready_connections() > 0; }
  [[nodiscard]] bool declines() const { return breaker_.state() != BreakerState::closed; }
  /// Sends it when there is room in a window. If the node is not usable(), the exchange is broken() at once.
  void submit(std::unique_ptr<Exchange> exchange, Lane lane);
  /// How something ended that was sent here. `why` is for people.
  void ended(Outcome outcome, TimePoint now, std::string_view why = {});
  /// The node forbids something: for people, until the node is connected anew. Each sentence is kept once.
  void complain(std::string_view words);
  /// Connections that have been ready for so long are made anew: another one may be told something else.
  void renew(Duration after, TimePoint now, std::string_view why);
  void count_redirection() { ++redirections_; }

  /// Does what is due: connects, gives up, sends. Called after each call of this node and of its channels, and at next().
  void work(TimePoint now);
  [[nodiscard]] TimePoint next() const;
  /// True once after a connection was lost or could not be made.
  [[nodiscard]] bool take_lost() { return std::exchange(lost_, false); }

  [[nodiscard]] bool is_current(const RedisConnectionId& id) const;
  [[nodiscard]] Channel& channel(const RedisConnectionId& id) { return connections_[id.connection].channel; }
  /// The connection is current. `password` is that of now.
  void connected(const RedisConnectionId& id, std::string_view password);
  void lost(const RedisConnectionId& id, std::string_view why, TimePoint now);
  /// Ends everything without telling anybody.
  void close();

  [[nodiscard]] SharedNode describe() const;
  /// Grows with each change of what describe() says, except that of bytes under way and of redirections.
  [[nodiscard]] std::uint64_t changes() const { return changes_; }
  /// Why the node cannot be used; empty if nothing is known.
  [[nodiscard]] const std::string& trouble() const { return trouble_; }
  [[nodiscard]] const std::string& complaint() const { return complaint_; }
  /// The server's words without the password, which a server may have repeated.
  [[nodiscard]] std::string without_password(std::string_view words) const { return terrace::without(words, password_); }

 private:
  enum class State : std::uint8_t { waiting, opening, greeting, ready };

  struct Connection {
    Channel channel;
    State state = State::waiting;
    std::uint64_t serial = 0;
    CircuitBreaker::Admission admission{};  ///< of the try that is under way
    TimePoint retry_at{};                   ///< waiting
    TimePoint give_up_at = never;           ///< opening, greeting
    TimePoint ready_at{};                   ///< ready: since when
    TimePoint looked_at{};                  ///< ready: when it was looked at last
    Duration silent_for{};                  ///< how long the server has sent nothing although it owed an answer
    std::uint64_t sent = 0;                 ///< bytes of the channel at the last look; so in the next ones
    std::uint64_t received = 0;
    bool owed_answer = false;
    std::string renew_for{};  ///< why it is made anew; empty: it is not
    Duration pause{};         ///< before the last try
    bool to_send = false;     ///< the channel may have more to send than before
  };
  class Greeting;

  void start(std::uint32_t number, CircuitBreaker::Admission admission, TimePoint now);
  void greet(std::uint32_t number, bool hello);
  void greeted(std::uint32_t number, TimePoint now);
  void fail(std::uint32_t number, std::string_view why, TimePoint now);
  void drop(std::uint32_t number, TimePoint now);
  void listen(Connection& connection, TimePoint now) const;
  void look_at(std::uint32_t number, TimePoint now);
  void break_waiting();
  void pump();
  [[nodiscard]] RedisConnectionId id_of(std::uint32_t number) const { return {number_, number, connections_[number].serial}; }
  [[nodiscard]] std::uint32_t ready_connections() const;
  [[nodiscard]] std::uint32_t connections_wanted() const;
  [[nodiscard]] bool is_connecting() const;
  [[nodiscard]] Connection* least_busy();

  const std::uint32_t number_;
  const RedisAddress address_;
  const RedisOptions& options_;
  RedisTransport& transport_;
  Random& random_;
  std::uint32_t wanted_ = 0;  ///< connections
  bool tried_ = false;        ///< at least one try to connect has ended
  bool lost_ = false;
  CircuitBreaker breaker_;
  std::vector<Connection> connections_;
  std::array<std::deque<std::unique_ptr<Exchange>>, lanes> waiting_;
  std::vector<std::pair<std::uint32_t, std::string>> greetings_;  ///< ended: connection, and why it was refused
  std::uint64_t connects_ = 0;
  std::uint64_t redirections_ = 0;
  std::uint64_t failed_ = 0;
  std::uint64_t changes_ = 0;
  std::string password_;  ///< that of the last connection
  std::string trouble_;
  std::string complaint_;
};

}  // namespace terrace
