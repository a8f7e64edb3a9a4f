#pragma once

#include "storage/redis/redis_options.hpp"
#include "storage/shared/sealing.hpp"
#include "terrace/shared_store.hpp"

#include <memory>

namespace terrace {

/// Opens a SharedStore on an engine that speaks the Redis protocol: Redis 6.2 or newer, Valkey, and services with their protocol,
/// as a single server or as a cluster. A block is one or two values (storage/shared/shared_value.hpp), which expire.
///
/// One thread does all I/O; the calls of the store only pass orders to it. Payloads go from the caller's memory to the socket,
/// and from the socket to the caller's memory, without a copy. Checksums are computed, and sealed values decrypted, as the bytes
/// arrive. Replies that come after their deadline are read and dropped.
///
/// It starts even if no server answers, and keeps trying to connect. For each node, a circuit breaker stops the use of a server
/// that does not answer, and probes it from time to time.
///
/// `waker` may be null. With a secret, values are sealed. Throws std::invalid_argument if a file of the options cannot be used or
/// a user has no password, and std::system_error if there is no thread or descriptor left.
[[nodiscard]] std::unique_ptr<SharedStore> open_redis_store(RedisOptions options, Waker* waker = nullptr,
                                                            std::shared_ptr<const SharedSecret> secret = nullptr);

}  // namespace terrace
