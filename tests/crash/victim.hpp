#pragma once

#include "storage/io/io_engine.hpp"

#include "tests/crash/driver.hpp"

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace terrace::test {

enum class EngineKind : unsigned char { threads, uring };
/// The engines that this machine supports.
[[nodiscard]] std::vector<EngineKind> engine_kinds();
[[nodiscard]] std::string to_string(EngineKind kind);
[[nodiscard]] std::unique_ptr<IoEngine> make_engine(EngineKind kind);

/// A process that drives a file store (crash_child.cpp) and is killed. If it still runs, the destructor kills it.
class Victim {
 public:
  struct Task {
    std::filesystem::path directory;
    EngineKind engine = EngineKind::threads;
    std::uint64_t seed = 1;
    std::uint32_t blocks = 48;
    /// Steps of the driver; 0: it runs until it is killed.
    std::uint64_t steps = 0;
    /// If set, the process kills itself at this operation and at this moment of it (PointedIo).
    std::optional<std::uint64_t> operation{};
    unsigned moment = 0;
  };

  explicit Victim(const Task& task);
  ~Victim();
  Victim(const Victim&) = delete;
  Victim& operator=(const Victim&) = delete;

  /// Reads messages until there are this many, the process has ended, or the time is over. Appends them to said().
  void listen(std::size_t sayings, std::optional<std::chrono::microseconds> time);
  /// Kills the process, reads the remaining messages, and waits for its end.
  void kill();
  [[nodiscard]] const std::vector<Saying>& said() const { return said_; }
  /// The status from waitpid(), after the process has ended.
  [[nodiscard]] int status() const { return status_; }
  void wait();

 private:
  pid_t pid_ = -1;
  int pipe_ = -1;
  bool ended_ = false;
  int status_ = 0;
  std::string received_;
  std::vector<Saying> said_;
};

/// A message in the pipe: its letter and the key.
inline constexpr std::size_t saying_bytes = 33;

}  // namespace terrace::test
