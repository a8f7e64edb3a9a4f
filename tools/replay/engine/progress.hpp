#pragma once

#include "base/bytes.hpp"
#include "tools/progress_line.hpp"

#include <atomic>
#include <cstdint>
#include <string>

namespace terrace::tools {

/// How far the requests are, for a ProgressLine. Threads: show() is for one, look() for any.
class Progress {
 public:
  explicit Progress(std::uint64_t requests_total) : requests_total_{requests_total} {}

  void show(std::uint64_t requests, std::uint64_t hits, std::uint64_t blocks);
  [[nodiscard]] ProgressState look() const;

 private:
  const std::uint64_t requests_total_;
  std::atomic<std::uint64_t> requests_{0};
  std::atomic<std::uint64_t> hits_{0};
  std::atomic<std::uint64_t> blocks_{0};
};

/// How far the memory is that a replay begins with, by what the process has. Threads: one.
class StartProgress {
 public:
  /// `needed`: what it will take from now on, or about that.
  explicit StartProgress(Bytes needed);
  [[nodiscard]] ProgressState look() const;

 private:
  Bytes needed_;
  Bytes before_;
};

}  // namespace terrace::tools
