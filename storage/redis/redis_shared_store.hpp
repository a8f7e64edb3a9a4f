#pragma once

#include "storage/redis/redis_options.hpp"
#include "storage/shared/sealing.hpp"
#include "terrace/shared_store.hpp"

#include <memory>

namespace terrace {

/// A SharedStore on an engine that speaks the Redis protocol: Redis 6.2 or newer, Valkey, and services with their protocol, as a
/// single server or as a cluster. A block is one or two values (storage/shared/shared_value.hpp), which expire.
///
/// One thread does all I/O. The calls pass their orders to it through a lock-free queue. Payloads go from the caller's memory to
/// the socket, and from the socket to the caller's memory, with no copy between them; checksums are made, and sealed values
/// opened, as the bytes arrive. Replies that come after their deadline are read and dropped.
///
/// It starts although no server answers, and goes on trying. Servers that do not answer are left alone, node by node, by a
/// circuit breaker, which tries them now and then.
class RedisSharedStore final : public SharedStore {
 public:
  /// `waker` may be null. With a secret, values are sealed. Throws std::invalid_argument if a file for TLS cannot be used or a
  /// user has no password, and std::system_error if there is no thread or descriptor left.
  explicit RedisSharedStore(RedisOptions options, Waker* waker = nullptr, std::shared_ptr<const SharedSecret> secret = nullptr);
  ~RedisSharedStore() override;

  void use(const Fingerprint& fingerprint) override;
  void probe(const SharedProbe& probe) override;
  void read(std::span<const SharedRead> batch) override;
  void write(std::span<const SharedWrite> batch) override;
  void renew(std::span<const StoredBlock> blocks) override;
  void remove(std::span<const BlockKey> keys, GroupId group) override;
  void cancel(std::uint64_t token) override;
  std::size_t poll(std::vector<SharedEvent>& out) override;
  [[nodiscard]] std::size_t in_flight() const override;
  void set_waker(Waker* waker) override;
  [[nodiscard]] bool usable() const override;
  [[nodiscard]] SharedHealth health() const override;
  [[nodiscard]] SharedStoreStat stat() const override;

 private:
  class Engine;
  std::unique_ptr<Engine> engine_;
};

}  // namespace terrace
