#pragma once

#include "storage/redis/redis_options.hpp"

#include <sys/uio.h>

#include <cstddef>
#include <memory>
#include <span>
#include <string>

struct ssl_st;
struct ssl_ctx_st;

namespace terrace {

struct FreeTls {
  void operator()(ssl_st* stream) const;
  void operator()(ssl_ctx_st* context) const;
};

/// Certificates and rules for all TLS connections to an engine. Threads: one.
class TlsContext {
 public:
  /// Throws std::invalid_argument with one sentence if a file cannot be used.
  explicit TlsContext(const RedisOptions& options);

  [[nodiscard]] ssl_ctx_st* get() const { return context_.get(); }

 private:
  std::unique_ptr<ssl_ctx_st, FreeTls> context_;
};

/// The byte stream of one connection, plain or with TLS. OpenSSL reads from and writes to the socket itself, so that it decrypts
/// directly into the caller's memory. The socket is non-blocking, and belongs to the caller. Threads: one, which must not receive
/// SIGPIPE.
class ByteStream {
 public:
  enum class State { done, wait_to_read, wait_to_write, closed };
  struct Moved {
    State state = State::done;
    std::size_t bytes = 0;
    bool drained = false;  ///< read: no more bytes were available
  };

  /// Without a context: no TLS. `host` is the name or the address that the server's certificate must have. The context may be
  /// destroyed before the stream.
  ByteStream(int socket, const TlsContext* context, const std::string& host);

  /// Does the TLS handshake. Call it again after each wait.
  [[nodiscard]] State shake_hands();
  [[nodiscard]] Moved read(std::span<const iovec> pieces);
  /// After wait_to_..., the next call must begin with the same bytes.
  [[nodiscard]] Moved write(std::span<const iovec> pieces);
  [[nodiscard]] bool is_tls() const { return tls_ != nullptr; }
  /// Returns why the stream is closed, for people.
  [[nodiscard]] const std::string& trouble() const { return trouble_; }

 private:
  [[nodiscard]] Moved failed(int result);
  [[nodiscard]] Moved failed_call(State wait_for);

  const int socket_;
  std::unique_ptr<ssl_st, FreeTls> tls_;
  std::string trouble_;
};

}  // namespace terrace
