#include "tests/crash/victim.hpp"

#include "storage/io/threaded_io.hpp"
#include "storage/io/uring_io.hpp"
#include "tests/paths.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <stdexcept>

namespace terrace::test {

std::vector<EngineKind> engine_kinds() {
  std::vector<EngineKind> kinds{EngineKind::threads};
  if (!UringIo::unavailable()) kinds.push_back(EngineKind::uring);
  return kinds;
}

std::string to_string(EngineKind kind) { return kind == EngineKind::threads ? "threads" : "uring"; }

std::unique_ptr<IoEngine> make_engine(EngineKind kind) {
  static NullWaker nobody;
  if (kind == EngineKind::threads) {
    return std::make_unique<ThreadedIo>(ThreadedIo::Config{.threads = 3}, nobody);
  }
  return UringIo::make(UringIo::Config{.rings = 1, .depth = 8}, nobody);
}

Victim::Victim(const Task& task) {
  std::vector<std::string> words{paths.crash_child,         task.directory.string(),     to_string(task.engine),
                                 std::to_string(task.seed), std::to_string(task.blocks), std::to_string(task.steps)};
  if (task.operation) {
    words.push_back(std::to_string(*task.operation));
    words.push_back(std::to_string(task.moment));
  }
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);

  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) throw std::runtime_error{"pipe"};
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  const int error = ::posix_spawn(&pid_, arguments[0], &actions, nullptr, arguments.data(), ::environ);
  ::posix_spawn_file_actions_destroy(&actions);
  ::close(ends[1]);
  pipe_ = ends[0];
  if (error != 0) {
    ::close(pipe_);
    throw std::runtime_error{"cannot start " + words[0] + ": " + std::strerror(error)};
  }
}

Victim::~Victim() {
  if (pid_ > 0) kill();
  ::close(pipe_);
}

void Victim::listen(std::size_t sayings, std::optional<std::chrono::microseconds> time) {
  const auto deadline = std::chrono::steady_clock::now() + time.value_or(std::chrono::microseconds{0});
  while (!ended_ && said_.size() < sayings) {
    timespec left{};
    if (time) {
      const auto rest = std::chrono::duration_cast<std::chrono::nanoseconds>(deadline - std::chrono::steady_clock::now());
      if (rest.count() <= 0) return;
      left.tv_sec = static_cast<std::time_t>(rest.count() / 1'000'000'000);
      left.tv_nsec = static_cast<long>(rest.count() % 1'000'000'000);
    }
    pollfd readable{pipe_, POLLIN, 0};
    if (::ppoll(&readable, 1, time ? &left : nullptr, nullptr) <= 0) continue;
    std::array<char, 8192> buffer{};
    const ssize_t got = ::read(pipe_, buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    ended_ = got <= 0;
    if (ended_) break;
    received_.append(buffer.data(), static_cast<std::size_t>(got));
    std::size_t at = 0;
    for (; at + saying_bytes <= received_.size(); at += saying_bytes) {
      Saying saying{static_cast<Said>(received_[at]), {}};
      std::memcpy(saying.key.bytes.data(), received_.data() + at + 1, saying.key.bytes.size());
      said_.push_back(saying);
    }
    received_.erase(0, at);
  }
}

void Victim::kill() {
  ::kill(pid_, SIGKILL);
  wait();
}

void Victim::wait() {
  listen(~std::size_t{0}, std::nullopt);
  while (::waitpid(pid_, &status_, 0) < 0 && errno == EINTR) {
  }
  pid_ = -1;
}

}  // namespace terrace::test
