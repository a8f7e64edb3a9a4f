#pragma once

#include "storage/redis/redis_options.hpp"
#include "terrace/options.hpp"

namespace terrace {

/// The options for the Redis server that the URL with redis: or rediss: names. The password may be in a file, which is read for
/// each connection. Throws std::invalid_argument as open_shared_store() does.
[[nodiscard]] RedisOptions redis_options(const SharedStorage& options);

}  // namespace terrace
