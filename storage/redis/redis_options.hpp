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

/// The address at which a server listens.
struct RedisAddress {
  std::string host{};
  std::uint16_t port = 6379;

  friend auto operator<=>(const RedisAddress&, const RedisAddress&) = default;
};
/// HOST:PORT; a host that is an IPv6 address has brackets.
[[nodiscard]] std::string to_string(const RedisAddress& address);
/// Returns true if the text can be the name or the address of a host: at most 255 letters, digits or characters of "-._:%".
[[nodiscard]] bool is_host(std::string_view text);
/// Reads HOST or HOST:PORT, with the default port. Returns false if it is neither.
[[nodiscard]] bool parse_address(std::string_view text, RedisAddress& address);

/// Options to reach and use an engine that speaks the Redis protocol. Plain data.
struct RedisOptions {
  std::vector<RedisAddress> hosts{};  ///< one server, or some nodes of a cluster
  bool cluster = false;
  std::uint32_t database = 0;  ///< of a single server
  std::string user{};          ///< empty: the server's default user
  std::string password{};      ///< empty: the password of the file
  /// The first line is the password; read before each connection, because it may change. Empty: there is no file.
  std::string password_file{};

  bool tls = false;
  bool verify = true;       ///< verify the server's certificate, and that it is for this host
  std::string ca_file{};    ///< certificates of the trusted authorities, PEM; empty: the certificates of the system
  std::string cert_file{};  ///< the client certificate, PEM; empty: none
  std::string key_file{};   ///< the key of the client certificate; empty: it is in cert_file

  std::string prefix = "terrace";  ///< prefix of the names of all values
  SharedExpiry expiry{};

  std::uint32_t connections = 2;  ///< to each node
  Bytes window{MiB * 4};          ///< bytes that one connection sends or expects at once; a larger block goes alone
  std::uint32_t operations_max = 4096;
  Bytes bytes_max{MiB * 256};  ///< limit for reads and writes under way; further ones are refused
  /// limit for all nodes; open_redis_store() uses fewer if the process may have few descriptors
  std::uint32_t connections_max = 512;
  Duration connect_timeout = std::chrono::seconds{1};
  /// a server that owes a reply and sends nothing for this time counts as stalled
  Duration silence_max = std::chrono::milliseconds{500};
  Duration retry_first = std::chrono::milliseconds{50};  ///< pause after a connection was lost; it doubles, with jitter
  Duration retry_max = std::chrono::seconds{5};
  BreakerOptions breaker{};  ///< one for each node
  std::uint64_t seed = 0;    ///< seed of the jitter
};

/// Reads `redis://[USER[:PASSWORD]@]HOST[:PORT][,HOST[:PORT]...][/DATABASE][?PARAMETER=VALUE[&...]]`; `rediss://` is the same
/// with TLS. USER, PASSWORD and values may have %XX. Parameters: cluster (0 or 1); for TLS verify (0 or 1), cert_file and
/// key_file. Each parameter may be given once. It opens no file. Throws std::invalid_argument with one sentence, which has no
/// password.
[[nodiscard]] RedisOptions parse_redis_url(std::string_view url);

/// Returns the URL for people, without the password.
[[nodiscard]] std::string shown(const RedisOptions& options);

/// Returns the content of a regular file with a secret. Throws std::invalid_argument; `what` names the secret in its sentence.
[[nodiscard]] std::string read_secret(const std::string& path, std::string_view what);
/// Returns the password for a new connection; empty: none. Throws as read_secret().
[[nodiscard]] std::string current_password(const RedisOptions& options);
/// Returns readable() text of a server with stars in place of the secret or its beginning, because a server may repeat the data
/// that it was sent.
[[nodiscard]] std::string without(std::string_view words, std::string_view secret);

}  // namespace terrace
