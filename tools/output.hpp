#pragma once

#include "base/log.hpp"
#include "tools/exit_status.hpp"
#include "tools/text.hpp"

#include <fmt/format.h>

#include <string>
#include <string_view>
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
/// The same after everything that was printed: the line that says why the exit status is not 0.
void complain(std::string_view who, std::string_view what) noexcept;

/// A log on standard error with lines of the form "WHO: warning: SENTENCE". It lives as long as the process.
[[nodiscard]] LogSink& standard_error_log();

/// Replaces the last line of the terminal, on standard error. An empty text removes the line. Lines of write_error() appear above
/// it.
void draw_progress(std::string_view line) noexcept;

/// Closes standard output and returns the exit status of the process. This is `status`, except if that is `done` and a write has
/// failed: then it writes a line to standard error and returns run_failed.
[[nodiscard]] int end_output(std::string_view who, ExitStatus status);

}  // namespace terrace::tools
