#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace terrace::test {

/// Stands between a client and a server on the loopback interface, and does harm to what the server says. Threads: any.
class TestProxy {
 public:
  static constexpr std::int64_t nowhere = -1;

  explicit TestProxy(std::uint16_t server);
  ~TestProxy();
  TestProxy(const TestProxy&) = delete;
  TestProxy& operator=(const TestProxy&) = delete;

  [[nodiscard]] std::uint16_t port() const { return port_; }
  [[nodiscard]] std::string host() const { return "127.0.0.1:" + std::to_string(port_); }

  /// Bytes of the server that still pass, on all connections together; then the connection is closed. nowhere: all pass.
  void cut_after(std::int64_t bytes) { cut_ = bytes; }
  /// One bit of the byte after so many bytes is another one, once.
  void flip_after(std::int64_t bytes) { flip_ = bytes; }
  /// Nothing of the server passes while this is true.
  void stall(bool stalled) { stalled_ = stalled; }
  /// Nothing of the client passes while this is true.
  void stall_client(bool stalled) { client_stalled_ = stalled; }
  /// Bytes a second of the server, about; 0: no limit.
  void throttle(std::size_t bytes) { rate_ = bytes; }
  /// The next answer begins with these bytes.
  void inject(std::string bytes);
  void cut_now() { cut_now_ = true; }
  [[nodiscard]] std::size_t connections() const { return accepted_; }
  /// Bytes of the server that have passed.
  [[nodiscard]] std::uint64_t passed() const { return passed_; }

 private:
  struct Pair {
    int client = -1;
    int server = -1;
    std::string to_client{};
    std::string to_server{};
    bool closed = false;
  };

  void run();
  void move(Pair& pair);
  void close(Pair& pair);

  const std::uint16_t server_;
  int listener_ = -1;
  std::uint16_t port_ = 0;
  std::vector<Pair> pairs_;  ///< of the thread
  std::atomic<std::int64_t> cut_{nowhere};
  std::atomic<std::int64_t> flip_{nowhere};
  std::atomic<bool> stalled_{false};
  std::atomic<bool> client_stalled_{false};
  std::atomic<std::size_t> rate_{0};
  std::atomic<bool> cut_now_{false};
  std::atomic<std::size_t> accepted_{0};
  std::atomic<std::uint64_t> passed_{0};
  std::atomic<bool> end_{false};
  std::mutex mutex_;
  std::string injected_;  ///< guarded by mutex_
  std::thread thread_;
};

}  // namespace terrace::test
