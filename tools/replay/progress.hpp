#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

namespace terrace::tools {

/// A line on standard error that says how far the replay is, where that is a terminal; else nothing. Erased when destroyed.
class Progress {
 public:
  /// `requests_total`: 0 where it is not known.
  explicit Progress(std::uint64_t requests_total);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// Draws at most ten times a second.
  void show(std::uint64_t requests, std::uint64_t hits, std::uint64_t blocks);
  /// Erases the line, until the next show().
  void erase();

 private:
  using Clock = std::chrono::steady_clock;

  const bool enabled_;
  const std::uint64_t requests_total_;
  const Clock::time_point begin_ = Clock::now();
  Clock::time_point next_ = begin_;
  bool drawn_ = false;
};

}  // namespace terrace::tools
