#pragma once

#include "storage/shared/shared_expiry.hpp"
#include "terrace/block_store.hpp"
#include "terrace/clock.hpp"
#include "terrace/types.hpp"

#include <chrono>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace terrace {

/// The place where a server listens.
struct RedisAddress {
  std::string host{};
  std::uint16_t port = 6379;

  friend auto operator<=>(const RedisAddress&, const RedisAddress&) = default;
};
/// HOST:PORT; a host that is an IPv6 address has brackets.
[[nodiscard]] std::string to_string(const RedisAddress& address);
/// The text may be the name or the address of a host: at most 255 letters, digits or characters of "-._:%".
[[nodiscard]] bool is_host(std::string_view text);
/// Reads HOST or HOST:PORT, with the default port. Returns false if it is neither.
[[nodiscard]] bool parse_address(std::string_view text, RedisAddress& address);

/// How an engine that speaks the Redis protocol is reached and used. Plain data.
struct RedisOptions {
  std::vector<RedisAddress> hosts{};  ///< one server, or some nodes of a cluster
  bool cluster = false;
  std::uint32_t database = 0;  ///< of a single server
  std::string user{};          ///< empty: the server's default user
  std::string password{};      ///< empty: that of the file
  /// The first line is the password; read before each connection, because it may change. Empty: there is no file.
  std::string password_file{};

  bool tls = false;
  bool verify = true;       ///< the server's certificate, and that it is for this host
  std::string ca_file{};    ///< certificates of the authorities that are trusted, PEM; empty: those of the system
  std::string cert_file{};  ///< the certificate that this side shows, PEM; empty: none
  std::string key_file{};   ///< its key; empty: in cert_file

  std::string prefix = "terrace";  ///< of the names of all values
  SharedExpiry expiry{};

  std::uint32_t connections = 2;  ///< to each node
  Bytes window{MiB * 4};          ///< bytes that one connection sends or expects at once; a larger block goes alone
  std::uint32_t operations_max = 4096;
  Bytes bytes_max{MiB * 256};           ///< of reads and writes under way; what goes beyond it is refused
  std::uint32_t connections_max = 512;  ///< to all nodes; open_redis_store() takes fewer if the process may have few descriptors
  Duration connect_timeout = std::chrono::seconds{1};
  Duration silence_max = std::chrono::milliseconds{500};  ///< a server that owes an answer and sends nothing stands still
  Duration retry_first = std::chrono::milliseconds{50};   ///< after a connection was lost; doubles, with jitter
  Duration retry_max = std::chrono::seconds{5};
  BreakerOptions breaker{};  ///< one for each node
  std::uint64_t seed = 0;    ///< of the jitter
};

/// Reads `redis://[USER[:PASSWORD]@]HOST[:PORT][,HOST[:PORT]...][/DATABASE][?PARAMETER=VALUE[&...]]`; `rediss://` is the same
/// with TLS. USER, PASSWORD and values may have %XX. Parameters: cluster (0 or 1); for TLS verify (0 or 1), cert_file and
/// key_file. Each at most once. It opens no file. Throws std::invalid_argument with one sentence, which has no password.
[[nodiscard]] RedisOptions parse_redis_url(std::string_view url);

/// The URL for people: without password.
[[nodiscard]] std::string shown(const RedisOptions& options);

/// The content of an ordinary file with a secret. `what` says what it is, for the sentence of std::invalid_argument that this
/// throws.
[[nodiscard]] std::string read_secret(const std::string& path, std::string_view what);
/// The password for a connection that is made now; empty: none. Throws as read_secret().
[[nodiscard]] std::string current_password(const RedisOptions& options);
/// Words of a server, which are readable(), with stars in place of the secret, or of its beginning: a server may repeat what it
/// was sent.
[[nodiscard]] std::string without(std::string_view words, std::string_view secret);

}  // namespace terrace
