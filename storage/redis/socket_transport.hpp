#pragma once

#include "storage/redis/redis_client.hpp"
#include "storage/redis/redis_node.hpp"
#include "storage/redis/redis_options.hpp"
#include "storage/redis/tls_stream.hpp"

#include <boost/asio/io_context.hpp>

#include <cstdint>
#include <map>
#include <memory>
#include <utility>

namespace terrace {

/// Does the I/O of a client's connections over TCP, on one Asio loop. The address of a host, the password, and the files for TLS
/// are read again for each connection, because they may change. The loop, the options and the client must outlive it. Threads:
/// the thread that runs the loop, and one detached thread for each name that is being looked up.
class SocketTransport final : public RedisTransport {
 public:
  /// Throws std::invalid_argument if a file of the options cannot be used.
  SocketTransport(boost::asio::io_context& loop, const RedisOptions& options);
  ~SocketTransport() override;
  /// Must be called before the first connection.
  void serve(RedisClient& client) { client_ = &client; }

  void connect(const RedisConnectionId& id, const RedisAddress& to) override;
  void close(const RedisConnectionId& id) override;
  void send(const RedisConnectionId& id) override;

 private:
  class Link;
  class LookUps;

  boost::asio::io_context& loop_;
  const RedisOptions& options_;
  const std::shared_ptr<LookUps> look_ups_;
  RedisClient* client_ = nullptr;
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::shared_ptr<Link>> links_;  ///< by node and connection
};

}  // namespace terrace
