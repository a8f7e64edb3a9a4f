#pragma once

#include <chrono>
#include <cstdint>
#include <string_view>

namespace terrace::tools {

/// A line with a bar on standard error that says how far something is, where that is a terminal; else nothing. Erased when
/// destroyed. Threads: one.
class ProgressLine {
 public:
  ProgressLine();
  ~ProgressLine();
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  /// Whether show() would draw now: at most ten times a second.
  [[nodiscard]] bool due() const;
  /// `total`: 0 where it is not known. Draws, if it is due: the bar, the share, `text`, the time.
  void show(std::uint64_t done, std::uint64_t total, std::string_view text);
  /// Erases the line, until the next show().
  void erase();

 private:
  using Clock = std::chrono::steady_clock;

  const bool enabled_;
  const Clock::time_point begin_ = Clock::now();
  Clock::time_point next_ = begin_;
  bool drawn_ = false;
};

}  // namespace terrace::tools
