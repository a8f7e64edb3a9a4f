#pragma once

#include "base/log.hpp"
#include "tools/exit_status.hpp"
#include "tools/text.hpp"

#include <fmt/format.h>

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <type_traits>

namespace terrace::tools {

// Everything that the program writes to standard output and standard error goes through these functions: results to standard
// output, and one line to standard error if the exit status is not 0. Threads: for standard output one at a time; for standard
// error any.

/// Call it before anything else. It opens standard descriptors that are closed, so that no other file gets their numbers. It
/// ignores SIGPIPE, so that a write to a pipe without a reader fails and does not end the process.
void prepare_output();

/// The form in which print() shows an argument: text is made printable.
template <class T>
using Printable = std::conditional_t<std::is_convertible_v<const T&, std::string_view>, std::string, const T&>;
template <class T>
[[nodiscard]] Printable<T> printable_argument(const T& value) {
  if constexpr (std::is_convertible_v<const T&, std::string_view>) {
    return printable(value);
  } else {
    return value;
  }
}
/// fmt::format() with text arguments made printable.
template <class... Args>
[[nodiscard]] std::string printable_format(fmt::format_string<Printable<Args>...> format, const Args&... args) {
  const auto make = [&](const auto&... shown) { return fmt::vformat(format, fmt::make_format_args(shown...)); };
  return make(printable_argument(args)...);
}

/// Writes to standard output without changes. Never fails; flush_output() and end_output() report what could not be written.
void write_output(std::string_view text);
template <class... Args>
void print(fmt::format_string<Printable<Args>...> format, const Args&... args) {
  write_output(printable_format<Args...>(format, args...));
}
/// Prints one line of JSON.
void print_json(const boost::json::object& object);
/// Calls fflush() on standard output, so that results are visible while the work goes on. Throws std::runtime_error if this or
/// an earlier write has failed.
void flush_output();

/// Writes "who: what" as one line to standard error. A failure is ignored. Threads: any.
void write_error(std::string_view who, std::string_view what) noexcept;
/// The same after everything that was printed: the line that says why the exit status is this one, which it returns.
ExitStatus complain(std::string_view who, std::string_view what, ExitStatus status = ExitStatus::done) noexcept;

/// A log on standard error with lines of the form "WHO: warning: SENTENCE". It lives as long as the process.
[[nodiscard]] LogSink& standard_error_log();

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

/// Closes standard output and returns the exit status of the process. This is `status`, except if that is `done` and a write has
/// failed: then it writes a line to standard error and returns run_failed.
[[nodiscard]] int end_output(std::string_view who, ExitStatus status);

}  // namespace terrace::tools
