#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

namespace terrace::tools {

/// The progress of a task.
struct ProgressState {
  std::uint64_t done = 0;
  std::uint64_t total = 0;  ///< 0: not known; then no percentage and no estimate are shown
  std::string text;         ///< ASCII only
};

/// A line on standard error that shows the progress of a task, if standard error is a terminal. A thread of its own draws it at
/// once and then ten times a second, so that it moves while the program waits. The destructor erases it. There may be one at a
/// time.
class ProgressLine {
 public:
  /// That thread calls `look` until the destructor has returned.
  explicit ProgressLine(std::function<ProgressState()> look);
  ~ProgressLine();
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

 private:
  void draw_until_ended(const std::function<ProgressState()>& look);

  std::mutex mutex_;
  std::condition_variable ended_;
  bool end_ = false;  ///< guarded by mutex_
  std::thread thread_;
};

/// Returns the line for a terminal of `columns` columns; it is never wider. Percentage, text and remaining time have priority,
/// then the elapsed time, then a bar.
[[nodiscard]] std::string progress_text(const ProgressState& state, double seconds, std::size_t columns);

}  // namespace terrace::tools
