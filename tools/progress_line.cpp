#include "tools/progress_line.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <string>

namespace terrace::tools {

ProgressLine::ProgressLine() : enabled_{::isatty(STDERR_FILENO) == 1} {}

ProgressLine::~ProgressLine() { erase(); }

bool ProgressLine::due() const { return enabled_ && Clock::now() >= next_; }

void ProgressLine::show(std::uint64_t done, std::uint64_t total, std::string_view text) {
  if (!due()) return;
  const Clock::time_point now = Clock::now();
  next_ = now + std::chrono::milliseconds{100};
  drawn_ = true;

  constexpr std::uint64_t width = 30;
  const std::uint64_t filled = total == 0 ? 0 : std::min(done, total) * width / total;
  const double share = total == 0 ? 0 : 100.0 * static_cast<double>(done) / static_cast<double>(total);
  const std::string bar = std::string(filled, '#') + std::string(width - filled, '.');
  fmt::print(stderr, "\r[{}] {:5.1f} %  {}  {:.0f} s\x1b[K", bar, share, text,
             std::chrono::duration<double>(now - begin_).count());
  std::fflush(stderr);
}

void ProgressLine::erase() {
  if (!drawn_) return;
  drawn_ = false;
  fmt::print(stderr, "\r\x1b[K");
  std::fflush(stderr);
}

}  // namespace terrace::tools
