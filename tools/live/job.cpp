#include "terrace/types.hpp"
#include "tools/live/command_line.hpp"
#include "tools/output.hpp"

#include <fmt/format.h>

#include <cmath>
#include <optional>
#include <stdexcept>

namespace terrace::tools {
namespace {

namespace json = boost::json;

using JobPart = JobArguments::Part;

bool has_ended(const json::object& job) { return text_in(job, "state") != "running" && text_in(job, "state") != "paused"; }

/// Blocks of the job that have their result, and those among them that are where the job writes to.
struct Counts {
  std::uint64_t ended = 0;
  std::uint64_t stored = 0;
};
Counts counts(const json::object& job) {
  Counts all;
  for (const auto& [outcome, blocks] : job.at("blocks").as_object()) {
    const auto here = blocks.to_number<std::uint64_t>();
    all.ended += here;
    if (outcome == "stored" || outcome == "already_there") all.stored += here;
  }
  return all;
}

/// The results of the blocks: "3 stored, 1 failed".
std::string outcomes(const json::object& job) {
  std::string all;
  for (const auto& [outcome, blocks] : job.at("blocks").as_object()) {
    const auto here = blocks.to_number<std::uint64_t>();
    std::string name{outcome};
    for (char& c : name) c = c == '_' ? ' ' : c;
    if (here > 0) all += fmt::format("{}{} {}", all.empty() ? "" : ", ", here, name);
  }
  return all.empty() ? "no blocks" : all;
}

void show(const json::object& job, bool as_json) {
  if (as_json) return print_json(job);
  const bool shared = text_in(job, "target") == "shared";
  const std::string durable = fmt::format(", {} durable", to_string(Bytes{whole_in(job, "durable_bytes")}));
  print("job {} ({}{}) is {}: {}; {} written{}{}\n", whole_in(job, "id"), text_in(job, "scope"), shared ? ", to shared" : "",
        text_in(job, "state"), outcomes(job), to_string(Bytes{whole_in(job, "written_bytes")}), shared ? "" : durable,
        text_in(job, "flush_error").empty() ? "" : "; the flush failed: " + text_in(job, "flush_error"));
}

ExitStatus outcome_of(const json::object& job) {
  const std::string state = text_in(job, "state");
  if (state != "done") throw std::runtime_error{fmt::format("job {} is {}: {}", whole_in(job, "id"), state, outcomes(job))};
  const Counts all = counts(job);
  if (all.stored == all.ended && text_in(job, "flush_error").empty()) return ExitStatus::done;
  return complain("terrace job", fmt::format("job {} has not stored all its blocks: {}", whole_in(job, "id"), outcomes(job)),
                  ExitStatus::check_failed);
}

/// The progress bar counts a share: a job over everything does not know how many blocks it will meet.
ProgressState progress_of(const json::object& job) {
  constexpr std::uint64_t whole = 10'000;
  const Counts all = counts(job);
  const std::uint64_t known = all.ended + whole_in(job, "under_way");
  const double looked_at = job.at("looked_at").to_number<double>();
  const double ended = known == 0 ? looked_at : looked_at * static_cast<double>(all.ended) / static_cast<double>(known);
  return {static_cast<std::uint64_t>(std::lround(ended * whole)), whole,
          fmt::format("job {}: {} blocks, {}{}", whole_in(job, "id"), all.ended, to_string(Bytes{whole_in(job, "written_bytes")}),
                      text_in(job, "state") == "paused" ? ", paused" : "")};
}

ExitStatus watch(const AdminClient& client, std::uint64_t id, bool as_json) {
  const Waiting waiting;
  json::object job;
  waiting.show_until_done([&]() -> std::optional<ProgressState> {
    job = client.get(fmt::format("/v1/jobs/{}", id));
    if (has_ended(job)) return std::nullopt;
    return progress_of(job);
  });
  show(job, as_json);
  return outcome_of(job);
}

json::object order_of(const JobArguments& arguments) {
  json::object order{{"target", arguments.to}, {"scope", arguments.scope}, {"durable", !arguments.not_durable}};
  if (arguments.request) order["request"] = *arguments.request;
  if (arguments.tenant) order["tenant"] = *arguments.tenant;
  if (!arguments.keys.empty()) order["keys"] = json::array(arguments.keys.begin(), arguments.keys.end());
  if (!arguments.unused_for.empty()) order["unused-for"] = arguments.unused_for;
  if (!arguments.deadline.empty()) order["deadline"] = arguments.deadline;
  if (!arguments.budget.empty()) order["budget"] = arguments.budget;
  return order;
}

void list(const AdminClient& client, bool as_json) {
  const json::object all = client.get("/v1/jobs");
  if (as_json) return print_json(all);
  const json::array& jobs = all.at("jobs").as_array();
  if (jobs.empty()) print("no jobs\n");
  for (const json::value& job : jobs) show(job.as_object(), false);
}

void results(const AdminClient& client, const std::string& path, bool as_json) {
  const AdminClient::Answer answer = client.ask("POST", path + "/results");
  if (!answer.body.is_array()) {
    (void)client.get(path);  // says what is wrong with the job
    throw std::runtime_error{"the process has no results: " + answer.text};
  }
  if (as_json) return write_output(json_text(answer.body) + "\n");
  for (const json::value& each : answer.body.as_array()) {
    const json::object& result = each.as_object();
    const std::string error = text_in(result, "error");
    print("{} {}{}\n", text_in(result, "key"), text_in(result, "outcome"), error.empty() ? "" : ": " + error);
  }
}

}  // namespace

ExitStatus run_job(const JobArguments& arguments) {
  const AdminClient client{arguments.target};
  const std::string path = fmt::format("/v1/jobs/{}", arguments.id);
  switch (arguments.part) {
    case JobPart::start: {
      const json::object job = client.post("/v1/jobs", order_of(arguments));
      if (arguments.watch) return watch(client, whole_in(job, "id"), arguments.json);
      if (arguments.json) print_json(job);
      else print("{}\n", whole_in(job, "id"));
      break;
    }
    case JobPart::list: list(client, arguments.json); break;
    case JobPart::watch: return watch(client, arguments.id, arguments.json);
    case JobPart::pause: show(client.post(path + "/pause"), arguments.json); break;
    case JobPart::resume: show(client.post(path + "/resume"), arguments.json); break;
    case JobPart::cancel: show(client.post(path + "/cancel"), arguments.json); break;
    case JobPart::results: results(client, path, arguments.json); break;
  }
  return ExitStatus::done;
}

}  // namespace terrace::tools
