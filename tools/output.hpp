#pragma once

#include "base/log.hpp"
#include "tools/exit_status.hpp"
#include "tools/text.hpp"

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <type_traits>

namespace terrace::tools {

// All that the program writes to standard output and standard error goes through here: results on
// standard output, one line on standard error where the exit status is not 0. Threads: standard output, one at a time; standard
// error, any.

/// Before anything else: standard descriptors that are closed are opened, for nothing, so that no file of ours gets their
/// numbers; a pipe whose reader has gone is a failed write, and no signal.
void prepare_output();

/// An argument as print() shows it: text is made printable.
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
/// As fmt::format, with text arguments made printable.
template <class... Args>
[[nodiscard]] std::string printable_format(fmt::format_string<Printable<Args>...> format, const Args&... args) {
  const auto make = [&](const auto&... shown) { return fmt::vformat(format, fmt::make_format_args(shown...)); };
  return make(printable_argument(args)...);
}

/// To standard output, as it is. Never fails: end_output() and flush_output() tell what did not arrive.
void write_output(std::string_view text);
template <class... Args>
void print(fmt::format_string<Printable<Args>...> format, const Args&... args) {
  write_output(printable_format<Args...>(format, args...));
}
/// A line of JSON, for programs.
void print_json(const boost::json::object& object);
/// Brings what was printed out, so that it is seen while work goes on. Throws std::runtime_error where it, or what was printed
/// before, could not be written.
void flush_output();

/// "who: what" as one line on standard error, of any thread. Where that cannot be written nothing can be done.
void write_error(std::string_view who, std::string_view what) noexcept;
/// The same after all that was printed: the line that says why the exit status is not 0.
void complain(std::string_view who, std::string_view what) noexcept;

/// A log on standard error: "WHO: warning: SENTENCE". It lives as long as the process.
[[nodiscard]] LogSink& standard_error_log();

/// In place of what the terminal's last line shows, on standard error; empty: nothing from now on. Lines of write_error() go
/// above it.
void draw_progress(std::string_view line) noexcept;

/// Ends standard output, and returns the status of the process: `status`; where that is `done` and something could not be
/// written, run_failed, and complains.
[[nodiscard]] int end_output(std::string_view who, ExitStatus status);

}  // namespace terrace::tools
