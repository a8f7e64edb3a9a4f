#pragma once

#include "storage/redis/redis_options.hpp"
#include "storage/shared/sealing.hpp"
#include "terrace/shared_store.hpp"

#include <memory>

namespace terrace {

/// Opens a SharedStore on an engine that speaks the Redis protocol: Redis 6.2 or newer, Valkey, and services with their protocol,
/// as a single server or as a cluster. A block is one or two values (storage/shared/shared_value.hpp), which expire.
///
/// One thread does all I/O; the calls of the store only hand their orders over to it. Payloads go from the caller's memory to the
/// socket, and from the socket to the caller's memory, with no copy between them; checksums are made, and sealed values opened,
/// as the bytes arrive. Replies that come after their deadline are read and dropped.
///
/// It starts although no server answers, and goes on trying. Servers that do not answer are left alone, node by node, by a
/// circuit breaker, which tries them now and then.
///
/// `waker` may be null. With a secret, values are sealed. Throws std::invalid_argument if a file of the options cannot be used or
/// a user has no password, and std::system_error if there is no thread or descriptor left.
[[nodiscard]] std::unique_ptr<SharedStore> open_redis_store(RedisOptions options, Waker* waker = nullptr,
                                                            std::shared_ptr<const SharedSecret> secret = nullptr);

}  // namespace terrace
