#include "tools/live/command_line.hpp"
#include "tools/live/screen.hpp"
#include "tools/live/waiting.hpp"
#include "tools/output.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <optional>
#include <string>

namespace terrace::tools {
namespace {

namespace json = boost::json;

/// Moves the cursor to the upper left corner and removes what is right of and below it.
constexpr const char* new_screen = "\x1b[H\x1b[J";

/// The room on standard output: what is not a terminal has 80 columns. A screen that is drawn again must not make it scroll.
ScreenSize room_of_terminal(bool redraws) {
  ScreenSize room;
  winsize window{};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &window) != 0) return room;
  if (window.ws_col > 0) room.columns = std::min<std::size_t>(room.columns, window.ws_col);
  if (redraws && window.ws_row > 1) room.lines = window.ws_row - 1U;
  return room;
}

}  // namespace

ExitStatus run_top(const TopArguments& arguments) {
  using Clock = std::chrono::steady_clock;
  const AdminClient client{arguments.target};
  const bool redraws = !arguments.once && !arguments.json && ::isatty(STDOUT_FILENO) == 1;
  const Waiting waiting;
  std::optional<json::object> before;
  Clock::time_point asked_before{};
  while (true) {
    const json::object now = client.get("/v1/status");
    const Clock::time_point asked = Clock::now();
    const double seconds = std::chrono::duration<double>(asked - asked_before).count();
    if (arguments.json) print_json(now);
    else
      write_output(std::string{redraws  ? new_screen
                               : before ? "\n"
                                        : ""} +
                   screen_of(client.name(), now, before, seconds, room_of_terminal(redraws)));
    flush_output();
    if (arguments.once) return ExitStatus::done;
    before = now;
    asked_before = asked;
    try {
      waiting.sleep(std::chrono::duration_cast<std::chrono::milliseconds>(arguments.interval));
    } catch (const Interrupted&) {
      return ExitStatus::done;  // the usual end
    }
  }
}

}  // namespace terrace::tools
