#include "tools/output.hpp"

#include "base/whole_file.hpp"

#include <boost/json.hpp>
#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <mutex>
#include <stdexcept>
#include <string>
#include <system_error>

namespace terrace::tools {
namespace {

/// The errno of the first failed write to standard output; 0 if none failed.
int failed_with = 0;

void note(bool done) {
  if (!done && failed_with == 0) failed_with = errno;
}

/// Guards the last line of the terminal.
std::timed_mutex terminal;
std::atomic<bool> drawn = false;
constexpr std::string_view erase_line = "\r\x1b[K";

void to_standard_error(std::string_view text) { static_cast<void>(write_whole(STDERR_FILENO, text)); }

std::string what_failed() {
  return fmt::format("cannot write to standard output: {}", std::generic_category().message(failed_with));
}

}  // namespace

void prepare_output() {
  std::signal(SIGPIPE, SIG_IGN);
  // Descriptors are opened in the wrong direction on purpose, so that each use of them fails.
  for (const int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    const bool closed = ::fcntl(descriptor, F_GETFD) < 0 && errno == EBADF;
    if (closed) (void)::open("/dev/null", descriptor == STDIN_FILENO ? O_WRONLY : O_RDONLY);
  }
}

void write_output(std::string_view text) { note(std::fwrite(text.data(), 1, text.size(), stdout) == text.size()); }

void print_json(const boost::json::object& object) { write_output(json_text(object) + "\n"); }

void flush_output() {
  note(std::fflush(stdout) == 0);
  if (failed_with != 0) throw std::runtime_error{what_failed()};
}

void write_error(std::string_view who, std::string_view what) noexcept {
  constexpr std::size_t shown_max = 2000;
  try {
    // The wait is short, because a terminal that does not accept output must not keep a process from ending. It uses the system
    // clock, because ThreadSanitizer of GCC 12 does not see locks that wait by the steady clock.
    const std::unique_lock lock{terminal, std::chrono::system_clock::now() + std::chrono::milliseconds{200}};
    std::string line = drawn ? std::string{erase_line} : std::string{};
    line += fmt::format("{}: {}", who, printable(what.substr(0, shown_max)));
    line += what.size() > shown_max ? "...\n" : "\n";
    to_standard_error(line);
  } catch (...) {  // no memory for the line
  }
}

LogSink& standard_error_log() {
  class StandardErrorLog final : public LogSink {
    void write(LogLevel level, std::string_view sentence) override {
      write_error("terrace", fmt::format("{}: {}", to_string(level), sentence));
    }
  };
  // Never destroyed, because a log may still write while the process ends.
  static auto* const log = new StandardErrorLog;
  return *log;
}

void draw_progress(std::string_view line) noexcept {
  const std::lock_guard lock{terminal};
  try {
    to_standard_error(std::string{erase_line} + std::string{line});
    drawn = !line.empty();
  } catch (...) {
  }
}

void complain(std::string_view who, std::string_view what) noexcept {
  note(std::fflush(stdout) == 0);  // what was printed before appears first
  write_error(who, what);
}

int end_output(std::string_view who, ExitStatus status) {
  note(std::fclose(stdout) == 0);  // some file systems report errors only here
  if (failed_with != 0 && status == ExitStatus::done) {
    complain(who, what_failed());
    status = ExitStatus::run_failed;
  }
  return static_cast<int>(status);
}

}  // namespace terrace::tools
