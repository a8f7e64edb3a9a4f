#pragma once

#include "base/descriptor.hpp"
#include "storage/redis/channel.hpp"
#include "storage/redis/redis_options.hpp"
#include "storage/redis/resp_reader.hpp"
#include "storage/redis/tls_stream.hpp"
#include "terrace/clock.hpp"

#include <chrono>
#include <initializer_list>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

namespace terrace::tools {

/// A server cannot be asked: one sentence that names it, what is wrong, and what would be right.
class ServerUnreachable : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A connection to one server of a shared store that asks one question at a time and waits for the answer: for questions about
/// the server itself. (Blocks go through a SharedStore.)
///
/// Ownership: options and context outlive it. Threads: one, which must not receive SIGPIPE.
class RedisSession {
 public:
  /// Connects, agrees on a cipher if there is a context, and says which user it is for. Throws ServerUnreachable, and
  /// std::invalid_argument if the file of the password cannot be read.
  RedisSession(RedisAddress to, const RedisOptions& options, const TlsContext* context);
  ~RedisSession() { channel_.end(); }
  RedisSession(const RedisSession&) = delete;
  RedisSession& operator=(const RedisSession&) = delete;

  [[nodiscard]] const RedisAddress& address() const { return address_; }
  /// The answer, which may be an error of the server. Throws ServerUnreachable if there is none.
  RespValue ask(std::initializer_list<std::string_view> words);
  /// A field of the server's greeting ("version", "mode", "role"); empty if it has told none.
  [[nodiscard]] std::string greeting(std::string_view field) const;

 private:
  /// The longest time for an answer.
  static constexpr Duration patience = std::chrono::seconds{5};

  void connect();
  void shake_hands();
  void greet();
  /// Waits until the socket is ready. `hint` says what may be wrong if it never is.
  void wait(short events, TimePoint until, std::string_view hint = "is the address right, and no firewall between?") const;
  void send(TimePoint until);
  void receive(TimePoint until);
  [[noreturn]] void fail(std::string_view what) const;

  const RedisAddress address_;
  const RedisOptions& options_;
  const std::string password_;
  Descriptor socket_;
  std::optional<ByteStream> stream_;
  Channel channel_;
  bool greeted_ = false;
  RespValue greeting_;
};

}  // namespace terrace::tools
