#pragma once

#include "storage/redis/redis_options.hpp"
#include "terrace/options.hpp"

namespace terrace {

/// How the engine is reached that the options name by a URL with redis: or rediss:. Reads the file of the password. Throws
/// std::invalid_argument as open_shared_store() does.
[[nodiscard]] RedisOptions redis_options(const SharedStorage& options);

}  // namespace terrace
