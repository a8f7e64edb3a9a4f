// The records of a process: the waits of the last hour, the hit rates of other sizes, and captures of its work.
#include "terrace/types.hpp"
#include "tools/live/command_line.hpp"
#include "tools/output.hpp"
#include "tools/report_file.hpp"
#include "tools/usage_error.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace terrace::tools {
namespace {

namespace json = boost::json;
using namespace std::chrono_literals;

double number(const json::value& of, std::string_view name) { return of.at(name).to_number<double>(); }

std::tm local(std::time_t seconds) {
  std::tm time{};
  (void)::localtime_r(&seconds, &time);
  return time;
}
std::string minute_of(double seconds) { return fmt::format("{:%H:%M}", local(static_cast<std::time_t>(seconds))); }
std::string second_of(double seconds) { return fmt::format("{:%H:%M:%S}", local(static_cast<std::time_t>(seconds))); }

/// "250 ms", "3.2 s"
std::string span(double seconds) {
  return seconds < 1 ? fmt::format("{:.3g} ms", seconds * 1e3) : fmt::format("{:.1f} s", seconds);
}

/// The last time at which a clock in this place showed "14:03".
std::time_t last_time(const std::string& shown, std::time_t now) {
  const auto digits = [&](std::size_t at) {
    return shown[at] >= '0' && shown[at] <= '9' && shown[at + 1] >= '0' && shown[at + 1] <= '9'
               ? (shown[at] - '0') * 10 + (shown[at + 1] - '0')
               : 99;
  };
  const bool formed = shown.size() == 5 && shown[2] == ':';
  const int hour = formed ? digits(0) : 99;
  const int minute = formed ? digits(3) : 99;
  if (hour > 23 || minute > 59) throw UsageError{fmt::format("--at {}: is not a time of the day, such as 14:03", shown)};
  std::tm time = local(now);
  time.tm_hour = hour;
  time.tm_min = minute;
  time.tm_sec = 0;
  time.tm_isdst = -1;
  std::tm yesterday = time;
  --yesterday.tm_mday;
  const std::time_t today = std::mktime(&time);
  return today <= now ? today : std::mktime(&yesterday);
}

/// "3 for storage (2.1 s in all), 1 for room (20 ms in all)", the longest first. `things`: behind each number.
std::string waits_of(const json::object& waits, std::string_view things) {
  std::vector<std::pair<double, std::string>> kinds;
  for (const auto& [what, value] : waits) {
    if (!value.is_object()) continue;
    const double seconds = number(value, "seconds");
    kinds.emplace_back(seconds, fmt::format("{}{} for {} ({} in all)", whole_in(value, "requests"), things,
                                            std::string_view{what}, span(seconds)));
  }
  std::ranges::sort(kinds, [](const auto& a, const auto& b) { return a.first > b.first; });
  std::string shown;
  for (const auto& [seconds, kind] : kinds) shown += (shown.empty() ? "" : ", ") + kind;
  return shown;
}

void show(std::string& text, std::string_view begin, const std::string& what) {
  text += fmt::format("{}  {}\n", begin, wrapped(printable(what), 7, 7));
}

/// `things`: what waits, "requests", or of an engine that tells of no requests "loads" or "gets".
void show_minute(std::string& text, const json::value& minute, std::string_view things) {
  constexpr std::string_view indent = "     ";
  const std::string_view thing = things.substr(0, things.size() - 1);
  const bool of_requests = things == "requests";
  const json::object& waits = minute.at("waits").as_object();
  const std::string waited = waits_of(waits, of_requests ? "" : fmt::format(" {}", things));
  const std::string nothing =
      of_requests ? "nothing waited" : fmt::format("no {} has ended; this engine does not tell of its requests", thing);
  const std::string others = of_requests ? fmt::format("; {} requests did not wait", whole_in(waits, "at_once")) : "";
  show(text, minute_of(number(minute, "begin")), (waited.empty() ? nothing : "waited: " + waited) + others);
  std::string slowest;
  for (const json::value& each : minute.at("slowest").as_array()) {
    slowest += fmt::format("{} {} {} {} for {}, until {}", slowest.empty() ? "slowest:" : ";", thing, whole_in(each, "id"),
                           span(number(each, "seconds")), text_in(each, "for"), second_of(number(each, "ended")));
  }
  if (!slowest.empty()) show(text, indent, slowest);
  if (minute.as_object().contains("waiting")) {  // not of a process of an earlier version
    const json::value& waiting = minute.at("waiting");
    const double oldest = number(waiting, "oldest_seconds");
    // A shorter wait ends within the minute, or is seen again.
    if (oldest >= 1) {
      show(text, indent,
           fmt::format("up to {} {} waited at a time, one for {} and longer", whole_in(waiting, "requests"), things,
                       span(oldest)));
    }
  }
  std::string moved;
  for (const auto& [name, bytes] : minute.at("moved_bytes").as_object()) {
    std::string words{name};
    std::ranges::replace(words, '_', ' ');
    moved += fmt::format("{} {} {}", moved.empty() ? "moved:" : ",", words, to_string(Bytes{bytes.to_number<std::uint64_t>()}));
  }
  if (!moved.empty()) show(text, indent, moved);
  const json::value& queue = minute.at("queue");
  if (const auto blocks = whole_in(queue, "blocks"); blocks > 0) {
    const double oldest = number(queue, "oldest_seconds");
    show(text, indent, fmt::format("longest queue: {} blocks{}", blocks, oldest > 0 ? ", the oldest for " + span(oldest) : ""));
  }
  for (const json::value& event : minute.at("events").as_array()) {
    const auto times = whole_in(event, "times");
    show(text, indent,
         fmt::format("{} {}{}", second_of(number(event, "at")), text_in(event, "text"),
                     times == 1 ? "" : fmt::format(" ({} times)", times)));
  }
  if (const auto more = whole_in(minute, "events_left_out"); more > 0)
    show(text, indent, fmt::format("and {} other events", more));
}

// ---- captures

/// Long enough for the largest capture.
constexpr Duration patience = 60s;

json::object status_of(const AdminClient& client, const std::string& kind) {
  return client.status_of_cache().at("captures").as_object().at(kind).as_object();
}

ProgressState progress_of(const json::object& status, const char* entries) {
  const double seconds = number(status, "seconds");
  const double left = number(status, "seconds_left");
  return {static_cast<std::uint64_t>((seconds - left) * 10), static_cast<std::uint64_t>(seconds * 10),
          fmt::format("{} {}", whole_in(status, "entries"), entries)};
}

/// Waits until the capture has ended. Ctrl-C ends it now.
json::object wait_for_end(const AdminClient& client, const std::string& kind, const char* entries) {
  json::object status;
  const auto look = [&]() -> std::optional<ProgressState> {
    status = status_of(client, kind);
    if (status.at("state") == "done") return std::nullopt;
    return progress_of(status, entries);
  };
  const Waiting waiting;
  for (;;) {
    try {
      waiting.show_until_done(look);
      return status;
    } catch (const Interrupted&) {
      (void)client.post("/v1/" + kind, {{"time", "0s"}});
    }
  }
}

/// A capture takes time, so a file that cannot be written is refused before.
void check_file(const std::filesystem::path& file) {
  if (file.empty()) return;
  std::error_code ignored;
  if (std::filesystem::exists(file, ignored)) throw UsageError{fmt::format("--out {}: exists; give another file", file.string())};
  const std::filesystem::path folder = file.has_parent_path() ? file.parent_path() : std::filesystem::path{"."};
  if (::access(folder.c_str(), W_OK) == 0) return;
  throw UsageError{fmt::format("--out {}: cannot be written: {}", file.string(), std::generic_category().message(errno))};
}

}  // namespace

std::string history_text(const json::object& history) {
  const bool known = history.contains("waits_of");  // a process of an earlier version does not say so
  std::string text;
  for (const json::value& minute : history.at("minutes").as_array())
    show_minute(text, minute, known ? text_in(history, "waits_of") : "requests");
  return text;
}

void run_why(const WhyArguments& arguments) {
  const std::time_t now = std::time(nullptr);
  constexpr std::time_t margin = 120;
  const std::time_t at = arguments.at.empty() ? now - margin : last_time(arguments.at, now);
  const AdminClient client{arguments.target};
  const json::object history = client.get(fmt::format("/v1/history?at={}", at));
  if (arguments.json) return print_json(history);
  const json::array& minutes = history.at("minutes").as_array();
  if (minutes.empty()) {
    return print("{}: nothing is known of {}: the history is an hour long, and begins with the process\n", client.name(),
                 minute_of(static_cast<double>(at)));
  }
  write_output(history_text(history));
}

void run_live_plan(const Target& target, bool as_json) {
  const AdminClient client{target};
  const json::object status = client.get("/v1/status");
  const json::object& reuse = status.at("reuse").as_object();
  if (as_json) return print_json(reuse);
  const double asked = number(reuse, "asked_blocks");
  if (asked == 0) {
    return print("{}: nothing was measured yet, or no group of layers has full attention, and nothing can be\n", client.name());
  }
  print("{}: hit rates of an LRU cache of other sizes,\n", client.name());
  print("from samples of {:.0f} blocks that requests asked for in the last hour\n", asked);
  if (status.at("pools").as_array().size() > 1) {
    print("(pool {}, which has full attention; the other pools have to change in proportion)\n",
          reuse.at("pool").to_number<std::uint32_t>());
  }
  print("\n");
  print("{:8} {:>10} {:>10} {:>9} {:>9} {:>9} {:>9}\n", "TIER", "SIZE", "BLOCKS", "HALF", "AS IS", "DOUBLE", "FOURFOLD");
  for (const json::value& tier : reuse.at("tiers").as_array()) {
    const json::value& ratio = tier.at("lru_hit_ratio");
    const auto share = [&](const char* size) { return fmt::format("{:.1f} %", 100 * number(ratio, size)); };
    print("{:8} {:>10} {:>10} {:>9} {:>9} {:>9} {:>9}\n", text_in(tier, "tier"), to_string(Bytes{whole_in(tier, "bytes")}),
          whole_in(tier, "blocks"), share("half"), share("same"), share("double"), share("fourfold"));
  }
  print("\n{:>12} {:>9}   (different blocks in all tiers together)\n", "BLOCKS", "HIT RATE");
  // At least every second point, so that sizes are a factor of 2 apart, and few enough for a screen of 24 lines. The last is
  // shown.
  const json::array& points = reuse.at("points").as_array();
  constexpr std::size_t lines_max = 12;
  const std::size_t step = std::max<std::size_t>(2, (points.size() + lines_max - 1) / lines_max);
  for (std::size_t n = points.empty() ? 0 : (points.size() - 1) % step; n < points.size(); n += step) {
    print("{:>12.0f} {:>7.1f} %\n", number(points[n], "blocks"), 100 * number(points[n], "lru_hit_ratio"));
  }
}

void run_capture(const CaptureArguments& arguments) {
  const bool traces = arguments.part == CaptureArguments::Part::trace;
  const std::string kind = traces ? "trace" : "record";
  const char* const entries = traces ? "spans" : "requests";
  if (arguments.time < 1ms) throw UsageError{"--time: must be at least 1ms"};
  check_file(arguments.out);
  const AdminClient client{arguments.target};
  const json::object running = status_of(client, kind);
  if (running.at("state") == "running") {
    throw std::runtime_error{
        fmt::format("{}: another {} goes on for {:.0f} s: try again then", client.name(), kind, number(running, "seconds_left"))};
  }
  const auto time = std::chrono::duration_cast<std::chrono::milliseconds>(arguments.time);
  (void)client.post("/v1/" + kind, {{"time", fmt::format("{}ms", time.count())}});
  const json::object status = wait_for_end(client, kind, entries);
  AdminClient::Answer answer = client.ask("GET", "/v1/" + kind, {}, patience);
  if (answer.status != 200) (void)client.checked(answer);  // says why
  if (arguments.out.empty()) return write_output(safe_json(answer.text));
  write_report(arguments.out, answer.text.substr(0, answer.text.find_last_not_of('\n') + 1));
  print("{}: {} {}{}\n", printable(arguments.out.string()), whole_in(status, "entries"), entries,
        status.at("truncated").as_bool() ? ", the first of them: there were more than fit into memory" : "");
}

}  // namespace terrace::tools
