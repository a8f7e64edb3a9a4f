#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

namespace terrace::tools {

/// How far something is.
struct ProgressState {
  std::uint64_t done = 0;
  std::uint64_t total = 0;  ///< 0: not known; then there is no share, and no estimate
  std::string text;         ///< ASCII
};

/// A line on standard error, where that is a terminal, which says how far something is: drawn at once and then ten times a
/// second, by a thread of its own, so that it moves whatever the program waits for. Erased when destroyed. One at a time.
class ProgressLine {
 public:
  /// `look` is called by that thread, until the destructor has returned.
  explicit ProgressLine(std::function<ProgressState()> look);
  ~ProgressLine();
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

 private:
  void draw_until_ended(const std::function<ProgressState()>& look);

  std::mutex mutex_;
  std::condition_variable ended_;
  bool end_ = false;  ///< under mutex_
  std::thread thread_;
};

/// The line for a terminal of so many columns: never wider. Share, text and the time that is left come first, then the time that
/// has passed, then a bar.
[[nodiscard]] std::string progress_text(const ProgressState& state, double seconds, std::size_t columns);

}  // namespace terrace::tools
