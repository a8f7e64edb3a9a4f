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

/// The admin endpoint: HTTP on a socket, on a thread of its own. It answers questions from the last snapshot that the thread of
/// the cache has published, so a question never waits for the cache and never holds it up. Commands are carried out by the thread
/// of the cache in poll(), which the endpoint wakes. A TierStore in place of the cache is the same.
///
/// Security: everybody who can connect can clear the cache. A Unix socket is made with mode 0600: it is for the user of the
/// process, and for root. TCP is for this machine only, and needs a token.
struct AdminOptions {
  /// "unix:PATH"; "unix:" for a name of its own in the folder where `terrace` looks for processes (admin_folder());
  /// "tcp:127.0.0.1:PORT", "tcp:[::1]:PORT", where port 0 means any free port. Empty: there is no endpoint.
  std::string listen{};
  /// For TCP: a file with the token that each request must bring ("Authorization: Bearer TOKEN"), at least 16 characters. Only
  /// its owner may be able to read it. It is read once, at the start.
  std::filesystem::path token_file{};
  /// If false, the endpoint refuses all commands, and only answers questions.
  bool commands = true;
  /// How often the thread of the cache publishes a snapshot. Each takes some microseconds of that thread.
  Duration publish_interval = std::chrono::seconds{1};
  /// How long a command waits for the thread of the cache. Later it is withdrawn, and the answer is 503.
  Duration command_deadline = std::chrono::seconds{5};
  /// The most connections at a time; more are closed at once.
  std::uint32_t connections_max = 32;
  /// Tokens of a hash unit, so that metrics can count tokens in a cache without groups. 0: they count blocks there.
  std::uint32_t block_tokens = 0;
  /// The answer to "GET /v1/config". Config::options() fills it in.
  std::vector<ConfigValue> config{};
};

/// The folder with the sockets of this user's processes ("unix:"): XDG_RUNTIME_DIR/terrace if that variable is set; otherwise
/// /run/terrace for root, and /tmp/terrace-UID for others. It need not exist. Threads: any that may read the environment.
[[nodiscard]] TERRACE_API std::filesystem::path admin_folder();

}  // namespace terrace
