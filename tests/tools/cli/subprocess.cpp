#include "tests/tools/cli/subprocess.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <stdexcept>
#include <string_view>
#include <utility>

namespace terrace::test {
namespace {

/// The arguments are prepared before the fork, because nothing may be allocated between it and exec.
pid_t start(const std::vector<std::string>& words, const std::map<std::string, std::string>& environment, int out, int err) {
  std::vector<char*> argv;
  for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  std::vector<std::string> variables;
  for (const auto& [name, value] : environment) variables.push_back(name + "=" + value);
  std::vector<char*> envp;
  for (char** each = ::environ; *each != nullptr; ++each) {
    const std::string_view variable{*each};
    if (!environment.contains(std::string{variable.substr(0, variable.find('='))})) envp.push_back(*each);
  }
  for (std::string& each : variables) envp.push_back(each.data());
  envp.push_back(nullptr);

  const pid_t pid = ::fork();
  if (pid < 0) throw std::runtime_error{"fork"};
  if (pid == 0) {
    ::dup2(out, STDOUT_FILENO);
    ::dup2(err, STDERR_FILENO);
    ::execve(argv[0], argv.data(), envp.data());
    ::_exit(127);
  }
  return pid;
}

int status_of(pid_t pid) {
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

std::pair<int, int> make_pipe() {
  std::array<int, 2> ends;
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) throw std::runtime_error{"pipe"};
  return {ends[0], ends[1]};
}

}  // namespace

Ended run(const std::vector<std::string>& words, const std::map<std::string, std::string>& environment) {
  const auto [out, out_end] = make_pipe();
  const auto [err, err_end] = make_pipe();
  const pid_t pid = start(words, environment, out_end, err_end);
  ::close(out_end);
  ::close(err_end);

  Ended ended;
  std::array<pollfd, 2> open{pollfd{out, POLLIN, 0}, pollfd{err, POLLIN, 0}};
  while (open[0].fd >= 0 || open[1].fd >= 0) {
    ::poll(open.data(), open.size(), -1);
    for (std::size_t i = 0; i < open.size(); ++i) {
      if (open[i].fd < 0 || open[i].revents == 0) continue;
      std::array<char, 4096> buffer;
      const ssize_t got = ::read(open[i].fd, buffer.data(), buffer.size());
      if (got > 0) (i == 0 ? ended.out : ended.err).append(buffer.data(), static_cast<std::size_t>(got));
      if (got == 0) open[i].fd = -1;
    }
  }
  ::close(out);
  ::close(err);
  ended.status = status_of(pid);
  return ended;
}

OnTerminal::OnTerminal(const std::vector<std::string>& words, unsigned short columns) {
  terminal_ = ::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
  if (terminal_ < 0 || ::grantpt(terminal_) != 0 || ::unlockpt(terminal_) != 0) throw std::runtime_error{"no terminal"};
  std::array<char, 128> name;
  if (::ptsname_r(terminal_, name.data(), name.size()) != 0) throw std::runtime_error{"no terminal"};
  const int other_side = ::open(name.data(), O_RDWR | O_NOCTTY | O_CLOEXEC);
  const winsize size{24, columns, 0, 0};
  if (::ioctl(other_side, TIOCSWINSZ, &size) != 0) throw std::runtime_error{"no terminal"};
  // Standard output is not needed here.
  out_ = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
  pid_ = start(words, {}, out_, other_side);
  ::close(other_side);
}

OnTerminal::~OnTerminal() {
  if (pid_ > 0) {
    ::kill(pid_, SIGKILL);
    (void)status_of(pid_);
  }
  ::close(terminal_);
  ::close(out_);
}

bool OnTerminal::read_more() {
  std::array<char, 4096> buffer;
  const ssize_t got = ::read(terminal_, buffer.data(), buffer.size());
  if (got <= 0) return false;  // EIO: the other side is closed
  shown_.append(buffer.data(), static_cast<std::size_t>(got));
  return true;
}

bool OnTerminal::wait_for(const std::string& text) {
  while (shown_.find(text) == std::string::npos) {
    if (!read_more()) return false;
  }
  return true;
}

void OnTerminal::signal(int number) const { ::kill(pid_, number); }

Ended OnTerminal::wait() {
  while (read_more()) {
  }
  Ended ended;
  ended.status = status_of(std::exchange(pid_, -1));
  ended.err = shown_;
  return ended;
}

}  // namespace terrace::test
