#include "tools/live/command_line.hpp"
#include "tools/output.hpp"
#include "tools/report_file.hpp"
#include "tools/usage_error.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <system_error>

namespace terrace::tools {
namespace {

namespace json = boost::json;
using namespace std::chrono_literals;

/// Long enough for the largest capture.
constexpr Duration patience = 60s;

json::object status_of(const AdminClient& client, const std::string& kind) {
  return client.status_of_cache().at("captures").as_object().at(kind).as_object();
}

ProgressState progress_of(const json::object& status, const char* entries) {
  const double seconds = status.at("seconds").to_number<double>();
  const double left = status.at("seconds_left").to_number<double>();
  return {static_cast<std::uint64_t>((seconds - left) * 10), static_cast<std::uint64_t>(seconds * 10),
          fmt::format("{} {}", status.at("entries").to_number<std::uint64_t>(), entries)};
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

void run_capture(const CaptureArguments& arguments) {
  const bool traces = arguments.part == CaptureArguments::Part::trace;
  const std::string kind = traces ? "trace" : "record";
  const char* const entries = traces ? "spans" : "requests";
  if (arguments.time < 1ms) throw UsageError{"--time: must be at least 1ms"};
  check_file(arguments.out);
  const AdminClient client{arguments.target};
  const json::object running = status_of(client, kind);
  if (running.at("state") == "running") {
    throw std::runtime_error{fmt::format("{}: another {} goes on for {:.0f} s: try again then", client.name(), kind,
                                         running.at("seconds_left").to_number<double>())};
  }
  const auto time = std::chrono::duration_cast<std::chrono::milliseconds>(arguments.time);
  (void)client.post("/v1/" + kind, {{"time", fmt::format("{}ms", time.count())}});
  const json::object status = wait_for_end(client, kind, entries);
  AdminClient::Answer answer = client.ask("GET", "/v1/" + kind, {}, patience);
  if (answer.status != 200) (void)client.checked(answer);  // says why
  if (arguments.out.empty()) return write_output(safe_json(answer.text));
  write_report(arguments.out, answer.text.substr(0, answer.text.find_last_not_of('\n') + 1));
  print("{}: {} {}{}\n", printable(arguments.out.string()), status.at("entries").to_number<std::uint64_t>(), entries,
        status.at("truncated").as_bool() ? ", the first of them: there were more than fit into memory" : "");
}

}  // namespace terrace::tools
