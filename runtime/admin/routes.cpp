#include "runtime/admin/routes.hpp"

#include "runtime/admin/metrics.hpp"
#include "runtime/admin/moment.hpp"
#include "runtime/admin/size_effects.hpp"
#include "runtime/admin/status.hpp"

#include <boost/describe.hpp>
#include <boost/json.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <utility>

namespace terrace::admin {

BOOST_DESCRIBE_ENUM(Observations::State, none, running, done)

namespace {

namespace json = boost::json;

constexpr std::string_view jobs_path = "/v1/jobs";
constexpr std::string_view trace_path = "/v1/trace";
constexpr std::string_view record_path = "/v1/record";

Reply failure(unsigned status, std::string_view sentence) { return {status, error_body(sentence)}; }

constexpr std::string_view questions = "/healthz, /metrics, /v1/status, /v1/config, /v1/history, /v1/jobs, /v1/trace, /v1/record";
constexpr std::string_view orders =
    "/v1/jobs, /v1/settings, /v1/resize, /v1/clear, /v1/update, /v1/resume, /v1/pause, /v1/unpause, /v1/trace, /v1/record";

bool is_question(std::string_view path) {
  return path == "/healthz" || path == "/metrics" || path == trace_path || path == record_path || path == "/v1/status" ||
         path == "/v1/config" || path == "/v1/history" || path == jobs_path || path.starts_with("/v1/jobs/");
}

/// True for what a process with a store only answers or does.
bool is_for_a_store(std::string_view method, std::string_view path) {
  if (method == "POST") return path == "/v1/clear" || path == "/v1/update";
  return path == "/healthz" || path == "/metrics" || path == "/v1/status" || path == "/v1/config" || path == "/v1/history";
}

std::optional<WriteBackId> job_id(std::string_view word) {
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
  if (error != std::errc{} || end != word.data() + word.size()) return std::nullopt;
  return WriteBackId{number};
}

/// The action of "ID/pause"; nothing for other words.
std::optional<ChangeJob> job_change(std::string_view rest) {
  using Action = ChangeJob::Action;
  const std::size_t slash = rest.find('/');
  if (slash == std::string_view::npos) return std::nullopt;
  const std::optional<WriteBackId> id = job_id(rest.substr(0, slash));
  const std::string_view word = rest.substr(slash + 1);
  const std::optional<Action> action = word == "pause"     ? std::optional{Action::pause}
                                       : word == "resume"  ? std::optional{Action::resume}
                                       : word == "cancel"  ? std::optional{Action::cancel}
                                       : word == "results" ? std::optional{Action::take_results}
                                                           : std::nullopt;
  if (!id || !action) return std::nullopt;
  return ChangeJob{*action, *id};
}

json::object capture_json(const Observations::Status& status) {
  return {{"state", boost::describe::enum_to_string(status.state, "?")},
          {"seconds_left", status.seconds_left},
          {"seconds", status.seconds},
          {"entries", status.entries},
          {"truncated", status.truncated}};
}

json::object reuse_json(const ReuseCurve& curve, const AdminSnapshot& snapshot) {
  json::array tiers;
  for (const SizeEffect& effect : size_effects(curve, snapshot)) {
    json::object ratios;
    for (std::size_t n = 0; n < size_factors.size(); ++n) ratios[size_factors[n].name] = effect.hit_ratio[n];
    tiers.push_back({{"tier", to_string(effect.tier)},
                     {"blocks", effect.blocks},
                     {"bytes", count(effect.bytes)},
                     {"lru_hit_ratio", std::move(ratios)}});
  }
  json::array points;
  const double units = curve.asked() > 0 ? snapshot.measured.units_per_block : 1;
  const double end = std::min<double>(curve.covered(), curve.different());
  for (double blocks = 1; curve.asked() > 0 && blocks < 2 * end / units; blocks *= std::sqrt(2.0)) {
    const double size = std::min(std::round(blocks), end / units);
    points.push_back({{"blocks", size}, {"lru_hit_ratio", curve.hit_ratio(size * units)}});
  }
  return {{"pool", snapshot.measured.pool.value()},
          {"asked_blocks", curve.asked() / units},
          {"different_blocks", curve.different() / units},
          {"covered_blocks", end / units},
          {"points", std::move(points)},
          {"tiers", std::move(tiers)}};
}

}  // namespace

std::string without_secrets(std::string_view text) {
  std::string shown{text};
  const std::size_t scheme = shown.find("://");
  if (scheme == std::string::npos) return shown;
  const std::size_t host = scheme + 3;
  // A password may contain an "@", a "/" or a "?", too.
  const std::size_t at = shown.rfind('@');
  if (at == std::string::npos || at < host) return shown;
  return shown.replace(host, at - host, "***");
}

Routes::Routes(const AdminOptions& options, std::string token, const Mailbox& mailbox, Observations& observations,
               const Clock& clock, Room room)
    : commands_{options.commands},
      interval_{options.publish_interval},
      config_{options.config},
      token_{std::move(token)},
      mailbox_{mailbox},
      observations_{observations},
      clock_{clock},
      room_{std::move(room)} {}

std::variant<Reply, Command> Routes::route(const Request& request) const {
  const std::size_t mark = std::min(request.target.find('?'), request.target.size());
  const std::string_view path = request.target.substr(0, mark);
  if (!allowed(request.authorization))
    return failure(401, "this endpoint needs \"Authorization: Bearer TOKEN\" (terrace: --token-file FILE)");
  const SharedSnapshot snapshot = mailbox_.latest();
  if (snapshot && snapshot->tier_store && !is_for_a_store(request.method, path)) return failure(404, store_only);
  if (request.method == "GET" || request.method == "HEAD") return ask(path, request.target.substr(mark), snapshot.get());
  if (request.method != "POST") return failure(405, "the methods are GET and POST");
  if (!commands_) return failure(403, "commands are off (option admin.commands)");
  try {
    return order(path, request.body);
  } catch (const BadBody& error) {
    return failure(400, error.what());
  }
}

/// Takes the same time for every wrong token of the right length.
bool Routes::allowed(std::string_view authorization) const {
  if (token_.empty()) return true;
  constexpr std::string_view scheme = "Bearer ";
  if (!authorization.starts_with(scheme)) return false;
  const std::string_view given = authorization.substr(scheme.size());
  if (given.size() != token_.size()) return false;
  unsigned differing = 0;
  for (std::size_t i = 0; i < given.size(); ++i) differing |= static_cast<unsigned char>(given[i] ^ token_[i]);
  return differing == 0;
}

Reply Routes::ask(std::string_view path, std::string_view query, const AdminSnapshot* snapshot) const {
  if (!is_question(path)) {
    return failure(404, fmt::format("there is no such path; questions are {}; commands are POST to {}", questions, orders));
  }
  if (path == "/v1/config") return config(snapshot);
  if (path == "/v1/history") return history(query);
  if (path == trace_path) return captured(CaptureKind::trace, snapshot);
  if (path == record_path) return captured(CaptureKind::record, snapshot);
  if (snapshot == nullptr) return failure(503, "nothing was published yet: the cache or store is being set up");
  if (path == "/healthz") return healthz(*snapshot);
  if (path == "/metrics") return metrics(*snapshot);
  if (path == "/v1/status") return status(*snapshot);
  return jobs(path.substr(std::min(path.size(), jobs_path.size() + 1)), *snapshot);
}

std::variant<Reply, Command> Routes::order(std::string_view path, std::string_view body) const {
  if (path == "/v1/resize") {
    const Resize resize = read_resize(body);
    if (std::optional<Reply> reply = refused(resize)) return *std::move(reply);
    return resize;
  }
  if (path == "/v1/settings") return read_change(body);
  if (path == "/v1/clear") return read_clear(body);
  if (path == "/v1/update") return read_update(body);
  if (path == trace_path) return read_capture(CaptureKind::trace, body);
  if (path == record_path) return read_capture(CaptureKind::record, body);
  if (path == jobs_path) return read_start_job(body);
  if (path == "/v1/resume" || path == "/v1/pause" || path == "/v1/unpause") {
    read_nothing(body);
    if (path == "/v1/resume") return Resume{};
    return Pause{path == "/v1/pause"};
  }
  if (path.starts_with("/v1/jobs/")) {
    if (const std::optional<ChangeJob> change = job_change(path.substr(jobs_path.size() + 1))) {
      read_nothing(body);
      return *change;
    }
    return failure(404, "the paths of a job are /v1/jobs/ID/pause, /resume, /cancel and /results");
  }
  if (is_question(path)) return failure(405, "this path is asked with GET");
  return failure(404, fmt::format("there is no such path; commands are POST to {}", orders));
}

Reply Routes::healthz(const AdminSnapshot& snapshot) const {
  const Health now = health(snapshot);
  return answer(json::object{{"status", to_string(now.state)},
                             {"reasons", json::array(now.reasons.begin(), now.reasons.end())},
                             {"age_seconds", std::chrono::duration<double>(age(snapshot)).count()}},
                now.state == HealthState::stalled ? 503 : 200);
}

Reply Routes::metrics(const AdminSnapshot& snapshot) const {
  std::optional<std::string> text =
      metrics_text(snapshot, health(snapshot), age(snapshot), size_effects(observations_.curve(), snapshot));
  if (!text)
    return failure(501, "this build has no library for Prometheus' format (prometheus-cpp); /v1/status has the same as JSON");
  return {200, *std::move(text), "text/plain; version=0.0.4; charset=utf-8"};
}

Reply Routes::status(const AdminSnapshot& snapshot) const {
  const Health now = health(snapshot);
  json::object all{{"health", to_string(now.state)},
                   {"reasons", json::array(now.reasons.begin(), now.reasons.end())},
                   {"age_seconds", std::chrono::duration<double>(age(snapshot)).count()}};
  for (auto& [name, value] : to_json(snapshot)) all[name] = std::move(value);
  all["reuse"] = reuse_json(observations_.curve(), snapshot);
  if (snapshot.tier_store) return answer(all);
  all["captures"] = json::object{{"trace", capture_json(observations_.status(CaptureKind::trace, clock_.now()))},
                                 {"record", capture_json(observations_.status(CaptureKind::record, clock_.now()))}};
  return answer(all);
}

Reply Routes::config(const AdminSnapshot* snapshot) const {
  json::array values;
  for (const ConfigValue& each : config_) {
    values.push_back({{"name", each.name}, {"value", without_secrets(each.value)}, {"origin", each.origin.where}});
  }
  const bool has_settings = snapshot != nullptr && !snapshot->tier_store;
  return answer(json::object{{"start", std::move(values)}, {"now", has_settings ? to_json(snapshot->settings) : json::object{}}});
}

Reply Routes::jobs(std::string_view id, const AdminSnapshot& snapshot) const {
  if (id.empty()) {
    json::array all;
    for (const WriteBackProgress& job : snapshot.jobs) all.push_back(to_json(job));
    return answer(json::object{{"jobs", std::move(all)}});
  }
  const std::optional<WriteBackId> number = job_id(id);
  const auto found = std::ranges::find_if(snapshot.jobs, [&](const WriteBackProgress& job) { return job.id == number; });
  if (found == snapshot.jobs.end()) return failure(404, "there is no such job, or it was forgotten");
  return answer(to_json(*found));
}

Reply Routes::history(std::string_view query) const {
  std::optional<History::WallTime> at;
  if (!query.empty() && query != "?") {
    constexpr std::string_view name = "?at=";
    std::uint32_t seconds = 0;
    const char* const end = query.data() + query.size();
    const char* const begin = query.starts_with(name) ? query.data() + name.size() : end;
    const auto [stop, error] = std::from_chars(begin, end, seconds);
    if (error != std::errc{} || stop != end)
      return failure(400, "the only parameter is at=SECONDS, since 1970 in UTC: the minutes around that time");
    at = History::WallTime{std::chrono::seconds{seconds}};
  }
  const SharedSnapshot snapshot = mailbox_.latest();
  return answer(json::object{{"waits_of", snapshot ? waiting_things(*snapshot) : "requests"},
                             {"minutes", observations_.history().to_json(at)}});
}

void Routes::look(History::WallTime wall) const {
  const SharedSnapshot snapshot = mailbox_.latest();
  if (!snapshot) return;
  observations_.history().look(moment_of(*snapshot, health(*snapshot)), clock_.now(), wall);
}

Reply Routes::captured(CaptureKind kind, const AdminSnapshot* snapshot) const {
  const Observations::Status status = observations_.status(kind, clock_.now());
  const std::string_view path = kind == CaptureKind::trace ? trace_path : record_path;
  if (status.state == Observations::State::none) {
    return failure(404, fmt::format(R"(nothing was captured yet: POST {{"time": "10s"}} to {} first)", path));
  }
  if (status.state == Observations::State::running) {
    return failure(409, fmt::format("the capture goes on for {:.1f} s; /v1/status tells when it has ended", status.seconds_left));
  }
  const std::uint32_t tokens = std::max(snapshot != nullptr ? snapshot->key_tokens : 0, 1U);
  const bool traces = kind == CaptureKind::trace;
  Observations::Text text = traces ? observations_.trace() : observations_.recording(tokens);
  if (!text) return failure(503, "the capture before this one is still being sent to somebody: try again later");
  return {.type = traces ? "application/json" : "application/jsonl", .capture = std::move(text)};
}

/// Refuses a growth that is known not to fit, and says what would.
std::optional<Reply> Routes::refused(const Resize& resize) const {
  const SharedSnapshot snapshot = mailbox_.latest();
  if (!snapshot || resize.pool.value() >= snapshot->pools.size()) return std::nullopt;  // the cache says what is wrong
  const AdminSnapshot::Pool& pool = snapshot->pools[resize.pool.value()];
  const Bytes block = pool.block_bytes;
  const std::uint64_t blocks = resize.blocks ? *resize.blocks : *resize.bytes / block;
  if (resize.tier == Tier::device) {
    if (blocks <= pool.device_blocks_max) return std::nullopt;
    return too_large(resize.tier, blocks, pool.device_blocks_max, block,
                     "the engine has reserved no memory for more (device-blocks-max)");
  }
  if (resize.tier == Tier::host) return std::nullopt;  // the cache knows its memory
  if (!pool.store) return failure(400, "this cache has no storage");
  if (blocks <= pool.store->wanted_blocks || !room_.storage) return std::nullopt;
  const std::optional<Bytes> left = room_.storage(resize.pool);
  if (!left) return std::nullopt;
  const std::uint64_t largest = pool.store->capacity_blocks + *left / block;
  if (blocks <= largest) return std::nullopt;
  return too_large(resize.tier, blocks, largest, block, fmt::format("the file system has {} left", to_string(*left)));
}

}  // namespace terrace::admin
