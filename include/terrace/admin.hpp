#pragma once

#include "terrace/clock.hpp"
#include "terrace/config.hpp"
#include "terrace/export.hpp"

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

/// The admin endpoint, with which operators watch and change a process that serves with a cache or a TierStore. docs/admin.md
/// describes it for operators.

namespace terrace {

/// The admin endpoint: an HTTP server on a socket, with its own thread. It answers queries from the last snapshot that the cache
/// thread has published, so a query never waits for the cache and never blocks it. Commands run on the cache thread in poll(),
/// which the endpoint wakes. The same holds for a TierStore in place of the cache.
///
/// Security: any process that can connect can clear the cache. A Unix socket has mode 0600, so only the user of the process and
/// root can connect. TCP accepts only connections from this machine, and needs a token.
struct AdminOptions {
  /// "unix:PATH"; "unix:" for a generated name in the folder where `terrace` looks for processes (admin_folder());
  /// "tcp:127.0.0.1:PORT", "tcp:[::1]:PORT", where port 0 selects any free port. Empty: there is no endpoint.
  std::string listen{};
  /// For TCP: a file with the token that each request must bring ("Authorization: Bearer TOKEN"), at least 16 characters. Only
  /// its owner may be able to read it. It is read once, at the start.
  std::filesystem::path token_file{};
  /// If false, the endpoint refuses all commands, and only answers questions.
  bool commands = true;
  /// How often the thread of the cache publishes a snapshot. Each takes some microseconds of that thread.
  Duration publish_interval = std::chrono::seconds{1};
  /// How long a command waits for the cache thread. After that the command is withdrawn, and the answer is 503.
  Duration command_deadline = std::chrono::seconds{5};
  /// The largest number of connections at a time. Further connections are closed at once.
  std::uint32_t connections_max = 32;
  /// Number of tokens in a hash unit. Metrics of a cache without groups need it to count tokens. 0: they count blocks.
  std::uint32_t block_tokens = 0;
  /// The answer to "GET /v1/config". Config::options() fills it in.
  std::vector<ConfigValue> config{};
};

/// The folder with the sockets of this user's processes ("unix:"): XDG_RUNTIME_DIR/terrace if that variable is set; otherwise
/// /run/terrace for root, and /tmp/terrace-UID for others. It need not exist. Threads: any that may read the environment.
[[nodiscard]] TERRACE_API std::filesystem::path admin_folder();

}  // namespace terrace
