#include "tools/replay/progress.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <string>

namespace terrace::tools {

Progress::Progress(std::uint64_t requests_total) : enabled_{::isatty(STDERR_FILENO) == 1}, requests_total_{requests_total} {}

Progress::~Progress() { erase(); }

void Progress::show(std::uint64_t requests, std::uint64_t hits, std::uint64_t blocks) {
  if (!enabled_) return;
  const Clock::time_point now = Clock::now();
  if (now < next_) return;
  next_ = now + std::chrono::milliseconds{100};
  drawn_ = true;

  constexpr std::uint64_t width = 30;
  const std::uint64_t filled = requests_total_ == 0 ? 0 : std::min(requests, requests_total_) * width / requests_total_;
  const double share = requests_total_ == 0 ? 0 : 100.0 * static_cast<double>(requests) / static_cast<double>(requests_total_);
  const double hit_share = blocks == 0 ? 0 : 100.0 * static_cast<double>(hits) / static_cast<double>(blocks);
  const std::string bar = std::string(filled, '#') + std::string(width - filled, '.');
  fmt::print(stderr, "\r[{}] {:5.1f} %  {} requests  hits {:.1f} %  {:.0f} s\x1b[K", bar, share, requests, hit_share,
             std::chrono::duration<double>(now - begin_).count());
  std::fflush(stderr);
}

void Progress::erase() {
  if (!drawn_) return;
  drawn_ = false;
  fmt::print(stderr, "\r\x1b[K");
  std::fflush(stderr);
}

}  // namespace terrace::tools
