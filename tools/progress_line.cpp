#include "tools/progress_line.hpp"

#include "tools/output.hpp"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <utility>

namespace terrace::tools {
namespace {

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
