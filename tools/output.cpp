#include "tools/output.hpp"

#include "base/whole_file.hpp"

#include <boost/json.hpp>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <mutex>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>

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

/// Replaces the last line of the terminal, on standard error. An empty text removes the line. Lines of write_error() appear above
/// it.
void draw_progress(std::string_view line) noexcept {
  const std::lock_guard lock{terminal};
  try {
    to_standard_error(std::string{erase_line} + std::string{line});
    drawn = !line.empty();
  } catch (...) {
  }
}

using Clock = std::chrono::steady_clock;

std::size_t terminal_columns() {
  constexpr std::size_t usual = 80;
  winsize size{};
  return ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : usual;
}

/// Returns for example "12 s", "3:07" or "1:02:33".
std::string time_text(double seconds) {
  constexpr double longest = 1e6;
  const auto whole = static_cast<std::uint64_t>(std::clamp(seconds, 0.0, longest));
  if (whole < 60) return fmt::format("{} s", whole);
  if (whole < 3600) return fmt::format("{}:{:02}", whole / 60, whole % 60);
  return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
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

ExitStatus complain(std::string_view who, std::string_view what, ExitStatus status) noexcept {
  note(std::fflush(stdout) == 0);  // what was printed before appears first
  write_error(who, what);
  return status;
}

int end_output(std::string_view who, ExitStatus status) {
  note(std::fclose(stdout) == 0);  // some file systems report errors only here
  if (failed_with != 0 && status == ExitStatus::done) status = complain(who, what_failed(), ExitStatus::run_failed);
  return static_cast<int>(status);
}

std::string progress_text(const ProgressState& state, double seconds, std::size_t columns) {
  constexpr std::size_t bar_max = 30;
  constexpr std::size_t bar_min = 10;
  // Some terminals move to the next line after a character in the last column.
  const std::size_t width = columns > 1 ? columns - 1 : 0;
  const double share = state.total == 0 ? 0 : std::min(1.0, static_cast<double>(state.done) / static_cast<double>(state.total));
  std::string line = state.total == 0 ? state.text : fmt::format("{:5.1f} %  {}", 100 * share, state.text);
  const std::string passed = fmt::format("  {}", time_text(seconds));
  // In the first second there is not enough data for an estimate.
  const std::string left = share > 0 && seconds >= 1 ? fmt::format("  {} left", time_text(seconds * (1 - share) / share)) : "";
  if (line.size() + passed.size() + left.size() <= width) line += passed;
  line += left;
  if (state.total > 0 && line.size() + bar_min + 3 <= width) {
    const std::size_t bar = std::min(bar_max, width - line.size() - 3);
    const auto filled = static_cast<std::size_t>(share * static_cast<double>(bar));
    line = fmt::format("[{}{}] {}", std::string(filled, '#'), std::string(bar - filled, '.'), line);
  }
  return line.substr(0, width);
}

ProgressLine::ProgressLine(std::function<ProgressState()> look) {
  if (::isatty(STDERR_FILENO) == 1) thread_ = std::thread{[this, look = std::move(look)] { draw_until_ended(look); }};
}

ProgressLine::~ProgressLine() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock{mutex_};
    end_ = true;
  }
  ended_.notify_one();
  thread_.join();
}

void ProgressLine::draw_until_ended(const std::function<ProgressState()>& look) {
  constexpr auto pause = std::chrono::milliseconds{100};
  const Clock::time_point begin = Clock::now();
  std::unique_lock lock{mutex_};
  do {
    lock.unlock();
    draw_progress(progress_text(look(), std::chrono::duration<double>(Clock::now() - begin).count(), terminal_columns()));
    lock.lock();
  } while (!ended_.wait_for(lock, pause, [this] { return end_; }));
  draw_progress("");
}

}  // namespace terrace::tools
