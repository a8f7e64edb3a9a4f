#pragma once

#include "storage/redis/redis_options.hpp"
#include "terrace/options.hpp"
#include "tools/exit_status.hpp"
#include "tools/shared/facts.hpp"

#include <functional>

namespace terrace::tools {

struct SharedCheckOptions {
  SharedStorage shared{};  ///< its URL begins with redis: or rediss:
  SharedNeeds needs{};
  bool json = false;
};

/// Asks the servers of the engine about themselves. Throws ServerUnreachable if none can be asked, or if the URL says wrongly
/// whether they are a cluster, and std::invalid_argument for files of TLS.
[[nodiscard]] SharedFacts ask_servers(const RedisOptions& options);

/// Writes, finds, reads, renews and removes blocks by Terrace's own client, and adds what it measures. The blocks have a
/// fingerprint of their own, and expire within a minute. Once `go_on` returns false, it removes what it has written, and throws
/// Interrupted. Throws std::invalid_argument as open_shared_store() does.
void measure(const SharedCheckOptions& options, SharedFacts& facts, const std::function<bool()>& go_on);

/// Prints a line for each fact, with its verdict, what it costs and how to mend it. check_failed: the store cannot be reached, or
/// not be used like this. SIGINT and SIGTERM end a measurement by Interrupted. Throws UsageError.
[[nodiscard]] ExitStatus check_shared(const SharedCheckOptions& options);

}  // namespace terrace::tools
