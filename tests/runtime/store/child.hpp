#pragma once

#include "tests/paths.hpp"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <stdexcept>
#include <string>
#include <vector>

namespace terrace::test {

/// A process of tier_store_child, of which the standard output can be read. It is killed at the end, if it still runs.
class Child {
 public:
  explicit Child(const std::vector<std::string>& words) {
    int ends[2] = {-1, -1};
    if (::pipe(ends) != 0) throw std::runtime_error{"no pipe"};
    std::vector<char*> arguments{const_cast<char*>(paths.tier_store_child)};
    for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
    arguments.push_back(nullptr);
    pid_ = ::fork();
    if (pid_ == 0) {
      ::dup2(ends[1], STDOUT_FILENO);
      ::close(ends[0]);
      ::close(ends[1]);
      ::execv(arguments[0], arguments.data());
      ::_exit(127);
    }
    ::close(ends[1]);
    output_ = ::fdopen(ends[0], "r");
  }
  ~Child() {
    kill();
    std::fclose(output_);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  /// Waits for a line; empty at the end of the output.
  [[nodiscard]] std::string line() {
    std::string text;
    for (int c = std::fgetc(output_); c != EOF && c != '\n'; c = std::fgetc(output_)) text.push_back(static_cast<char>(c));
    return text;
  }
  /// Waits for the end; returns the exit status.
  [[nodiscard]] int wait() {
    int status = 0;
    ::waitpid(pid_, &status, 0);
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  void kill() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    static_cast<void>(wait());
  }

 private:
  pid_t pid_ = -1;
  FILE* output_ = nullptr;
};

}  // namespace terrace::test
