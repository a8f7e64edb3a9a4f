#pragma once

#include "storage/redis/resp_reader.hpp"
#include "tests/patience.hpp"
#include "tests/tools/temporary_directory.hpp"

#include <netinet/in.h>
#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace terrace::test {

/// The address of a port of the loopback interface.
sockaddr_in loopback(std::uint16_t port);

/// A port on which nobody listens, and which no connection takes of its own.
std::uint16_t free_port();

/// The program redis-server; empty if it is not installed. Debian's redis-tools has it too, under another name.
const std::filesystem::path& redis_program();

/// A connection that waits for each answer. Its errors are exceptions.
class RawClient {
 public:
  explicit RawClient(std::uint16_t port);
  ~RawClient();
  RawClient(const RawClient&) = delete;
  RawClient& operator=(const RawClient&) = delete;

  RespValue command(std::initializer_list<std::string_view> words);
  void send(std::string_view bytes);

 private:
  int socket_;
};

/// A real server on a free port of the loopback interface, with a directory of its own. It ends with this object, and with the
/// test program.
class RealServer {
 public:
  explicit RealServer(std::vector<std::string> arguments = {});
  ~RealServer();
  RealServer(const RealServer&) = delete;
  RealServer& operator=(const RealServer&) = delete;

  [[nodiscard]] std::uint16_t port() const { return port_; }
  [[nodiscard]] std::string host() const { return "127.0.0.1:" + std::to_string(port_); }
  [[nodiscard]] pid_t process() const { return process_; }
  /// Starts it again on the same port, without data.
  void start();
  void kill();
  void stop();  ///< it stands still
  void go_on();
  /// A connection of this moment.
  RespValue command(std::initializer_list<std::string_view> words) { return RawClient{port_}.command(words); }

 private:
  TemporaryDirectory directory_;
  const std::uint16_t port_;
  const std::vector<std::string> arguments_;
  pid_t process_ = -1;
};

/// A cluster of masters, each with the same number of slots, and a replica for each if wanted.
class RealCluster {
 public:
  /// `arguments` are for every node.
  explicit RealCluster(std::size_t masters = 3, bool replicas = false, const std::vector<std::string>& arguments = {});

  [[nodiscard]] RealServer& node(std::size_t n) { return *nodes_[n]; }
  [[nodiscard]] std::size_t size() const { return nodes_.size(); }
  /// The URL of all nodes.
  [[nodiscard]] std::string url() const;
  [[nodiscard]] std::string id(std::size_t n);
  /// Sends it to the node that has the key.
  RespValue command(std::string_view key, std::initializer_list<std::string_view> words);
  /// Waits until all nodes that run say that the cluster works.
  [[nodiscard]] bool is_well();

 private:
  std::vector<std::unique_ptr<RealServer>> nodes_;
};

/// Runs a program without its output. Returns its exit status.
int run_program(const std::vector<std::string>& words);

/// Certificates that were made for a test: ca.pem, server.pem and server.key for 127.0.0.1 and localhost, and old.pem, which has
/// expired, with the same key.
class Certificates {
 public:
  Certificates();
  [[nodiscard]] std::string file(const char* name) const { return (directory_.path() / name).string(); }

 private:
  TemporaryDirectory directory_;
};

}  // namespace terrace::test

/// At the start of each test that needs the server.
#define TERRACE_NEEDS_REDIS() \
  if (::terrace::test::redis_program().empty()) GTEST_SKIP() << "redis-server is not installed (package redis-tools)"
