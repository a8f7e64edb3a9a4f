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
/// Reads HOST or HOST:PORT, with the default port. Returns false if it is neither.
[[nodiscard]] bool parse_address(std::string_view text, RedisAddress& address);

/// How an engine that speaks the Redis protocol is reached and used. Plain data.
struct RedisOptions {
  std::vector<RedisAddress> hosts{};  ///< one server, or some nodes of a cluster
  bool cluster = false;
  std::uint32_t database = 0;  ///< of a single server
  std::string user{};          ///< empty: the server's default user
  std::string password{};      ///< empty: none

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
  Bytes bytes_max{MiB * 256};  ///< of reads and writes under way; what goes beyond it is refused
  Duration connect_timeout = std::chrono::seconds{1};
  Duration retry_first = std::chrono::milliseconds{50};  ///< after a connection was lost; doubles, with jitter
  Duration retry_max = std::chrono::seconds{5};
  BreakerOptions breaker{};  ///< one for each node
  std::uint64_t seed = 0;    ///< of the jitter
};

/// Reads `redis://[USER[:PASSWORD]@]HOST[:PORT][,HOST[:PORT]...][/DATABASE][?OPTION=VALUE[&...]]`; `rediss://` is the same with
/// TLS. USER, PASSWORD and values may have %XX. Options: cluster, verify (0 or 1), password_env (the name of a variable of the
/// environment), password_file, ca_file, cert_file, key_file, prefix, expiry (`24h`, `90m`, `30s`; `0`: never), connections,
/// window (`4MiB`). Throws std::invalid_argument with one sentence, which has no password.
[[nodiscard]] RedisOptions parse_redis_url(std::string_view url);

/// The URL for people: without password.
[[nodiscard]] std::string shown(const RedisOptions& options);

}  // namespace terrace
